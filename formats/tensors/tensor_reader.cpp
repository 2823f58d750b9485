#include "formats/tensors/tensor_reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "formats/base/error.h"

namespace regroup {

TensorReader::TensorReader(const Checkpoint& checkpoint, const TensorInfo& tensor)
    : checkpoint_(checkpoint), tensor_(tensor), bytes_(tensor.bytes()), ranges_(ranges_of(tensor)) {
  if (ranges_.empty()) {
    whole_.resize(bytes_);
    checkpoint_.read(tensor_, whole_);
  }
}

void TensorReader::start() const {
  for (const ByteRange& range : ranges_) {
    checkpoint_.files()[range.file].start_reading(range.begin, range.end - range.begin);
  }
}

void TensorReader::read_at(std::uint64_t offset, std::span<std::byte> out) const {
  if (ranges_.empty()) {
    std::memcpy(out.data(), whole_.data() + offset, out.size());
    return;
  }
  std::uint64_t begin = 0;  // of the range, in the tensor
  for (const ByteRange& range : ranges_) {
    const std::uint64_t size = range.end - range.begin;
    if (!out.empty() && offset < begin + size) {
      const std::uint64_t skip = offset - begin;
      const auto part = out.first(std::min<std::uint64_t>(out.size(), size - skip));
      checkpoint_.files()[range.file].read_at(range.begin + skip, part);
      offset += part.size();
      out = out.subspan(part.size());
    }
    begin += size;
  }
}

void for_each_part(const TensorReader& reader,
                   const std::function<void(std::uint64_t, std::span<const std::byte>)>& visit) {
  const std::size_t at_once = bytes_of_elements(reader.tensor().dtype, kElementsAtATime);
  std::vector<std::byte> bytes(std::min<std::uint64_t>(at_once, reader.bytes()));
  std::uint64_t first = 0;
  for (std::uint64_t at = 0; at < reader.bytes(); at += bytes.size()) {
    const auto part =
        std::span(bytes).first(std::min<std::uint64_t>(bytes.size(), reader.bytes() - at));
    reader.read_at(at, part);
    visit(first, part);
    first += kElementsAtATime;
  }
}

bool same_contents(const Checkpoint& checkpoint, const TensorInfo& a, const TensorInfo& b) {
  if (a.dtype != b.dtype || a.shape != b.shape) {
    return false;
  }
  if (a.contiguous() && b.contiguous() && a.file == b.file && a.begin == b.begin) {
    return true;
  }
  const TensorReader one(checkpoint, a), other(checkpoint, b);
  const std::size_t at_once = bytes_of_elements(a.dtype, kElementsAtATime);
  std::vector<std::byte> some, same;
  for (std::uint64_t at = 0; at < one.bytes(); at += at_once) {
    some.resize(std::min<std::uint64_t>(at_once, one.bytes() - at));
    same.resize(some.size());
    one.read_at(at, some);
    other.read_at(at, same);
    if (some != same) {
      return false;
    }
  }
  return true;
}

namespace {

// A float of few bits: sign, exponent, mantissa; with subnormals, as in IEEE 754.
struct SmallFloat {
  int exponent_bits;
  int mantissa_bits;
  int bias;

