#include "formats/dtype/numbers.h"

#include <limits>

#include "formats/dtype/block_quantisation.h"

namespace regroup {

bool can_decode(DType dtype) { return is_pooling_dtype(dtype) || can_dequantise(dtype); }

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

void decode_numbers(DType dtype, std::span<const std::byte> bytes, std::span<double> values) {
  if (is_block_type(dtype)) {
    dequantise_to_double(dtype, bytes, values);
  } else {
    decode_to_double(dtype, bytes, values);
  }
}

void encode_numbers(DType dtype, std::span<const double> values, std::span<std::byte> bytes) {
  if (dtype == DType::kQ8_0) {
    quantise_to_q8_0(values, bytes);
  } else {
    encode_from_double(dtype, values, bytes);
  }
}

}  // namespace regroup
