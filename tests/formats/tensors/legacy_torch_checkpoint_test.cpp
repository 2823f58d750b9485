// Files from before torch 1.6: a series of pickles, then storages. Nothing in them is executed or
// trusted.
#include <limits>

#include <catch2/catch_test_macros.hpp>

#include "formats/model/model_directory.h"
#include "formats/tensors/torch_checkpoint.h"
#include "tests/checkpoint_builder.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/torch_builder.h"

namespace regroup {
namespace {

constexpr std::string_view kLegacyFile = "weights.bin";

std::string floats(const std::vector<double>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return tensor_of("", DType::kF32, {count}, values).bytes;
}

std::string tensor(const std::string& storage, std::int64_t offset, const Shape& shape,
                   const Shape& strides) {
  return pickle::tensor({storage, offset, shape, strides});
}

// Two storages; `w` and `t` are views of the second, `b` is the first.
LegacyTorchFile two_storages() {
  const std::string six = pickle::legacy_storage("FloatStorage", "900", 6);
  const std::string bytes = pickle::legacy_storage("ByteStorage", "70", 3);
  return {pickle::program(pickle::dict({pickle::text("w"), tensor(six, 1, {2, 2}, {2, 1}),
                                        pickle::text("t"), tensor(six, 0, {3, 2}, {1, 3}),
                                        pickle::text("b"), tensor(bytes, 0, {3}, {1})})),
          {{"70", 3, "abc"}, {"900", 6, floats({0, 1, 2, 3, 4, 5})}}};
}

Checkpoint opened_legacy(std::string_view bytes) {
  const TemporaryDirectory directory;
  put_file(directory / kLegacyFile, bytes);
  std::vector<Checkpoint::Part> parts;
  parts.push_back(open_weight_file(directory / kLegacyFile));
  return Checkpoint(std::move(parts));
}

Error refusal_of_file(const LegacyTorchFile& file) {
  return refusal_of([&] { opened_legacy(file.bytes()); });
}

// A file whose dict holds a tensor and the value that `value` makes.
LegacyTorchFile file_with_value(const std::string& value) {
  const std::string storage = pickle::legacy_storage("FloatStorage", "0", 1);
  return {pickle::program(pickle::dict(
              {pickle::text("w"), tensor(storage, 0, {1}, {1}), pickle::text("x"), value})),
          {{"0", 1, floats({7})}}};
}

TEST_CASE("storages after the pickles are found by their keys", "[formats]") {
  const Checkpoint checkpoint = opened_legacy(two_storages().bytes());
  REQUIRE(checkpoint.tensors().size() == 3);
  CHECK(bytes_of(checkpoint, "b") == "abc");
  CHECK(values_of(checkpoint, "w") == std::vector<double>{1, 2, 3, 4});
  CHECK(values_of(checkpoint, "t") == std::vector<double>{0, 3, 1, 4, 2, 5});
  CHECK(checkpoint.at("w").contiguous());
  CHECK_FALSE(checkpoint.at("t").contiguous());
}

TEST_CASE("a storage without a tensor in the state dict is skipped", "[formats]") {
  const std::string state = pickle::legacy_storage("HalfStorage", "1", 2);
  LegacyTorchFile file = file_with_value(pickle::tuple({state}));
  file.storages.insert(file.storages.begin(), {"1", 2, "abcd"});
  CHECK(values_of(opened_legacy(file.bytes()), "w") == std::vector<double>{7});
}

TEST_CASE("an old torch file that calls a function is refused wherever the call is", "[formats]") {
  const std::string evil =
      pickle::call(pickle::global("os", "system"), pickle::tuple({pickle::text("true")}));
  const std::string program = pickle::program(evil);
  const auto is_refused = is_bad_input(kLegacyFile, "os.system", "not among those allowed");
  CHECK_THAT(refusal_of_file(file_with_value(evil)), is_refused);
  CHECK_THAT(refusal_of_file(file_with_value(pickle::tuple({pickle::dict({"N", evil})}))),
             is_refused);
  LegacyTorchFile file = two_storages();
  file.version = program;
  CHECK_THAT(refusal_of_file(file), is_refused);
  file = two_storages();
  file.system = program;
  CHECK_THAT(refusal_of_file(file), is_refused);
  file = two_storages();
  file.object = program;
  CHECK_THAT(refusal_of_file(file), is_refused);
  file = two_storages();
  file.keys = program;
  CHECK_THAT(refusal_of_file(file), is_refused);
  // A class with its source: how whole modules used to be saved.
  CHECK_THAT(refusal_of_file(file_with_value(
                 pickle::tuple({pickle::text("module"), pickle::global("torch", "FloatStorage"),
                                pickle::text("model.py"), pickle::text("import os")}) +
                 "Q")),
             is_bad_input(kLegacyFile, "does not name a storage"));
}

TEST_CASE("a truncated old torch file and one with trailing bytes are refused", "[formats]") {
  const std::string bytes = two_storages().bytes();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CAPTURE(size);
    CHECK_THAT(refusal_of([&] { opened_legacy(bytes.substr(0, size)); }),
               is_bad_input(kLegacyFile));
  }
  CHECK_THAT(refusal_of([&] { opened_legacy(bytes + "x"); }),
             is_bad_input(kLegacyFile, "1 bytes after the last storage"));
}

TEST_CASE("an old torch file with any one byte changed is read or refused", "[formats]") {
  const std::string good = two_storages().bytes();
  const TemporaryDirectory directory;
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const int change : {0x01, 0x80, 0xff}) {
      std::string bytes = good;
      bytes[i] = static_cast<char>(bytes[i] ^ change);
      put_file(directory / kLegacyFile, bytes);
      try {
        open_weight_file(directory / kLegacyFile);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kBadInput) {
          FAIL(i << " " << change << " " << error.what());
        }
      }
    }
  }
}

