#include "converter/recorded_target.h"

#include <fmt/ranges.h>

#include "converter/equivalence.h"
#include "formats/error.h"
#include "formats/families/family.h"
#include "formats/json.h"
#include "formats/printable.h"

namespace regroup {
namespace {

constexpr std::string_view kConfigKey = "regroup.config";
constexpr std::string_view kDtypesKey = "regroup.dtypes";

// What llama.cpp's graphs cannot say of a model does not tell the two apart.
ModelSpec as_recorded(ModelSpec stored, const ModelSpec& recorded) {
  stored.activation = recorded.activation;
  stored.sliding_window = recorded.sliding_window;
  stored.rope.scaling = recorded.rope.scaling;
  return stored;
}

}  // namespace

void record_source(GgufMetadata& metadata, const Model& source, const std::string& config_text) {
  Json dtypes = Json::object();
  for (const TensorInfo& tensor : source.checkpoint.tensors()) {
    dtypes[tensor.name] = std::string(name_of(tensor.dtype));
  }
  metadata.set_string(kConfigKey, config_text);
  metadata.set_string(kDtypesKey, dtypes.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::optional<Target> recorded_target(const Model& source, const ModelSpec& grouped) {
  if (!source.gguf || !source.gguf->contains(kConfigKey)) {
    return std::nullopt;
  }
  const std::string where = printable(source.path.string(), 0) + ": " + std::string(kConfigKey);
  Target target;
  target.in_place = false;
  target.config_text = *source.gguf->text(kConfigKey);
  target.spec = describe_model(parse_json_object(target.config_text, where), Checkpoint({}), where);
  if (target.spec.layers.size() != grouped.layers.size()) {
    throw_bad_input("{} has {} layers, the file has {}", where, target.spec.layers.size(),
                    grouped.layers.size());
  }
  target.spec.kv_heads = grouped.kv_heads;
  target.spec.alibi.slopes = grouped.alibi.slopes;  // the file's, or those of heads that move now
  const auto obstacles = obstacles_between(as_recorded(grouped, target.spec), target.spec);
  if (!obstacles.empty()) {
    throw_bad_input("{} does not describe the model in the file: {}", where, obstacles.front());
  }
  return target;
}

std::optional<DType> recorded_dtype(const Model& source, const std::string& tensor) {
  if (!source.gguf || !source.gguf->contains(kDtypesKey)) {
    return std::nullopt;
  }
  const Json dtypes = Json::parse(*source.gguf->text(kDtypesKey), nullptr, false);
  const auto found = dtypes.is_object() ? dtypes.find(tensor) : dtypes.end();
  return found != dtypes.end() && found->is_string() ? dtype_from_name(found->get<std::string>())
                                                     : std::nullopt;
}

}  // namespace regroup
