// Torch files read from end to end: tensors as torch stores them and views beyond their storage.
#include "formats/tensors/torch_checkpoint.h"

#include <limits>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "formats/model/model_directory.h"
#include "formats/model/model_summary.h"
#include "tests/checkpoint_builder.h"
#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"
#include "tests/torch_builder.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTorchFile = "weights.bin";

// The floats 0 to 5.
std::string six_floats() {
  return tensor_of("", DType::kF32, {6}, std::vector<double>{0, 1, 2, 3, 4, 5}).bytes;
}

// An archive with one storage of six floats and the tensor `w`, a view of it.
std::string file_with(const pickle::Tensor& tensor) {
  return torch_archive(pickle::program(pickle::dict({pickle::text("w"), pickle::tensor(tensor)})),
                       {six_floats()})
      .bytes();
}

std::string file_with_view(std::int64_t offset, const Shape& shape, const Shape& strides) {
  return file_with({pickle::storage("FloatStorage", "0", 6), offset, shape, strides});
}

Checkpoint opened_torch(std::string_view bytes) {
  const TemporaryDirectory directory;
  put_file(directory / kTorchFile, bytes);
  std::vector<Checkpoint::Part> parts;
  parts.push_back(open_weight_file(directory / kTorchFile));
  return Checkpoint(std::move(parts));
}

std::vector<double> view(std::int64_t offset, const Shape& shape, const Shape& strides) {
  return values_of(opened_torch(file_with_view(offset, shape, strides)), "w");
}

Error refusal_of_torch(std::string_view bytes) {
  return refusal_of([&] { opened_torch(bytes); });
}

Error refusal_of_view(std::int64_t offset, const Shape& shape, const Shape& strides) {
  return refusal_of_torch(file_with_view(offset, shape, strides));
}

TEST_CASE("views are read in row-major order whatever their offset and strides", "[formats]") {
  using Elements = std::vector<double>;
  CHECK(view(0, {2, 3}, {3, 1}) == Elements{0, 1, 2, 3, 4, 5});
  CHECK(view(0, {3, 2}, {1, 3}) == Elements{0, 3, 1, 4, 2, 5});  // transposed
  CHECK(view(1, {2, 2}, {3, 1}) == Elements{1, 2, 4, 5});        // columns
  CHECK(view(5, {}, {}) == Elements{5});
  CHECK(view(2, {1, 2, 1}, {77, 1, -0}) == Elements{2, 3});
  CHECK(view(6, {0, 4}, {4, 1}).empty());
  CHECK(opened_torch(file_with_view(0, {2, 3}, {3, 1})).at("w").contiguous());
  CHECK_FALSE(opened_torch(file_with_view(0, {3, 2}, {1, 3})).at("w").contiguous());
}

TEST_CASE("every storage type has its dtype", "[formats]") {
  for (const auto& [type, dtype] :
       {std::pair{"DoubleStorage", DType::kF64}, std::pair{"HalfStorage", DType::kF16},
        std::pair{"BFloat16Storage", DType::kBF16}, std::pair{"LongStorage", DType::kI64},
        std::pair{"IntStorage", DType::kI32}, std::pair{"ShortStorage", DType::kI16},
        std::pair{"CharStorage", DType::kI8}, std::pair{"ByteStorage", DType::kU8},
        std::pair{"BoolStorage", DType::kBool}, std::pair{"ComplexFloatStorage", DType::kC64}}) {
    const Checkpoint checkpoint =
        opened_torch(file_with({pickle::storage(type, "0", 3), 0, {3}, {1}}));
    CHECK(checkpoint.at("w").dtype == dtype);
    CHECK(checkpoint.at("w").bytes() == 3 * bits_of(dtype) / 8);
  }
  CHECK_THAT(
      refusal_of_torch(file_with({pickle::storage("ComplexDoubleStorage", "0", 1), 0, {1}, {1}})),
      is_bad_input(kTorchFile, "tensor w", "ComplexDoubleStorage"));
}

