// An index of two existing shards.
#include "formats/model/weight_index.h"
#include "tests/checkpoint_builder.h"
#include "tests/file_tree.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

const std::filesystem::path& make_shards() {
  static const TemporaryDirectory directory;
  put_checkpoint(directory / "a", std::vector{varied_tensor("x", DType::kF32, {2})});
  put_checkpoint(directory / "b", std::vector{varied_tensor("y", DType::kF32, {2}),
                                              varied_tensor("z", DType::kF32, {2})});
  return directory.path();
}

}  // namespace
}  // namespace regroup

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::filesystem::path& directory = regroup::make_shards();
  const std::string_view text = regroup::text_of(data, size);
  regroup::refuse_or_read([&] {
    regroup::parse_weight_index(text, "fuzz");
    regroup::put_file(directory / "index.json", text);
    regroup::open_indexed_shards(directory / "index.json");
  });
  return 0;
}
