// What a teacher answered, on disk: its likeliest tokens for the windows of a run, in the order in
// which the run draws them. A directory of safetensors files, each with as many windows as the
// others but the last:
//   ids                U16 or U32 [n, P, k]   the likeliest tokens, the first one most of all
//   log_probabilities  F16 [n, P, k+1]        theirs, then that of all others together
//   windows            U64 [n]                XXH64 of the window's ids, as int64
//   checksums          U64 [n]                see teacher_logits_checksum()
// n windows in the file, P predictions in a window (what is not asked for at its end is 0), k
// tokens kept. Nothing in it goes unchecked: the header must be, byte for byte, the one that its
// facts call for, and each window's checksum covers header, place and answers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "formats/checkpoint/checkpoint.h"
#include "formats/json/json.h"

namespace regroup {

/// What all files of a directory say of themselves.
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
  std::int64_t samples_in(std::int64_t file) const;

  DType id_type() const { return vocab_size <= 1 << 16 ? DType::kU16 : DType::kU32; }

  /// Bytes of one window's ids and log_probabilities.
  std::uint64_t id_bytes() const;
  std::uint64_t probability_bytes() const;

  /// Bytes of one window in all.
  std::uint64_t sample_bytes() const { return id_bytes() + probability_bytes() + 16; }
};

/// The part of an uptraining recipe that says which windows are drawn and what is asked of them.
Json questions_in(const Json& recipe);

/// "answers-00007.safetensors".
std::string teacher_logits_file_name(std::int64_t file);

/// The tensors of file number `file`, with their bytes in the data section.
std::vector<TensorInfo> teacher_logits_tensors(const TeacherLogitsFacts& facts, std::int64_t file);

/// All that stands before the data section of file number `file`.
std::string teacher_logits_header(const TeacherLogitsFacts& facts, std::int64_t file);

/// The XXH64 of what a window's answers are: that of their file's header, the number of the window,
/// the XXH64 of its ids, and the bytes of ids and log_probabilities.
std::uint64_t teacher_logits_checksum(std::uint64_t header, std::int64_t sample,
                                      std::uint64_t window, std::span<const std::byte> answers);

/// A file of answers whose header is right.
struct TeacherLogitsFile {
  Checkpoint tensors;
  std::int64_t number = 0;
  std::uint64_t header = 0;  ///< its XXH64
};

/// What is stored of one window.
struct StoredLogits {
  std::uint64_t window = 0;        ///< the XXH64 of its ids
  std::vector<std::byte> answers;  ///< ids, then log_probabilities
};

/// Opens a file of `directory`. Throws kBadInput where its header is damaged, it is cut off, no
/// file of answers or not that one of the directory with these facts.
TeacherLogitsFile open_teacher_logits_file(const std::filesystem::path& directory,
                                           const TeacherLogitsFacts& facts, std::int64_t file);

/// Reads what the file holds of window number `sample`. Throws kBadInput where its checksum is
/// another.
StoredLogits read_teacher_logits(const TeacherLogitsFile& file, const TeacherLogitsFacts& facts,
                                 std::int64_t sample);

/// Reads all windows of the file. Throws kBadInput naming the first that is damaged.
void check_teacher_logits(const TeacherLogitsFile& file, const TeacherLogitsFacts& facts);

/// The facts that the directory's first file states. Throws kBadInput where there is none, or it is
/// no file of answers.
TeacherLogitsFacts read_teacher_logits_facts(const std::filesystem::path& directory);

/// The XXH64 of a window, int64 [T+1] in host memory.
std::uint64_t window_hash(const at::Tensor& window);

/// Tokens that such a window asks for, of `predictions` at most.
std::int64_t predictions_of(const at::Tensor& window, std::int64_t predictions);

}  // namespace regroup
