// Reads the teacher logits that `regroup teach` wrote, window by window.
//
// Shapes: B windows of T+1 tokens, N predictions, k tokens kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "uptrain/data/data_loader.h"
#include "uptrain/distill/teacher_logits_file.h"
#include "uptrain/ops/loss.h"

namespace regroup {

class TeacherLogitsCache {
 public:
  /// Reads the headers of all files. Throws kBadInput naming one that is missing, cut off or does
  /// not belong to the others.
  static TeacherLogitsCache open(const std::filesystem::path& directory);

  /// Reads all stored logits, also those that a run does not need. Throws kBadInput naming what is
  /// damaged.
  void check_all() const;

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

  void turn_to(std::int64_t file);
  std::string place_of(std::int64_t sample) const;
  std::vector<std::byte> read_bytes(const at::Tensor& window, std::int64_t sample);
  TopKLogits read_sample(const at::Tensor& window, std::int64_t sample);

  std::filesystem::path directory_;
  TeacherLogitsFacts facts_;
  std::int64_t opened_ = -1;  // the number of file_
  std::optional<TeacherLogitsFile> file_;
};

}  // namespace regroup
