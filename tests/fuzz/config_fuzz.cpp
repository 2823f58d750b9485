// A config.json: the model that it describes, the tensors of such a model, and a changed member.
#include "formats/families/family.h"
#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const regroup::MemoryFile nothing;
  const std::string_view text = regroup::text_of(data, size);
  regroup::refuse_or_read([&] {
    const regroup::Json config = regroup::parse_json_object(text, "fuzz");
    const std::string changed = regroup::with_member(text, {"regroup", "kv_heads"}, "4");
    if (regroup::parse_json_object(changed, "changed")["regroup"]["kv_heads"] != 4) {
      ::abort();
    }
    std::vector<regroup::File> files;
    files.push_back(regroup::File::open(nothing.path()));
    const regroup::Checkpoint empty(std::move(files), {});
    const regroup::ModelSpec spec = regroup::describe_model(config, empty, "fuzz");
    regroup::check_attention_shapes(spec, empty);
  });
  return 0;
}