TEST_CASE("numbers without a storage class have the dtype stored with them", "[formats]") {
  const auto file = [](const std::string& storage, std::string_view dtype) {
    return torch_archive(
               pickle::program(pickle::dict(
                   {pickle::text("w"), pickle::tensor_of_dtype({storage, 1, {2}, {1}}, dtype)})),
               {six_floats()})
        .bytes();
  };
  const std::string untyped = pickle::storage("UntypedStorage", "0", 24);
  for (const auto& [name, dtype] :
       {std::pair{"float8_e4m3fn", DType::kF8E4M3}, std::pair{"float8_e5m2", DType::kF8E5M2},
        std::pair{"float8_e8m0fnu", DType::kF8E8M0}, std::pair{"uint16", DType::kU16},
        std::pair{"uint32", DType::kU32}, std::pair{"uint64", DType::kU64}}) {
    const Checkpoint checkpoint = opened_torch(file(untyped, name));
    CHECK(checkpoint.at("w").dtype == dtype);
    const bool same =
        bytes_of(checkpoint, "w") == six_floats().substr(bits_of(dtype) / 8, bits_of(dtype) / 4);
    CHECK(same);
  }
  CHECK_THAT(refusal_of_torch(file(untyped, "float4_e2m1fn_x2")),
             is_bad_input(kTorchFile, "tensor w", "float4_e2m1fn_x2"));
  CHECK_THAT(refusal_of_torch(file(pickle::storage("UntypedStorage", "0", 16), "uint64")),
             is_bad_input(kTorchFile, "tensor w", "storage of 2"));
  CHECK_THAT(refusal_of_torch(file(pickle::storage("FloatStorage", "0", 6), "uint16")),
             is_bad_input(kTorchFile, "without a dtype"));
  CHECK_THAT(refusal_of_torch(file(untyped, "load")), is_bad_input(kTorchFile, "torch.load"));
  CHECK_THAT(refusal_of_torch(file(untyped, "FloatStorage")),
             is_bad_input(kTorchFile, "without a dtype"));
  // An untyped storage alone has no dtype.
  CHECK_THAT(refusal_of_torch(file_with({untyped, 0, {1}, {1}})),
             is_bad_input(kTorchFile, "tensor w", "UntypedStorage"));
}

TEST_CASE("views beyond their storage are refused", "[formats]") {
  CHECK_THAT(refusal_of_view(1, {2, 3}, {3, 1}),
             is_bad_input(kTorchFile, "tensor w", "storage of 6"));
  CHECK_THAT(refusal_of_view(7, {0}, {1}), is_bad_input(kTorchFile, "tensor w", "storage of 6"));
  CHECK_THAT(refusal_of_view(0, {7}, {1}), is_bad_input(kTorchFile, "tensor w", "storage of 6"));
  CHECK_THAT(refusal_of_view(0, {2, 3}, {4, 1}),
             is_bad_input(kTorchFile, "tensor w", "storage of 6"));
  CHECK_THAT(refusal_of_torch(file_with({pickle::storage("FloatStorage", "0", 7), 0, {1}, {1}})),
             is_bad_input(kTorchFile, "tensor w", "6 elements", "pickle says 7"));
  CHECK_THAT(refusal_of_torch(file_with({pickle::storage("FloatStorage", "0", 2), 0, {3}, {1}})),
             is_bad_input(kTorchFile, "tensor w", "storage of 2"));
}

