// Targets whose container is a GGUF file.
#include <algorithm>

#include "converter/target/gguf_origin.h"
#include "converter/target/target.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/families/gguf/gguf_model.h"

namespace regroup {
namespace {

std::string model_name(const Model& source) {
  const std::string name = std::filesystem::weakly_canonical(source.path).stem().string();
  return name.empty() ? source.spec.architecture : name;
}

// A GGUF file's own metadata with other kv heads.
Target regrouped_gguf(const Model& source, const ModelSpec& grouped) {
  Target target{grouped, "", {}, source.gguf, true};
  const std::string key =
      std::string(*source.gguf->text("general.architecture")) + ".attention.head_count_kv";
  const auto& heads = grouped.kv_heads;
  if (heads == source.spec.kv_heads) {
    return target;
  }
  if (!source.spec.loaders_read_kv_heads) {
    throw_usage("{}: llama.cpp's graph {} takes as many kv heads as query heads only",
                printable(source.path.string(), 0), printable(source.spec.architecture));
  }
  if (std::adjacent_find(heads.begin(), heads.end(), std::not_equal_to<>()) == heads.end()) {
    target.gguf->set_u32(key, static_cast<std::uint32_t>(heads.front()));
  } else {
    target.gguf->set_array(key, std::vector<std::int32_t>(heads.begin(), heads.end()));
  }
  return target;
}

}  // namespace

Container container_of(const Model& source) {
  return source.convention == Convention::kGguf ? Container::kGguf : Container::kSafetensors;
}

bool is_single_file(Container container) { return container == Container::kGguf; }

Target gguf_target(const Model& source, const ModelSpec& grouped) {
  if (source.convention == Convention::kGguf) {
    return regrouped_gguf(source, grouped);
  }
  Target target;
  target.in_place = false;
  target.gguf = gguf_metadata_for(grouped);
  target.spec = describe_gguf(*target.gguf, gguf_parts_for(grouped));
  target.notes = gguf_differences(grouped);
  target.gguf->set_string("general.name", model_name(source));
  restore_gguf_origin(target, source);
  return target;
}

}  // namespace regroup
