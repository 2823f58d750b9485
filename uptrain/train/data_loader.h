// Batches of windows of tokens, over whole files or within documents.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "formats/vocabulary/token_file.h"

namespace regroup {

// Which windows of a text are used if it has more of them than are needed.

/// `count` different numbers below `all`, in an order of which each beginning is spread over the
/// whole range: multiples of the golden section of `all`, modulo `all` (the additive recurrence of
/// Kronecker). Requires 0 <= count <= all.
std::vector<std::int64_t> spread_windows(std::int64_t all, std::int64_t count);

/// Called with what is done and the total, unless it is empty.
using CountProgress = std::function<void(std::int64_t done, std::int64_t total)>;

/// int64 [rows, width] in host memory; `fill` writes each row.
at::Tensor token_rows(
    std::int64_t rows, std::int64_t width,
    const std::function<void(std::int64_t row, std::span<std::int64_t> ids)>& fill);

// Windows that never cross a document boundary: no text of another document is read or predicted.

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

// Which tokens a training step sees: a pure function of a seed and a running sample number.

/// Draws training windows of T+1 tokens (T inputs, each with the token that follows it) from token
/// files. Each epoch visits every window once, in a new order. Where a file's length leaves room,
/// windows start at a different offset in each epoch.
///
/// With weights each file has its own epochs. Its share of the samples is its share of the weights:
/// it holds exactly, rounded to whole samples, in every kMixedSamples samples, whose order is
/// shuffled.
///
/// If documents are kept apart, the windows are those of DocumentWindows, at the same offsets in
/// every epoch.
class DataLoader {
 public:
  static constexpr std::int64_t kMixedSamples = 1 << 16;

  /// `weights`: one per file, or none. Throws kBadInput naming a file that is shorter than one
  /// window or holds a token that is not below `vocab_size`; kUsage for weights that are not
  /// positive, too small relative to the others, or not as many as files; and whatever
  /// DocumentWindows throws. `name`: what messages call a file, unless by its path.
  DataLoader(const std::vector<std::filesystem::path>& paths, std::int64_t sequence_length,
             std::int64_t vocab_size, std::uint64_t seed, const std::vector<double>& weights = {},
             const DocumentSettings& documents = {}, const std::string& name = {});

  /// Samples first … first+count-1: int64 [count, T+1] in host memory; kNoToken after the end of a
  /// document.
  at::Tensor batch(std::int64_t first, std::int64_t count) const;

  /// Number of predicted tokens in these samples: count·T, fewer if documents are kept apart.
  std::int64_t predictions(std::int64_t first, std::int64_t count) const;

  /// The fraction of all window positions that are predicted: 1, less if documents are kept apart.
  double filled() const;

  /// Windows in one epoch.
  std::int64_t windows() const { return windows_; }

  /// Tokens in all files.
  std::int64_t tokens() const;

  /// The digest_of() each file.
  std::vector<std::string> digests() const;

  /// The same of each file's windows, which depend on where its documents end; empty unless they
  /// are kept apart.
  std::vector<std::string> document_digests() const;

  /// The fraction of all samples drawn from file number `file`, 0 to 1.
  double share_of(std::size_t file) const;

  /// The number of passes over file number `file` in that many samples.
  double passes_through(std::size_t file, std::int64_t samples) const;

  std::int64_t sequence_length() const { return sequence_length_; }
  std::span<const TokenFile> files() const { return files_; }

 private:
  // A window of a file, in one of its epochs.
  struct Place {
    std::size_t file = 0;
    std::int64_t window = 0;
    std::uint64_t epoch = 0;
  };

  Place place_of(std::int64_t sample) const;
  Place mixed_place_of(std::int64_t sample) const;
  void read(const Place& place, std::span<std::int64_t> ids) const;
  void set_weights(const std::vector<double>& weights);
  std::int64_t windows_of(std::size_t file) const;

  std::vector<TokenFile> files_;
  std::vector<DocumentWindows> documents_;  // of each file where they are kept apart, else empty
  std::int64_t sequence_length_;
  std::uint64_t seed_;
  std::int64_t windows_ = 0;
  std::vector<std::int64_t> mixed_;  // samples of each file among kMixedSamples; empty: no weights
};

/// Identifies the tokens of a file, whatever its format. Reads the whole file.
std::string digest_of(const TokenFile& file);

}  // namespace regroup
