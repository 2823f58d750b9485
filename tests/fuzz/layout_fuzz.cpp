// A layout file for a small model: the spec that it gives, and the config that a conversion would
// write with it.
#include "formats/families/family.h"
#include "formats/model/model.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

ModelDirectory small_model() {
  const TemporaryDirectory directory;  // files that are open stay readable
  return open_model_directory(put_model(directory.path(), tiny_llama({.layers = 1})));
}

void read(const ModelDirectory& model, std::string_view text) {
  const Json layout = parse_json_object(text, "fuzz");
  const ModelSpec spec = describe_with_layout(model.config, model.checkpoint, layout, "fuzz");
  check_attention_shapes(spec, model.checkpoint);
  if (spec.kv_heads.size() != spec.layers.size() || spec.query_heads <= 0 || spec.head_dim <= 0) {
    ::abort();
  }
  const std::string changed = with_member(model.config_text, spec.kv_heads_key, "1");
  try {
    parse_json_object(changed, "changed");
  } catch (const Error&) {
    ::abort();  // regroup could not read its own result
  }
}

}  // namespace
}  // namespace regroup

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const regroup::ModelDirectory model = regroup::small_model();
  regroup::refuse_or_read([&] { regroup::read(model, regroup::text_of(data, size)); });
  return 0;
}
