// ggml's blocks, compared with llama.cpp's Python package (tests/golden/gguf).
#include "formats/dtype/block_quantisation.h"

#include <array>
#include <limits>

#include <catch2/catch_test_macros.hpp>

#include "formats/directory/model_directory.h"
#include "tests/checkpoint_builder.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"

namespace regroup {
namespace {

std::vector<double> dequantised(DType dtype, const std::string& blocks) {
  std::vector<double> values(blocks.size() / block_bytes(dtype) * block_elements(dtype));
  dequantise_to_double(dtype, as_span(blocks), values);
  return values;
}

std::string q8_0_of(const std::vector<double>& values) {
  std::string blocks(values.size() / 32 * 34, '\0');
  quantise_to_q8_0(values, std::as_writable_bytes(std::span(blocks)));
  return blocks;
}

constexpr std::array kReadable{DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
                               DType::kQ2K,  DType::kQ3K,  DType::kQ4K,  DType::kQ5K,  DType::kQ6K};

TEST_CASE("blocks of every type are read bit for bit as llama.cpp reads them", "[formats]") {
  const Checkpoint golden_blocks = open_checkpoint(golden("gguf/blocks.safetensors"));
  for (const DType dtype : kReadable) {
    const std::string name(name_of(dtype));
    CAPTURE(name);
    CHECK(can_dequantise(dtype));
    CHECK(dequantised(dtype, bytes_of(golden_blocks, name + ".blocks")) ==
          values_of(golden_blocks, name + ".values"));
  }
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
  CHECK_FALSE(can_dequantise(DType::kF32));
  CHECK_FALSE(can_dequantise(DType::kIq2S));
  CHECK_THAT(refusal_of([&] { dequantise_to_double(DType::kMxfp4, bytes, values); }),
             is_wrong_usage("MXFP4"));
  CHECK_THAT(refusal_of([&] { dequantise_to_double(DType::kQ4_0, bytes, values); }),
             is_wrong_usage("34 bytes", "32 elements", "Q4_0"));
  CHECK_THAT(refusal_of([&] { quantise_to_q8_0(std::span(values).first(31), bytes); }),
             is_wrong_usage("31 elements"));
  values[3] = std::numeric_limits<double>::quiet_NaN();
  CHECK_THAT(refusal_of([&] { quantise_to_q8_0(values, bytes); }), is_bad_input("nan", "Q8_0"));
  values[3] = 1e7;
  CHECK_THAT(refusal_of([&] { quantise_to_q8_0(values, bytes); }),
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