  double value(unsigned bits) const {
    const unsigned mantissa = bits & ((1U << mantissa_bits) - 1);
    const int exponent = static_cast<int>(bits >> mantissa_bits & ((1U << exponent_bits) - 1));
    const bool negative = (bits >> (mantissa_bits + exponent_bits) & 1U) != 0;
    const double fraction = mantissa + (exponent > 0 ? 1U << mantissa_bits : 0U);
    const double magnitude = std::ldexp(fraction, std::max(exponent, 1) - bias - mantissa_bits);
    return negative ? -magnitude : magnitude;
  }
};

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// https://arxiv.org/abs/2209.05433 (E4M3 has no infinities, E5M2 has IEEE's).
double from_e4m3(unsigned bits) {
  return (bits & 0x7fU) == 0x7fU ? kNan : SmallFloat{4, 3, 7}.value(bits);
}

double from_e5m2(unsigned bits) {
  if ((bits & 0x7cU) == 0x7cU) {
    const double infinity = std::numeric_limits<double>::infinity();
    return (bits & 3U) != 0 ? kNan : (bits & 0x80U) != 0 ? -infinity : infinity;
  }
  return SmallFloat{5, 2, 15}.value(bits);
}

// The "FNUZ" variants: the bias is larger by one, and the code of -0 is the only NaN.
double from_e4m3_fnuz(unsigned bits) {
  return bits == 0x80U ? kNan : SmallFloat{4, 3, 8}.value(bits);
}

double from_e5m2_fnuz(unsigned bits) {
  return bits == 0x80U ? kNan : SmallFloat{5, 2, 16}.value(bits);
}

// A power of two: a scale of OCP's microscaling formats.
double from_e8m0(unsigned bits) {
  return bits == 0xffU ? kNan : std::ldexp(1.0, static_cast<int>(bits) - 127);
}

// Elements of one byte, of which `kValue` decodes each.
template <double (*kValue)(unsigned)>
void read_small_floats(std::span<const std::byte> bytes, std::span<double> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = kValue(std::to_integer<unsigned>(bytes[i]));
  }
}

template <typename T>
void read_whole_numbers(std::span<const std::byte> bytes, std::span<double> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    T number{};
    std::memcpy(&number, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = static_cast<double>(number);
  }
}

// E2M1: a byte holds two elements, the first in its low half.
void read_f4(std::span<const std::byte> bytes, std::span<double> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto pair = std::to_integer<unsigned>(bytes[i / 2]);
    values[i] = SmallFloat{2, 1, 1}.value(i % 2 == 0 ? pair & 0xfU : pair >> 4);
  }
}

using ReadNumbers = void (*)(std::span<const std::byte>, std::span<double>);

// Null for types that decode_numbers() reads, and for those that nothing reads.
ReadNumbers reader_of(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8: return read_whole_numbers<std::uint8_t>;
    case DType::kI8: return read_whole_numbers<std::int8_t>;
    case DType::kI16: return read_whole_numbers<std::int16_t>;
    case DType::kU16: return read_whole_numbers<std::uint16_t>;
    case DType::kI32: return read_whole_numbers<std::int32_t>;
    case DType::kU32: return read_whole_numbers<std::uint32_t>;
    case DType::kI64: return read_whole_numbers<std::int64_t>;
    case DType::kU64: return read_whole_numbers<std::uint64_t>;
    case DType::kF4: return read_f4;
    case DType::kF8E4M3: return read_small_floats<from_e4m3>;
    case DType::kF8E5M2: return read_small_floats<from_e5m2>;
    case DType::kF8E4M3Fnuz: return read_small_floats<from_e4m3_fnuz>;
    case DType::kF8E5M2Fnuz: return read_small_floats<from_e5m2_fnuz>;
    case DType::kF8E8M0: return read_small_floats<from_e8m0>;
    default: return nullptr;
  }
}

}  // namespace

bool can_read_values(DType dtype) { return can_decode(dtype) || reader_of(dtype) != nullptr; }

void read_values(DType dtype, std::span<const std::byte> bytes, std::span<double> values) {
  if (!can_read_values(dtype)) {
    throw_usage("elements of {} cannot be read as numbers", name_of(dtype));
  }
  if (bytes.size() != bytes_of_elements(dtype, values.size())) {
    throw_usage("{} bytes do not hold {} elements of {}", bytes.size(), values.size(),
                name_of(dtype));
  }
  if (const ReadNumbers read = reader_of(dtype)) {
    read(bytes, values);
  } else {
    decode_numbers(dtype, bytes, values);
  }
}

}  // namespace regroup
