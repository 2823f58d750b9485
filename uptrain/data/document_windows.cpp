#include "uptrain/data/document_windows.h"

#include <algorithm>

#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {

DocumentWindows::DocumentWindows(const TokenFile& file, std::int64_t sequence_length,
                                 const std::optional<DocumentMark>& mark) {
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;
  constexpr std::int64_t kLongestSequence = (1 << 24) - 2;
  if (sequence_length > kLongestSequence || file.size() > kMostTokens) {
    throw_usage(
        "{}: sequences of {} tokens out of {}: allowed are {} out of {} to keep documents "
        "apart",
        printable(file.path().string(), 0), sequence_length, file.size(), kLongestSequence,
        kMostTokens);
  }
  file.for_each_document(mark, [&](std::int64_t begin, std::int64_t end) {
    for (; end - begin > 1; begin += sequence_length) {
      const std::int64_t length = std::min(sequence_length + 1, end - begin);
      windows_.push_back({static_cast<std::uint64_t>(begin) & (kMostTokens - 1),
                          static_cast<std::uint64_t>(length) & (kLongestSequence + 1)});
      predictions_ += length - 1;
    }
  });
  if (windows_.empty()) {
    throw_bad_input("{}: none of its documents has two tokens", printable(file.path().string(), 0));
  }
}

void DocumentWindows::read(const TokenFile& file, std::int64_t window,
                           std::span<std::int64_t> ids) const {
  const auto length = static_cast<std::size_t>(windows_[window].length);
  file.read(static_cast<std::int64_t>(windows_[window].begin), ids.first(length));
  std::fill(ids.begin() + static_cast<std::ptrdiff_t>(length), ids.end(), kNoToken);
}

}  // namespace regroup
