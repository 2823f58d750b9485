// The tensors in which two checkpoints differ.
#include <catch2/catch_test_macros.hpp>

#include "formats/model/model_directory.h"
#include "formats/model/tensor_comparison.h"
#include "tests/checkpoint_builder.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

using Names = std::vector<std::string>;

// Two files: "same" is equal, "values" differs, the others are in one of them.
class Pair {
 public:
  Pair() {
    const BuiltTensor same = varied_tensor("same", DType::kF32, {4});
    BuiltTensor values = varied_tensor("values", DType::kF32, {2});
    put_checkpoint(directory_ / "before.safetensors",
                   std::vector{values, same, varied_tensor("removed", DType::kBF16, {3})});
    values.bytes[0] ^= 1;
    put_checkpoint(directory_ / "after.safetensors",
                   std::vector{varied_tensor("added", DType::kF32, {1}), same, values});
  }

  Checkpoint before() const { return open_checkpoint(directory_ / "before.safetensors"); }
  Checkpoint after() const { return open_checkpoint(directory_ / "after.safetensors"); }

 private:
  const TemporaryDirectory directory_;
};

Names names_of(const std::vector<TensorDifference>& differences) {
  Names names;
  for (const TensorDifference& difference : differences) {
    names.push_back(difference.name);
  }
  return names;
}

TEST_CASE("without a filter and progress all tensors are compared", "[formats]") {
  const Pair pair;
  const Checkpoint before = pair.before(), after = pair.after();
  CHECK(names_of(differences_between(before, after, {}, {})) ==
        Names{"added", "removed", "values"});
}

TEST_CASE("differences are in the order of the layers' numbers", "[formats]") {
  const TemporaryDirectory directory;
  const auto put = [&](const char* file, DType dtype) {
    put_checkpoint(directory / file, std::vector{varied_tensor("blk.10.k", dtype, {1}),
                                                 varied_tensor("blk.2.k", dtype, {1})});
    return open_checkpoint(directory / file);
  };
  const Checkpoint before = put("before.safetensors", DType::kF32);
  const Checkpoint after = put("after.safetensors", DType::kBF16);
  CHECK(names_of(differences_between(before, after, {}, {})) == Names{"blk.2.k", "blk.10.k"});
}

TEST_CASE("tensors outside the filter are neither compared nor counted", "[formats]") {
  const Pair pair;
  const Checkpoint before = pair.before(), after = pair.after();
  std::uint64_t bytes = 0;
  Names seen;
  const auto progress = [&](std::uint64_t done, std::string_view tensor) {
    bytes = done;
    seen.emplace_back(tensor);
  };
  const auto chosen = [](const std::string& name) { return name != "values" && name != "added"; };
  CHECK(names_of(differences_between(before, after, chosen, progress)) == Names{"removed"});
  CHECK(seen == Names{"same", "removed"});
  CHECK(bytes == 4 * 4 + 3 * 2);
}

}  // namespace
}  // namespace regroup
