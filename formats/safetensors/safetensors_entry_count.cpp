#include "formats/safetensors/safetensors_entry_count.h"

#include <algorithm>
#include <span>
#include <string>

#include "formats/base/error.h"

namespace regroup {
namespace {

// The length of {"dtype":"U8","shape":[],"data_offsets":[0,0]} without a name.
constexpr std::uint64_t kSmallestEntry = 46;

// Counts the objects in a JSON text that is read piece by piece.
struct ObjectCount {
  std::uint64_t objects = 0;
  bool in_string = false;
  bool escaped = false;
};

// Without branches, because the processor would mispredict many of them in a header.
ObjectCount after(ObjectCount count, std::string_view piece) {
  for (const char byte : piece) {
    const bool quote = byte == '"' && !count.escaped;
    count.escaped = byte == '\\' && !count.escaped;
    count.in_string ^= quote;
    count.objects += byte == '{' && !count.in_string ? 1U : 0U;
  }
  return count;
}

}  // namespace

void check_entry_count(const File& file, std::uint64_t begin, std::uint64_t length,
                       std::string_view where) {
  constexpr std::uint64_t kPiece = 1U << 18;
  constexpr std::uint64_t kOthers = 2;  // the header itself, and __metadata__
  if (length < kMaxSafetensorsTensors * kSmallestEntry) {
    return;
  }
  ObjectCount count;
  std::string piece(kPiece, '\0');
  for (std::uint64_t at = 0; at < length; at += piece.size()) {
    piece.resize(std::min(kPiece, length - at));
    file.read_at(begin + at, std::as_writable_bytes(std::span(piece)));
    count = after(count, piece);
    if (count.objects > kMaxSafetensorsTensors + kOthers) {
      throw_bad_input("{}: more than {} tensors", where, kMaxSafetensorsTensors);
    }
  }
}

}  // namespace regroup