TEST_CASE("views whose sizes overflow are refused", "[formats]") {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  CHECK_THAT(refusal_of_view(kMost, {1}, {1}), is_bad_input(kTorchFile, "tensor w"));
  CHECK_THAT(refusal_of_view(0, {kMost, kMost}, {1, 1}), is_bad_input(kTorchFile, "tensor w"));
  CHECK_THAT(refusal_of_view(0, {kMost, kMost, 0}, {1, 1, 1}),
             is_bad_input(kTorchFile, "tensor w"));
  CHECK_THAT(refusal_of_view(0, {3}, {kMost}), is_bad_input(kTorchFile, "tensor w"));
  CHECK_THAT(refusal_of_view(0, {3, 3}, {kMost, kMost}),
             is_bad_input(kTorchFile, "tensor w", "overflows"));
  CHECK_THAT(refusal_of_view(0, {std::int64_t{1} << 33}, {std::int64_t{1} << 33}),
             is_bad_input(kTorchFile, "tensor w", "overflows"));
  // Spans exactly 2^64 elements.
  CHECK_THAT(refusal_of_view(0, {2, 2, 2}, {kMost, kMost, 1}),
             is_bad_input(kTorchFile, "tensor w", "overflows"));
}

TEST_CASE("views that repeat elements are refused", "[formats]") {
  CHECK_THAT(refusal_of_view(0, {1000}, {0}), is_bad_input(kTorchFile, "tensor w", "repeat"));
  CHECK_THAT(refusal_of_view(0, {4, 3}, {1, 1}), is_bad_input(kTorchFile, "tensor w", "repeat"));
}

TEST_CASE("an archive without a byte order is little-endian", "[formats]") {
  const std::string storage = pickle::storage("FloatStorage", "0", 6);
  BuiltZip zip = torch_archive(
      pickle::program(pickle::dict({pickle::text("w"), pickle::tensor({storage, 1, {2}, {1}})})),
      {six_floats()});
  zip.entries.erase(zip.entries.begin() + 1);
  CHECK(values_of(opened_torch(zip.bytes()), "w") == std::vector<double>{1, 2});
}

TEST_CASE("an archive that lacks an entry or has two folders is refused", "[formats]") {
  const std::string pickle = pickle::program(pickle::dict(
      {pickle::text("w"), pickle::tensor({pickle::storage("FloatStorage", "0", 6), 0, {6}, {1}})}));
  CHECK_THAT(refusal_of_torch(torch_archive(pickle, {}).bytes()),
             is_bad_input(kTorchFile, "tensor w", "data/0"));
  BuiltZip zip = torch_archive(pickle, {six_floats()});
  zip.entries.front().name = "weights/other.pkl";
  CHECK_THAT(refusal_of_torch(zip.bytes()), is_bad_input(kTorchFile, "data.pkl"));
  zip.entries.front().name = "elsewhere/data.pkl";
  CHECK_THAT(refusal_of_torch(zip.bytes()),
             is_bad_input(kTorchFile, "outside the archive's folder"));
  zip.entries.front().name = "data.pkl";
  CHECK_THAT(refusal_of_torch(zip.bytes()), is_bad_input(kTorchFile, "data.pkl lies outside"));
  zip = torch_archive(pickle, {six_floats()});
  zip.entries[1].data = "big";
  CHECK_THAT(refusal_of_torch(zip.bytes()), is_bad_input(kTorchFile, "little-endian"));
  zip = torch_archive(pickle, {six_floats()});
  zip.entries[0].crc_error = 1;
  CHECK_THAT(refusal_of_torch(zip.bytes()), is_bad_input(kTorchFile, "data.pkl", "CRC"));
}

TEST_CASE("a torch file that calls a function is refused with the function's name", "[formats]") {
  const std::string pickle = pickle::program(
      pickle::call(pickle::global("os", "system"), pickle::tuple({pickle::text("true")})));
  CHECK_THAT(refusal_of_torch(torch_archive(pickle, {}).bytes()),
             is_bad_input(kTorchFile, "os.system", "not among those allowed"));
}

TEST_CASE("a torch file truncated at any byte is refused", "[formats]") {
  const std::string bytes = file_with_view(0, {2, 3}, {3, 1});
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    CAPTURE(size);
    CHECK_THAT(refusal_of_torch(bytes.substr(0, size)), is_bad_input(kTorchFile));
  }
}

