// Reading a stored tensor in parts, and how errors name it.
#include "formats/tensors/tensor_reader.h"

#include <span>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "formats/model/model_directory.h"
#include "formats/tensors/checkpoint.h"
#include "tests/checkpoint_builder.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

std::string bytes_from(const TensorReader& reader, std::uint64_t offset, std::size_t count) {
  std::string bytes(count, '\0');
  reader.read_at(offset, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

TEST_CASE("parts are consecutive and whole elements, and no larger than the limit", "[formats]") {
  constexpr auto kElements = static_cast<std::int64_t>(2 * kElementsAtATime + 5);
  const TemporaryDirectory directory;
  const BuiltTensor built = varied_tensor("a", DType::kBF16, {kElements});
  put_checkpoint(directory / "model.safetensors", std::vector{built});
  const Checkpoint checkpoint = open_checkpoint(directory / "model.safetensors");
  const TensorReader reader(checkpoint, checkpoint.at("a"));
  std::vector<std::uint64_t> firsts;
  std::string all;
  for_each_part(reader, [&](std::uint64_t first, std::span<const std::byte> bytes) {
    CHECK(first * 2 == all.size());
    CHECK(bytes.size() <= 2 * kElementsAtATime);
    firsts.push_back(first);
    all.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  CHECK(firsts == std::vector<std::uint64_t>{0, kElementsAtATime, 2 * kElementsAtATime});
  CHECK((all == built.bytes));
  CHECK(bytes_from(reader, 2 * kElementsAtATime - 3, 8) ==
        built.bytes.substr(2 * kElementsAtATime - 3, 8));
}

TEST_CASE("a tensor without elements has no parts", "[formats]") {
  const TemporaryDirectory directory;
  put_checkpoint(directory / "model.safetensors",
                 std::vector{varied_tensor("none", DType::kF32, {0, 3})});
  const Checkpoint checkpoint = open_checkpoint(directory / "model.safetensors");
  const TensorReader reader(checkpoint, checkpoint.at("none"));
  CHECK(reader.bytes() == 0);
  for_each_part(reader, [&](std::uint64_t, std::span<const std::byte>) { FAIL("a part"); });
}

TEST_CASE("errors name the file of a tensor, and the directory of several files", "[formats]") {
  const TemporaryDirectory directory;
  for (const char* name : {"one", "two"}) {
    put_checkpoint(directory / (std::string(name) + ".safetensors"),
                   std::vector{varied_tensor(name, DType::kF32, {1})});
  }
  std::vector<Checkpoint::Part> parts;
  parts.push_back(open_weight_file(directory / "one.safetensors"));
  const Checkpoint one(std::move(parts));
  CHECK(place_of(one) == (directory / "one.safetensors").string());
  parts.clear();
  parts.push_back(open_weight_file(directory / "one.safetensors"));
  parts.push_back(open_weight_file(directory / "two.safetensors"));
  const Checkpoint both(std::move(parts));
  CHECK(place_of(both) == directory.path().string());
  CHECK(place_of(both, both.at("two")) ==
        (directory / "two.safetensors").string() + ": tensor two");
}

}  // namespace
}  // namespace regroup
