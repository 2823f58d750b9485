// ggml's blocks, compared with llama.cpp's Python package (tests/golden/gguf).
#include <array>
#include <limits>

#include <catch2/catch_test_macros.hpp>

#include "formats/model/model_directory.h"
#include "formats/tensors/dtype.h"
#include "tests/checkpoint_builder.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"

namespace regroup {
namespace {

std::vector<double> dequantised(DType dtype, const std::string& blocks) {
  std::vector<double> values(blocks.size() / block_bytes(dtype) * block_elements(dtype));
  decode_numbers(dtype, as_span(blocks), values);
  return values;
}

std::string q8_0_of(const std::vector<double>& values) {
  std::string blocks(values.size() / 32 * 34, '\0');
  encode_numbers(DType::kQ8_0, values, std::as_writable_bytes(std::span(blocks)));
  return blocks;
}

constexpr std::array kReadable{DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
                               DType::kQ2K,  DType::kQ3K,  DType::kQ4K,  DType::kQ5K,  DType::kQ6K};

// ggml's block types of which only the size is known: elements and bytes of a block, as in
// GGML_QUANT_SIZES of llama.cpp's Python package.
struct SizeOnly {
  DType dtype;
  std::uint64_t elements, bytes;
};
constexpr std::array<SizeOnly, 14> kSizesOnly{{{DType::kIq2Xxs, 256, 66},
                                               {DType::kIq2Xs, 256, 74},
                                               {DType::kIq3Xxs, 256, 98},
                                               {DType::kIq1S, 256, 50},
                                               {DType::kIq4Nl, 32, 18},
                                               {DType::kIq3S, 256, 110},
                                               {DType::kIq2S, 256, 82},
                                               {DType::kIq4Xs, 256, 136},
                                               {DType::kIq1M, 256, 56},
                                               {DType::kTq1_0, 256, 54},
                                               {DType::kTq2_0, 256, 66},
                                               {DType::kNvfp4, 64, 36},
                                               {DType::kQ1_0, 128, 18},
                                               {DType::kQ2_0, 64, 18}}};

void check_blocks(const char* file, std::span<const DType> types) {
  const Checkpoint golden_blocks = open_checkpoint(golden(file));
  CHECK(golden_blocks.tensors().size() >= 2 * types.size());
  for (const DType dtype : types) {
    const std::string name(name_of(dtype));
    CAPTURE(name);
    CHECK(can_decode(dtype));
    const std::string blocks = bytes_of(golden_blocks, name + ".blocks");
    const std::vector<double> expected = values_of(golden_blocks, name + ".values");
    CHECK(dequantised(dtype, blocks) == expected);
    for (std::size_t i = 0; i < block_bytes(dtype); ++i) {  // every byte matters
      std::string changed = blocks;
      changed[i] = static_cast<char>(changed[i] ^ 0x11);
      CHECK(dequantised(dtype, changed) != expected);
    }
  }
}

TEST_CASE("blocks of every type are read bit for bit as llama.cpp reads them", "[formats]") {
  check_blocks("gguf/blocks.safetensors", kReadable);
  check_blocks("gguf/more_blocks.safetensors", std::array{DType::kMxfp4});
}

TEST_CASE("block types whose numbers are not read have llama.cpp's block sizes", "[formats]") {
  for (const SizeOnly& type : kSizesOnly) {
    CAPTURE(name_of(type.dtype));
    CHECK_FALSE(can_decode(type.dtype));
    CHECK(block_elements(type.dtype) == type.elements);
    CHECK(block_bytes(type.dtype) == type.bytes);
    std::vector<double> values(type.elements);
    const std::string block(type.bytes, '\0');
    CHECK_THAT(refusal_of([&] { decode_numbers(type.dtype, as_span(block), values); }),
               is_wrong_usage(name_of(type.dtype)));
  }
}

TEST_CASE("an MXFP4 block equals the hand-computed one", "[formats]") {
  std::string microscaled(17, '\0');
  microscaled.replace(0, 2, "\x80\x9f", 2);  // scale 2; the first byte has -6 and -0.5
  const std::vector<double> values = dequantised(DType::kMxfp4, microscaled);
  CHECK(values[0] == -12.0);
  CHECK(values[16] == -1.0);
  CHECK(values[1] == 0.0);
}

TEST_CASE("Q8_0 is written bit for bit as llama.cpp writes it", "[formats]") {
  const Checkpoint golden_blocks = open_checkpoint(golden("gguf/blocks.safetensors"));
  CHECK((q8_0_of(values_of(golden_blocks, "quantised.values")) ==
         bytes_of(golden_blocks, "quantised.blocks")));
}

TEST_CASE("a Q8_0 block equals the hand-computed one", "[formats]") {
  std::vector<double> values(32, 0.0);
  values[0] = 127.0;  // the scale becomes 1
  values[1] = -0.5;   // halves round away from zero
  values[2] = 2.5;
  const std::string block = q8_0_of(values);
  CHECK(block.substr(0, 5) == std::string("\x00\x3c\x7f\xff\x03", 5));
  CHECK(dequantised(DType::kQ8_0, block)[2] == 3.0);
}

TEST_CASE("a Q4_0 block equals the hand-computed one", "[formats]") {
  std::string block(18, '\x88');           // every quant is 8, which decodes to 0
  block.replace(0, 3, "\x00\xc0\x1f", 3);  // scale -2; the first byte has the quants 15 and 1
  const std::vector<double> values = dequantised(DType::kQ4_0, block);
  CHECK(values[0] == -14.0);
  CHECK(values[1] == 0.0);
  CHECK(values[16] == 14.0);
}

TEST_CASE("unsupported types and lengths are refused", "[formats]") {
  std::vector<double> values(32);
  std::string block(34, '\0');
  const auto bytes = std::as_writable_bytes(std::span(block));
  CHECK_THAT(refusal_of([&] { decode_numbers(DType::kQ4_0, bytes, values); }),
             is_wrong_usage("34 bytes", "32 elements", "Q4_0"));
  CHECK_THAT(refusal_of([&] { encode_numbers(DType::kQ8_0, std::span(values).first(31), bytes); }),
             is_wrong_usage("31 elements"));
  values[3] = std::numeric_limits<double>::quiet_NaN();
  CHECK_THAT(refusal_of([&] { encode_numbers(DType::kQ8_0, values, bytes); }),
             is_bad_input("nan", "Q8_0"));
  values[3] = 1e7;
  CHECK_THAT(refusal_of([&] { encode_numbers(DType::kQ8_0, values, bytes); }),
             is_bad_input("10000000", "too large"));
}

TEST_CASE("block types have a size per block and rows of whole blocks", "[formats]") {
  CHECK(block_elements(DType::kQ6K) == 256);
  CHECK(block_bytes(DType::kQ6K) == 210);
  CHECK(block_elements(DType::kBF16) == 1);
  CHECK(block_bytes(DType::kBF16) == 2);
  CHECK(block_elements(DType::kF6E2M3) == 4);
  CHECK(block_bytes(DType::kF6E2M3) == 3);
  CHECK(tensor_bytes(DType::kQ8_0, {3, 64}) == 3 * 2 * 34);
  CHECK_FALSE(dtype_from_name("Q8_0"));  // safetensors has no such dtype
  CHECK_THAT(refusal_of([] { bits_of(DType::kQ8_0); }), is_wrong_usage("Q8_0"));
  CHECK_THAT(refusal_of([] { tensor_bytes(DType::kQ8_0, {64, 3}); }),
             is_bad_input("rows of 3", "Q8_0", "32"));
  CHECK_THAT(refusal_of([] { tensor_bytes(DType::kQ8_0, {}); }), is_bad_input("rows of 1"));
}

}  // namespace
}  // namespace regroup
