// Windows that begin with a document and end with it: no text of another one is seen or asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "formats/token_files/token_file.h"

namespace regroup {

/// What windows make of a file's documents.
struct DocumentSettings {
  /// Each window holds text of one document. Else windows follow one another whatever they hold.
  bool separate = false;
  std::optional<DocumentMark> mark = std::nullopt;  ///< for files without an index of documents
};

/// What a window holds behind the end of its document; never an input that counts or a target.
inline constexpr std::int64_t kNoToken = -1;

/// A document of L tokens in windows of T+1 that begin T apart: ⌈(L-1)/T⌉ of them, the last one as
/// short as it comes, so that each of its tokens but the first is asked for once. Attention is
/// causal, so that nothing sees what fills up a window.
class DocumentWindows {
 public:
  /// Goes through the file's documents once; 8 bytes of memory for each window. Throws what
  /// TokenFile::for_each_document() throws, kBadInput where no document has two tokens, and kUsage
  /// for a T above 2^24 - 2.
  DocumentWindows(const TokenFile& file, std::int64_t sequence_length,
                  const std::optional<DocumentMark>& mark);

  std::int64_t size() const { return std::ssize(windows_); }

  /// Tokens that window number `window` asks for, 1 to T.
  std::int64_t predictions(std::int64_t window) const { return windows_[window].length - 1; }

  /// Those of all windows.
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