TEST_CASE("a file that does not begin like an old torch file is refused", "[formats]") {
  const TemporaryDirectory directory;
  for (const std::string& bytes :
       {std::string(), std::string("PK\x03\x04 and more"), two_storages().bytes().substr(1)}) {
    put_file(directory / kLegacyFile, bytes);
    CHECK_THAT(refusal_of([&] { open_legacy_torch_checkpoint(directory / kLegacyFile); }),
               is_bad_input(kLegacyFile, "before torch 1.6"));
  }
}

TEST_CASE("storages that disagree with the pickle are refused", "[formats]") {
  LegacyTorchFile file = two_storages();
  file.storages[1].elements = 5;
  CHECK_THAT(refusal_of_file(file),
             is_bad_input(kLegacyFile, "storage 900", "5 elements", "says 6"));
  file = two_storages();
  file.storages[1].key = "901";
  CHECK_THAT(refusal_of_file(file), is_bad_input(kLegacyFile, "storage 901", "unknown"));
  file = two_storages();
  file.storages.pop_back();
  CHECK_THAT(refusal_of_file(file), is_bad_input(kLegacyFile, "tensor w", "storage 900", "not in"));
  file = two_storages();
  file.storages.push_back(file.storages.front());
  CHECK_THAT(refusal_of_file(file), is_bad_input(kLegacyFile, "distinct keys"));
  file = two_storages();
  file.keys = pickle::program(
      "](K\x01"
      "e");
  CHECK_THAT(refusal_of_file(file), is_bad_input(kLegacyFile, "distinct keys"));
  file.keys = pickle::program(pickle::dict({pickle::text("70"), pickle::text("900")}));
  CHECK_THAT(refusal_of_file(file), is_bad_input(kLegacyFile, "not a list of distinct keys"));
  file.storages.clear();
  file.keys = pickle::program("N");
  CHECK_THAT(refusal_of_file(file), is_bad_input(kLegacyFile, "not in the file"));
  file = file_with_value(pickle::tuple({pickle::legacy_storage("FloatStorage", "0", 2)}));
  CHECK_THAT(refusal_of_file(file), is_bad_input(kLegacyFile, "storage 0", "1 elements", "2 of"));
  file = file_with_value(pickle::tuple({pickle::legacy_storage("QUInt8Storage", "q", 2)}));
  file.storages.push_back({"q", 2, "ab"});
  CHECK_THAT(refusal_of_file(file), is_bad_input(kLegacyFile, "storage q", "QUInt8Storage"));
}

TEST_CASE("storages whose sizes would overflow are refused", "[formats]") {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  const std::string huge = pickle::legacy_storage("DoubleStorage", "0", kMost);
  const LegacyTorchFile file{
      pickle::program(pickle::dict({pickle::text("w"), tensor(huge, kMost, {1}, {1})})),
      {{"0", static_cast<std::uint64_t>(kMost), "12345678"}}};
  CHECK_THAT(refusal_of_file(file), is_bad_input(kLegacyFile, "storage 0", "exceeds the file"));
}

TEST_CASE("views beyond their storage are refused in old torch files", "[formats]") {
  const auto refusal_of_view = [](std::int64_t offset, const Shape& shape, const Shape& strides) {
    const std::string storage = pickle::legacy_storage("FloatStorage", "0", 2);
    return refusal_of_file({pickle::program(pickle::dict(
                                {pickle::text("w"), tensor(storage, offset, shape, strides)})),
                            {{"0", 2, floats({1, 2})}}});
  };
  CHECK_THAT(refusal_of_view(1, {2}, {1}), is_bad_input(kLegacyFile, "tensor w", "storage of 2"));
  CHECK_THAT(refusal_of_view(0, {1000}, {0}), is_bad_input(kLegacyFile, "tensor w", "repeat"));
}

TEST_CASE("views of storages and foreign systems are refused", "[formats]") {
  const std::string part = pickle::legacy_storage(
      "FloatStorage", "0", 1, pickle::tuple({pickle::text("1"), "K\x01", "K\x01"}));
  CHECK_THAT(refusal_of_file(file_with_value(part)), is_bad_input(kLegacyFile, "part of another"));
  LegacyTorchFile file = two_storages();
  file.system = pickle::program(pickle::dict({pickle::text("little_endian"), "\x89"}));
  CHECK_THAT(refusal_of_file(file), is_bad_input(kLegacyFile, "little-endian"));
  file.system = pickle::program("N");
  CHECK_THAT(refusal_of_file(file), is_bad_input(kLegacyFile, "little-endian"));
  file.system = pickle::program(pickle::dict({pickle::text("little_endian"), pickle::integer(1)}));
  CHECK_THAT(refusal_of_file(file), is_bad_input(kLegacyFile, "little-endian"));
  file = two_storages();
  file.version = pickle::program(pickle::text("1001"));
  CHECK_THAT(refusal_of_file(file), is_bad_input(kLegacyFile, "protocol version 1001"));
  file.version = pickle::program(pickle::integer(1002));
  CHECK_THAT(refusal_of_file(file), is_bad_input(kLegacyFile, "1001"));
}

}  // namespace
}  // namespace regroup
