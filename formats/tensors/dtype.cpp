#include "formats/tensors/dtype.h"

#include <algorithm>
#include <array>
#include <limits>

#include "formats/base/error.h"

namespace regroup {

namespace {

struct DTypeRow {
  std::string_view name;
  std::uint64_t elements;  // of a block
  std::uint64_t bytes;     // of a block
};

// In the order of the enumeration.
constexpr std::array<DTypeRow, 47> kRows{{
    {"BOOL", 1, 1},       {"F4", 2, 1},          {"F6_E2M3", 4, 3},     {"F6_E3M2", 4, 3},
    {"U8", 1, 1},         {"I8", 1, 1},          {"F8_E5M2", 1, 1},     {"F8_E4M3", 1, 1},
    {"F8_E8M0", 1, 1},    {"F8_E4M3FNUZ", 1, 1}, {"F8_E5M2FNUZ", 1, 1}, {"I16", 1, 2},
    {"U16", 1, 2},        {"F16", 1, 2},         {"BF16", 1, 2},        {"I32", 1, 4},
    {"U32", 1, 4},        {"F32", 1, 4},         {"C64", 1, 8},         {"F64", 1, 8},
    {"I64", 1, 8},        {"U64", 1, 8},         {"Q4_0", 32, 18},      {"Q4_1", 32, 20},
    {"Q5_0", 32, 22},     {"Q5_1", 32, 24},      {"Q8_0", 32, 34},      {"Q2_K", 256, 84},
    {"Q3_K", 256, 110},   {"Q4_K", 256, 144},    {"Q5_K", 256, 176},    {"Q6_K", 256, 210},
    {"IQ2_XXS", 256, 66}, {"IQ2_XS", 256, 74},   {"IQ3_XXS", 256, 98},  {"IQ1_S", 256, 50},
    {"IQ4_NL", 32, 18},   {"IQ3_S", 256, 110},   {"IQ2_S", 256, 82},    {"IQ4_XS", 256, 136},
    {"IQ1_M", 256, 56},   {"TQ1_0", 256, 54},    {"TQ2_0", 256, 66},    {"MXFP4", 32, 17},
    {"NVFP4", 64, 36},    {"Q1_0", 128, 18},     {"Q2_0", 64, 18},
}};

constexpr auto kFirstBlockType = static_cast<std::size_t>(DType::kQ4_0);

const DTypeRow& row_of(DType dtype) { return kRows[static_cast<std::size_t>(dtype)]; }

}  // namespace

bool is_block_type(DType dtype) { return static_cast<std::size_t>(dtype) >= kFirstBlockType; }

std::uint64_t block_elements(DType dtype) { return row_of(dtype).elements; }

std::uint64_t block_bytes(DType dtype) { return row_of(dtype).bytes; }

std::uint64_t bits_of(DType dtype) {
  if (is_block_type(dtype)) {
    throw_usage("elements of {} have no size in bits: they are stored in blocks", name_of(dtype));
  }
  return row_of(dtype).bytes * 8 / row_of(dtype).elements;
}

std::string_view name_of(DType dtype) { return row_of(dtype).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  const auto end = kRows.begin() + kFirstBlockType;
  const auto* const row = std::ranges::find(kRows.begin(), end, name, &DTypeRow::name);
  return row == end ? std::nullopt : std::optional(static_cast<DType>(row - kRows.begin()));
}

bool is_pooling_dtype(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 ||
         dtype == DType::kF64;
}

bool can_encode(DType dtype) { return is_pooling_dtype(dtype) || dtype == DType::kQ8_0; }

double largest_number(DType dtype) {
  switch (dtype) {
    case DType::kF16: return 65519.996;  // larger numbers round to infinity
    case DType::kBF16: return 0x1.feffffp127;
    case DType::kF32: return 0x1.fffffefffffffp127;
    case DType::kQ8_0: return 8321039.5;  // 127 times the largest scale in half precision
    default: return std::numeric_limits<double>::max();
  }
}

std::size_t bytes_of_elements(DType dtype, std::size_t elements) {
  return elements / block_elements(dtype) * block_bytes(dtype);
}

}  // namespace regroup
