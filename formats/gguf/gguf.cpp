#include "formats/gguf/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/gguf/gguf_header.h"

namespace regroup {
namespace {

struct TensorTypeRow {
  std::uint32_t type;
  DType dtype;
};

// Q8_1 (9) and Q8_K (15) are intermediate results of matrix products and do not occur in files.
constexpr std::array<TensorTypeRow, 33> kTensorTypes{
    {{0, DType::kF32},     {1, DType::kF16},    {2, DType::kQ4_0},    {3, DType::kQ4_1},
     {6, DType::kQ5_0},    {7, DType::kQ5_1},   {8, DType::kQ8_0},    {10, DType::kQ2K},
     {11, DType::kQ3K},    {12, DType::kQ4K},   {13, DType::kQ5K},    {14, DType::kQ6K},
     {16, DType::kIq2Xxs}, {17, DType::kIq2Xs}, {18, DType::kIq3Xxs}, {19, DType::kIq1S},
     {20, DType::kIq4Nl},  {21, DType::kIq3S},  {22, DType::kIq2S},   {23, DType::kIq4Xs},
     {24, DType::kI8},     {25, DType::kI16},   {26, DType::kI32},    {27, DType::kI64},
     {28, DType::kF64},    {29, DType::kIq1M},  {30, DType::kBF16},   {34, DType::kTq1_0},
     {35, DType::kTq2_0},  {39, DType::kMxfp4}, {40, DType::kNvfp4},  {41, DType::kQ1_0},
     {42, DType::kQ2_0}}};

std::map<std::string, std::string> recorded_facts(const GgufMetadata& metadata) {
  std::map<std::string, std::string> facts;
  for (const GgufMetadata::Entry& entry : metadata.entries()) {
    if (entry.key.starts_with("regroup.") && entry.type == GgufType::kString) {
      facts.emplace(entry.key, metadata.text(entry.key).value());
    }
  }
  return facts;
}

}  // namespace

std::optional<DType> dtype_from_ggml(std::uint32_t type) {
  const auto row = std::find_if(kTensorTypes.begin(), kTensorTypes.end(),
                                [&](const TensorTypeRow& known) { return known.type == type; });
  return row == kTensorTypes.end() ? std::nullopt : std::optional(row->dtype);
}

std::optional<std::uint32_t> ggml_type_of(DType dtype) {
  const auto row = std::find_if(kTensorTypes.begin(), kTensorTypes.end(),
                                [&](const TensorTypeRow& known) { return known.dtype == dtype; });
  return row == kTensorTypes.end() ? std::nullopt : std::optional(row->type);
}

std::uint64_t gguf_alignment(const GgufMetadata& metadata) {
  const GgufMetadata::Entry* entry = metadata.find(kGgufAlignmentKey);
  if (entry == nullptr) {
    return kGgufDefaultAlignment;
  }
  const auto alignment = static_cast<std::uint64_t>(metadata.count(kGgufAlignmentKey).value());
  if (entry->type != GgufType::kU32 || !std::has_single_bit(alignment)) {
    throw_bad_input("{}: {} is {} ({}), a power of two (u32) is needed", metadata.where(),
                    kGgufAlignmentKey, alignment, name_of(entry->type));
  }
  return alignment;
}

std::optional<std::uint64_t> padded_to(std::uint64_t offset, std::uint64_t alignment) {
  const std::uint64_t over = offset % alignment;
  const std::uint64_t missing = over == 0 ? 0 : alignment - over;
  return offset > std::numeric_limits<std::uint64_t>::max() - missing
             ? std::nullopt
             : std::optional(offset + missing);
}

bool is_gguf_file(const std::filesystem::path& path) {
  std::error_code unusable;
  if (!std::filesystem::is_regular_file(path, unusable)) {
    return false;
  }
  const File file = File::open(path);
  std::string first(std::min<std::uint64_t>(file.size(), kGgufMagic.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(first)));
  return first == kGgufMagic;
}

GgufFile open_gguf(const std::filesystem::path& path) {
  Checkpoint::Part part{File::open(path), {}, {}};
  GgufHeader header = read_gguf_header(part.file, printable(path.string(), 0));
  part.tensors = std::move(header.tensors);
  part.metadata = recorded_facts(header.metadata);
  return {std::move(header.metadata), std::move(part)};
}

}  // namespace regroup
