// Windows that never cross a document boundary: no text of another document is read or predicted.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "formats/token_files/token_file.h"

namespace regroup {

/// How windows treat the documents of a file.
struct DocumentSettings {
  /// Each window holds text of one document. Otherwise windows are consecutive and ignore
  /// boundaries.
  bool separate = false;
  std::optional<DocumentMark> mark = std::nullopt;  ///< for files without an index of documents
};

/// Fills a window after the end of its document; never a target or an input that matters.
inline constexpr std::int64_t kNoToken = -1;

/// Splits a document of L tokens into ⌈(L-1)/T⌉ windows of T+1 tokens that start T apart; the last
/// one may be shorter. So each token except the first is predicted once. Attention is causal, so no
/// token sees the padding.
class DocumentWindows {
 public:
  /// Reads the file's documents once and keeps 8 bytes per window. Throws what
  /// TokenFile::for_each_document() throws, kBadInput if no document has two tokens, and kUsage for
  /// a T above 2^24 - 2.
  DocumentWindows(const TokenFile& file, std::int64_t sequence_length,
                  const std::optional<DocumentMark>& mark);

  std::int64_t size() const { return std::ssize(windows_); }

  /// Predicted tokens of window number `window`, 1 to T.
  std::int64_t predictions(std::int64_t window) const { return windows_[window].length - 1; }

  /// Predicted tokens of all windows.
  std::int64_t predictions() const { return predictions_; }

  /// Fills `ids`, T+1 of them: the window's tokens, then kNoToken.
  void read(const TokenFile& file, std::int64_t window, std::span<std::int64_t> ids) const;

 private:
  struct Window {
    std::uint64_t begin : 40;
    std::uint64_t length : 24;
  };

  std::vector<Window> windows_;
  std::int64_t predictions_ = 0;
};

}  // namespace regroup
