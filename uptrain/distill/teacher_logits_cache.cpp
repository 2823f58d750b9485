#include "uptrain/distill/teacher_logits_cache.h"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include "formats/base/error.h"
#include "formats/base/interruption.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

// Copies a tensor of `shape` from `bytes`.
at::Tensor tensor_in(std::span<const std::byte> bytes, at::IntArrayRef shape, at::ScalarType type) {
  at::Tensor tensor = at::empty(shape, type);
  std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(tensor.mutable_data_ptr()));
  return tensor;
}

// Whether all tokens of each row differ.
bool all_differ(const at::Tensor& ids) {
  const at::Tensor sorted = std::get<0>(ids.sort(1));
  return sorted.slice(1, 1).ne(sorted.slice(1, 0, -1)).all().item<bool>();
}

// Whether the probabilities of each row sum to 1, up to their rounding to fp16. False for NaN.
bool add_up_to_one(const at::Tensor& log_probabilities) {
  constexpr double kRounding = 0.05;
  const at::Tensor sums = log_probabilities.exp().sum(1);
  return sums.sub(1.0).abs().le(kRounding).all().item<bool>();
}

}  // namespace

TeacherLogitsCache TeacherLogitsCache::open(const std::filesystem::path& directory) {
  TeacherLogitsCache answers(directory, read_teacher_logits_facts(directory));
  for (std::int64_t file = 0; file < answers.facts_.files(); ++file) {
    open_teacher_logits_file(directory, answers.facts_, file);
  }
  return answers;
}

void TeacherLogitsCache::check_all() const {
  for (std::int64_t file = 0; file < facts_.files(); ++file) {
    check_teacher_logits(open_teacher_logits_file(directory_, facts_, file), facts_);
  }
}

void TeacherLogitsCache::check_fit(const Json& recipe, double temperature, std::int64_t samples,
                                   const DataLoader& data) {
  const std::string where = printable(directory_.string(), 0);
  Json there = facts_.questions;
  there["temperature"] = facts_.temperature;
  Json here = questions_in(recipe);
  here["temperature"] = temperature;
  Json all = there;
  all.update(here);
  std::vector<std::string> differences;
  for (const auto& [key, value] : all.items()) {
    if (there[key] != here[key]) {
      differences.push_back(
          fmt::format("{} is {} there, {} here", key, there[key].dump(), here[key].dump()));
    }
  }
  if (!differences.empty()) {
    throw_usage("{}: teacher logits for other settings than this run's: {}", where,
                printable(fmt::format("{}", fmt::join(differences, "; ")), 0));
  }
  if (facts_.samples < samples) {
    throw_usage("{}: teacher logits of {} windows, this run reads {}: regroup teach --windows {}",
                where, facts_.samples, samples, samples);
  }
  for (std::int64_t sample = 0; sample < samples; ++sample) {  // so that the run cannot fail later
    check_stop();
    read(data.batch(sample, 1), sample);
  }
}

TopKLogits TeacherLogitsCache::read(const at::Tensor& windows, std::int64_t first) {
  std::vector<at::Tensor> ids, log_probabilities;
  for (std::int64_t i = 0; i < windows.size(0); ++i) {
    const TopKLogits sample = read_sample(windows.select(0, i), first + i);
    ids.push_back(sample.ids);
    log_probabilities.push_back(sample.log_probabilities);
  }
  return {at::cat(ids), at::cat(log_probabilities)};
}

void TeacherLogitsCache::turn_to(std::int64_t file) {
  if (file != opened_) {
    file_.emplace(open_teacher_logits_file(directory_, facts_, file));
    opened_ = file;
  }
}

std::string TeacherLogitsCache::place_of(std::int64_t sample) const {
  return fmt::format("{}: window {}",
                     printable((directory_ / teacher_logits_file_name(opened_)).string(), 0),
                     sample);
}

// Reads the bytes of ids and log_probabilities.
std::vector<std::byte> TeacherLogitsCache::read_bytes(const at::Tensor& window,
                                                      std::int64_t sample) {
  if (sample >= facts_.samples) {
    throw_usage("{}: teacher logits of {} windows, number {} is needed",
                printable(directory_.string(), 0), facts_.samples, sample);
  }
  turn_to(sample / facts_.samples_per_file);
  StoredLogits stored = read_teacher_logits(*file_, facts_, sample);
  if (stored.window != window_hash(window)) {
    throw_bad_input("{}: the teacher read another window: the token files differ",
                    place_of(sample));
  }
  return std::move(stored.answers);
}

TopKLogits TeacherLogitsCache::read_sample(const at::Tensor& window, std::int64_t sample) {
  const std::vector<std::byte> bytes = read_bytes(window, sample);
  const std::span<const std::byte> all(bytes);
  const bool narrow = facts_.id_type() == DType::kU16;
  at::Tensor ids = tensor_in(all.first(facts_.id_bytes()), {facts_.predictions, facts_.top},
                             narrow ? at::kShort : at::kInt)
                       .to(at::kLong);
  ids = narrow ? ids.bitwise_and(0xffff) : ids;  // stored without a sign
  if (ids.lt(0).logical_or(ids.ge(facts_.vocab_size)).any().item<bool>()) {
    throw_bad_input("{}: a token is outside the vocabulary of {} tokens", place_of(sample),
                    facts_.vocab_size);
  }
  const std::int64_t asked = predictions_of(window, facts_.predictions);
  const at::Tensor log_probabilities =
      tensor_in(all.subspan(facts_.id_bytes()), {facts_.predictions, facts_.top + 1}, at::kHalf)
          .narrow(0, 0, asked)
          .to(at::kFloat);
  if (!add_up_to_one(log_probabilities)) {
    throw_bad_input("{}: the probabilities of a prediction do not sum to 1", place_of(sample));
  }
  if (!all_differ(ids.narrow(0, 0, asked))) {
    throw_bad_input("{}: a prediction names a token twice", place_of(sample));
  }
  return {ids.narrow(0, 0, asked), log_probabilities};
}

}  // namespace regroup
