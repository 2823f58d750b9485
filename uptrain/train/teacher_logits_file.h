// Stored logits of a teacher: the file, and its use.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "formats/base/json.h"
#include "formats/tensors/checkpoint.h"
#include "uptrain/ops/loss.h"
#include "uptrain/train/data_loader.h"

namespace regroup {

// Teacher logits on disk: the most likely tokens for the windows of a run, in the order in which
// the run draws them. A directory of safetensors files; all except the last hold the same number of
// windows:
//   ids                U16 or U32 [n, P, k]   the most likely tokens, most likely first
//   log_probabilities  F16 [n, P, k+1]        theirs, then that of all other tokens together
//   windows            U64 [n]                XXH64 of the window's ids, as int64
//   checksums          U64 [n]                see teacher_logits_checksum()
// n windows in the file, P predictions in a window (unused ones at its end are 0), k tokens kept.
// Everything is checked: the header must match its facts byte for byte, and each window's checksum
// covers header, position and logits.

/// The facts that all files of a directory state.
struct TeacherLogitsFacts {
  Json questions;       ///< see questions_in()
  std::string teacher;  ///< fingerprint of the model that answered
  std::int64_t vocab_size = 0;
  std::int64_t samples = 0;      ///< windows, from the run's first on
  std::int64_t predictions = 0;  ///< P
  std::int64_t top = 0;          ///< k
  double temperature = 1.0;      ///< of the distributions
  std::int64_t samples_per_file = 0;

  std::int64_t files() const { return (samples - 1) / samples_per_file + 1; }
  std::int64_t samples_in(std::int64_t file) const {
    return std::min(samples_per_file, samples - file * samples_per_file);
  }

  DType id_type() const { return vocab_size <= 1 << 16 ? DType::kU16 : DType::kU32; }

  /// Bytes of one window's ids and log_probabilities.
  std::uint64_t id_bytes() const { return tensor_bytes(id_type(), {predictions, top}); }
  std::uint64_t probability_bytes() const {
    return tensor_bytes(DType::kF16, {predictions, top + 1});
  }

  /// Bytes of one window in all.
  std::uint64_t sample_bytes() const { return id_bytes() + probability_bytes() + 16; }
};

/// The part of an uptraining recipe that determines the windows and the task.
Json questions_in(const Json& recipe);

/// "answers-00007.safetensors".
std::string teacher_logits_file_name(std::int64_t file);

/// The tensors of file number `file`, with their bytes in the data section.
std::vector<TensorInfo> teacher_logits_tensors(const TeacherLogitsFacts& facts, std::int64_t file);

/// Everything before the data section of file number `file`.
std::string teacher_logits_header(const TeacherLogitsFacts& facts, std::int64_t file);

/// The XXH64 of a window's logits: of the XXH64 of the file's header, the number of the window, the
/// XXH64 of its ids, and the bytes of ids and log_probabilities.
std::uint64_t teacher_logits_checksum(std::uint64_t header, std::int64_t sample,
                                      std::uint64_t window, std::span<const std::byte> answers);

/// A file of teacher logits with a valid header.
struct TeacherLogitsFile {
  Checkpoint tensors;
  std::int64_t number = 0;
  std::uint64_t header = 0;  ///< its XXH64
};

/// The stored data of one window.
struct StoredLogits {
  std::uint64_t window = 0;        ///< the XXH64 of its ids
  std::vector<std::byte> answers;  ///< ids, then log_probabilities
};

/// Opens a file of `directory`. Throws kBadInput if its header is damaged, it is truncated, it
/// holds no teacher logits, or it does not match the number and the facts.
TeacherLogitsFile open_teacher_logits_file(const std::filesystem::path& directory,
                                           const TeacherLogitsFacts& facts, std::int64_t file);

/// Reads window number `sample`. Throws kBadInput if its checksum does not match.
StoredLogits read_teacher_logits(const TeacherLogitsFile& file, const TeacherLogitsFacts& facts,
                                 std::int64_t sample);

/// Reads all windows of the file. Throws kBadInput naming the first that is damaged.
void check_teacher_logits(const TeacherLogitsFile& file, const TeacherLogitsFacts& facts);

/// The facts that the directory's first file states. Throws kBadInput if there is none, or it holds
/// no teacher logits.
TeacherLogitsFacts read_teacher_logits_facts(const std::filesystem::path& directory);

/// The XXH64 of a window, int64 [T+1] in host memory.
std::uint64_t window_hash(const at::Tensor& window);

/// Predicted tokens of such a window, at most `predictions`.
std::int64_t predictions_of(const at::Tensor& window, std::int64_t predictions);

// Reads the teacher logits that `regroup teach` wrote, window by window.
//
// Shapes: B windows of T+1 tokens, N predictions, k tokens kept.

class TeacherLogitsCache {
 public:
  /// Reads the headers of all files. Throws kBadInput naming one that is missing, cut off or does
  /// not belong to the others.
  static TeacherLogitsCache open(const std::filesystem::path& directory);

  const TeacherLogitsFacts& facts() const { return facts_; }

  /// Throws kUsage unless these logits cover a run of `samples` windows; names each setting in
  /// `recipe` that differs, a different temperature, or the number of missing windows. Throws
  /// kBadInput as read() does for any of the windows of `data`.
  void check_fit(const Json& recipe, double temperature, std::int64_t samples,
                 const DataLoader& data);

  /// The top-k logits of samples first … first+B-1, in the order of their predictions, [N, k] and
  /// [N, k+1] in host memory. windows: int64 [B, T+1], those of the samples. Throws kBadInput if a
  /// window differs from the one the teacher read, a checksum is wrong or the numbers are no
  /// distribution of tokens, and kUsage for samples that are not stored.
  TopKLogits read(const at::Tensor& windows, std::int64_t first);

 private:
  TeacherLogitsCache(std::filesystem::path directory, TeacherLogitsFacts facts)
      : directory_(std::move(directory)), facts_(std::move(facts)) {}

  std::string place_of(std::int64_t sample) const;
  std::vector<std::byte> read_bytes(const at::Tensor& window, std::int64_t sample);
  TopKLogits read_sample(const at::Tensor& window, std::int64_t sample);

  std::filesystem::path directory_;
  TeacherLogitsFacts facts_;
  std::int64_t opened_ = -1;  // the number of file_
  std::optional<TeacherLogitsFile> file_;
};

}  // namespace regroup