TEST_CASE("a file from torch equals its safetensors copy", "[formats]") {
  const auto* const saved_as = GENERATE("llama_torch", "llama_torch_legacy");
  CAPTURE(saved_as);
  const Checkpoint torch = open_checkpoint(golden(saved_as));
  const Checkpoint twin = open_checkpoint(golden("llama_mha"));
  CHECK(torch.metadata().empty());
  CHECK(torch.tensors().size() == twin.tensors().size() + 1);
  for (const TensorInfo& tensor : twin.tensors()) {
    CAPTURE(tensor.name);
    const bool same = bytes_of(torch, tensor.name) == bytes_of(twin, tensor.name);
    CHECK(same);
    CHECK(torch.at(tensor.name).shape == tensor.shape);
  }
  CHECK_FALSE(torch.at("model.layers.0.self_attn.k_proj.weight").contiguous());
  CHECK(torch.at("lm_head.weight").begin == torch.at("model.embed_tokens.weight").begin);
}

TEST_CASE("tied weights that share storage count once as parameters", "[formats]") {
  const auto parameters = [](const fs::path& path) {
    return summarize_model(path, open_checkpoint(path)).parameters;
  };
  CHECK(parameters(golden("llama_torch")) == parameters(golden("llama_mha")));
}

TEST_CASE("convert gives the same result for a torch file and its safetensors copy", "[formats]") {
  const TemporaryDirectory directory;
  for (const char* name : {"llama_torch", "llama_mha"}) {
    const ProgramResult result = run_program(
        {"convert", golden(name).string(), (directory / name).string(), "--kv-heads", "2"});
    CAPTURE(result.err);
    REQUIRE(result.exit_code == 0);
  }
  const Checkpoint torch = open_checkpoint(directory / "llama_torch" / "model.safetensors");
  const Checkpoint twin = open_checkpoint(directory / "llama_mha");
  for (const TensorInfo& tensor : twin.tensors()) {
    CAPTURE(tensor.name);
    const bool same = bytes_of(torch, tensor.name) == bytes_of(twin, tensor.name);
    CHECK(same);
  }
  // Tied weights are written twice.
  const bool tied =
      bytes_of(torch, "lm_head.weight") == bytes_of(twin, "model.embed_tokens.weight");
  CHECK(tied);
  CHECK_FALSE(fs::exists(directory / "llama_torch" / "pytorch_model.bin"));
}

TEST_CASE("safetensors take precedence over torch files and single files over an index",
          "[formats]") {
  const TemporaryDirectory directory;
  const std::string index = R"({"weight_map":{"w":"part.bin"}})";
  put_file(directory / "part.bin", file_with_view(0, {1}, {1}));
  put_file(directory / "pytorch_model.bin.index.json", index);
  CHECK(open_checkpoint(directory.path()).at("w").shape == Shape{1});
  put_file(directory / "pytorch_model.bin", file_with_view(0, {2}, {1}));
  CHECK(open_checkpoint(directory.path()).at("w").shape == Shape{2});
  const auto put_safetensors = [&](const char* name, Shape shape) {
    put_checkpoint(directory / name,
                   std::vector{varied_tensor("w", DType::kF32, std::move(shape))});
  };
  put_safetensors("part.safetensors", {3});
  put_file(directory / "model.safetensors.index.json",
           R"({"weight_map":{"w":"part.safetensors"}})");
  CHECK(open_checkpoint(directory.path()).at("w").shape == Shape{3});
  put_safetensors("model.safetensors", {4});
  CHECK(open_checkpoint(directory.path()).at("w").shape == Shape{4});
  put_file(directory / "pytorch_model.bin.index.json", R"({"weight_map":{"v":"part.bin"}})");
  CHECK_THAT(refusal_of([&] { open_checkpoint(directory / "pytorch_model.bin.index.json"); }),
             is_bad_input("pytorch_model.bin.index.json", "tensor w", "part.bin"));
}

}  // namespace
}  // namespace regroup
