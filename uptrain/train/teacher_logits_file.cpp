#include "uptrain/train/teacher_logits_file.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/base/checksum.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/tensors/safetensors.h"
#include "uptrain/model/parameters.h"

namespace regroup {

namespace {

constexpr const char* kFactsKey = "regroup.teacher_answers";
constexpr const char* kFileKey = "regroup.file";
constexpr std::int64_t kTeacherLogitsVersion = 2;  // 1: without a checksum of the header

std::string text_of_facts(const TeacherLogitsFacts& facts) {
  return Json({{"version", kTeacherLogitsVersion},
               {"questions", facts.questions},
               {"teacher", facts.teacher},
               {"vocab_size", facts.vocab_size},
               {"samples", facts.samples},
               {"predictions", facts.predictions},
               {"top", facts.top},
               {"temperature", facts.temperature},
               {"samples_per_file", facts.samples_per_file}})
      .dump();
}

// Whether a writer can have produced these facts.
bool sound(const TeacherLogitsFacts& facts) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const auto within = [](std::int64_t value, std::int64_t most) {
    return value >= 1 && value <= most;
  };
  return within(facts.vocab_size, std::int64_t{1} << 31) && within(facts.samples, kMost) &&
         within(facts.predictions, std::int64_t{1} << 24) && within(facts.top, facts.vocab_size) &&
         within(facts.samples_per_file, kMost) && facts.temperature > 0;
}

std::int64_t count_at(const Json& json, const char* key) {
  const Json& value = json.at(key);
  return value.is_number_unsigned() && value.get<std::uint64_t>() >> 62 == 0
             ? value.get<std::int64_t>()
             : 0;
}

TeacherLogitsFacts facts_of(const std::string& text, const std::string& where) {
  try {
    const Json json = parse_json_object(text, where);
    const TeacherLogitsFacts facts{
        json.at("questions"),          json.at("teacher"),
        count_at(json, "vocab_size"),  count_at(json, "samples"),
        count_at(json, "predictions"), count_at(json, "top"),
        json.at("temperature"),        count_at(json, "samples_per_file")};
    if (count_at(json, "version") == 1) {
      throw_bad_input(
          "{}: teacher logits of an earlier version, without full checksums: run regroup teach "
          "again",
          where);
    }
    if (count_at(json, "version") == kTeacherLogitsVersion && facts.questions.is_object() &&
        sound(facts)) {
      return facts;
    }
  } catch (const Json::exception&) {  // the error below covers it
  }
  throw_bad_input("{}: {} is not understood: {}", where, kFactsKey, printable(text));
}

const std::string& metadata_at(const Checkpoint& file, const char* key, const std::string& where) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) {
    throw_bad_input("{}: {} is missing: not a file of regroup teach", where, key);
  }
  return found->second;
}

Checkpoint open_file(const std::filesystem::path& path) {
  std::vector<Checkpoint::Part> parts;
  parts.push_back(open_safetensors(path));
  return Checkpoint(std::move(parts));
}

// The metadata in the header of file number `file`.
std::map<std::string, std::string> teacher_logits_metadata(const TeacherLogitsFacts& facts,
                                                           std::int64_t file) {
  return {{kFactsKey, text_of_facts(facts)}, {kFileKey, std::to_string(file)}};
}

// Reads row number `row` of a tensor whose rows are as long as `out`.
void read_row(const Checkpoint& file, const char* name, std::int64_t row,
              std::span<std::byte> out) {
  const TensorInfo& tensor = file.at(name);
  file.file_of(tensor).read_at(tensor.begin + static_cast<std::uint64_t>(row) * out.size(), out);
}

std::uint64_t read_hash(const Checkpoint& file, const char* name, std::int64_t row) {
  std::uint64_t value = 0;
  read_row(file, name, row, std::as_writable_bytes(std::span(&value, 1)));
  return value;
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

Json questions_in(const Json& recipe) {
  constexpr std::array<std::string_view, 11> kKeys{
      "objective",    "mask_token", "first_sentinel", "end_token",    "sequence_length", "seed",
      "data_weights", "data_bytes", "documents",      "document_end", "document_start"};
  Json questions = Json::object();
  for (const auto& [key, value] : recipe.items()) {
    if (std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end()) {
      questions[key] = value;
    }
  }
  return questions;
}

std::string teacher_logits_file_name(std::int64_t file) {
  return fmt::format("answers-{:05}.safetensors", file);
}

std::vector<TensorInfo> teacher_logits_tensors(const TeacherLogitsFacts& facts, std::int64_t file) {
  const std::int64_t n = facts.samples_in(file);
  std::vector<TensorInfo> tensors{
      // in descending order of width, so that all are aligned
      {"windows", DType::kU64, {n}},
      {"checksums", DType::kU64, {n}},
      {"ids", facts.id_type(), {n, facts.predictions, facts.top}},
      {"log_probabilities", DType::kF16, {n, facts.predictions, facts.top + 1}}};
  std::uint64_t offset = 0;
  for (TensorInfo& tensor : tensors) {
    tensor.begin = offset;
    tensor.end = offset += tensor_bytes(tensor.dtype, tensor.shape);
  }
  return tensors;
}

std::string teacher_logits_header(const TeacherLogitsFacts& facts, std::int64_t file) {
  return encode_safetensors_header(teacher_logits_tensors(facts, file),
                                   teacher_logits_metadata(facts, file));
}

std::uint64_t teacher_logits_checksum(std::uint64_t header, std::int64_t sample,
                                      std::uint64_t window, std::span<const std::byte> answers) {
  const std::array<std::uint64_t, 3> place{header, static_cast<std::uint64_t>(sample), window};
  const auto prefix = std::as_bytes(std::span(place));
  std::vector<std::byte> all(prefix.begin(), prefix.end());
  append(all, answers);
  return xxh64(all);
}

TeacherLogitsFile open_teacher_logits_file(const std::filesystem::path& directory,
                                           const TeacherLogitsFacts& facts, std::int64_t file) {
  const std::filesystem::path path = directory / teacher_logits_file_name(file);
  const std::string where = printable_path(path);
  Checkpoint opened = open_file(path);
  for (const auto& [key, value] : teacher_logits_metadata(facts, file)) {
    if (metadata_at(opened, key.c_str(), where) != value) {
      throw_bad_input("{}: {} is {}, expected {}: damaged, or it belongs to other teacher logits",
                      where, key, printable(metadata_at(opened, key.c_str(), where)),
                      printable(value));
    }
  }
  // Finds all other errors: in the tensors, their order, and the bytes between them.
  const std::string expected = teacher_logits_header(facts, file);
  if (read_start(opened.files().front(), expected.size()) != expected) {
    throw_bad_input("{}: damaged: its header is not the one that regroup teach writes", where);
  }
  return {std::move(opened), file, xxh64(std::as_bytes(std::span(expected)))};
}

StoredLogits read_teacher_logits(const TeacherLogitsFile& file, const TeacherLogitsFacts& facts,
                                 std::int64_t sample) {
  const std::int64_t row = sample - file.number * facts.samples_per_file;
  StoredLogits stored;
  stored.window = read_hash(file.tensors, "windows", row);
  stored.answers.resize(facts.id_bytes() + facts.probability_bytes());
  const std::span<std::byte> all(stored.answers);
  read_row(file.tensors, "ids", row, all.first(facts.id_bytes()));
  read_row(file.tensors, "log_probabilities", row, all.subspan(facts.id_bytes()));
  if (teacher_logits_checksum(file.header, sample, stored.window, all) !=
      read_hash(file.tensors, "checksums", row)) {
    throw_bad_input("{}: window {}: damaged: the checksum does not match",
                    printable_path(file.tensors.files().front().path()), sample);
  }
  return stored;
}

void check_teacher_logits(const TeacherLogitsFile& file, const TeacherLogitsFacts& facts) {
  const std::int64_t first = file.number * facts.samples_per_file;
  for (std::int64_t i = 0; i < facts.samples_in(file.number); ++i) {
    read_teacher_logits(file, facts, first + i);
  }
}

TeacherLogitsFacts read_teacher_logits_facts(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / teacher_logits_file_name(0);
  if (!path_exists(path)) {
    throw_bad_input("{}: no {} in it: not made by regroup teach", printable_path(directory),
                    teacher_logits_file_name(0));
  }
  const std::string where = printable_path(path);
  return facts_of(metadata_at(open_file(path), kFactsKey, where), where);
}

std::uint64_t window_hash(const at::Tensor& window) {
  const at::Tensor ids = window.contiguous();
  return xxh64(bytes_of(ids));
}

std::int64_t predictions_of(const at::Tensor& window, std::int64_t predictions) {
  const at::Tensor answered = window.narrow(0, 1, window.size(0) - 1).ge(0);
  return std::min(predictions, answered.sum().item<std::int64_t>());
}

TeacherLogitsCache TeacherLogitsCache::open(const std::filesystem::path& directory) {
  TeacherLogitsCache answers(directory, read_teacher_logits_facts(directory));
  for (std::int64_t file = 0; file < answers.facts_.files(); ++file) {
    open_teacher_logits_file(directory, answers.facts_, file);
  }
  return answers;
}

void TeacherLogitsCache::check_fit(const Json& recipe, double temperature, std::int64_t samples,
                                   const DataLoader& data) {
  const std::string where = printable_path(directory_);
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

std::string TeacherLogitsCache::place_of(std::int64_t sample) const {
  return fmt::format("{}: window {}",
                     printable_path(directory_ / teacher_logits_file_name(opened_)), sample);
}

// Reads the bytes of ids and log_probabilities.
std::vector<std::byte> TeacherLogitsCache::read_bytes(const at::Tensor& window,
                                                      std::int64_t sample) {
  if (sample >= facts_.samples) {
    throw_usage("{}: teacher logits of {} windows, number {} is needed", printable_path(directory_),
                facts_.samples, sample);
  }
  if (const std::int64_t file = sample / facts_.samples_per_file; file != opened_) {
    file_.emplace(open_teacher_logits_file(directory_, facts_, file));
    opened_ = file;
  }
  StoredLogits stored = read_teacher_logits(*file_, facts_, sample);
  if (stored.window != window_hash(window)) {
    throw_bad_input("{}: the teacher read another window: the token files differ",
                    place_of(sample));
  }
  return std::move(stored.answers);
}

TopKLogits TeacherLogitsCache::read_sample(const at::Tensor& window, std::int64_t sample) {
  std::vector<std::byte> bytes = read_bytes(window, sample);
  const auto rows_at = [&](std::uint64_t begin, std::int64_t width, at::ScalarType type) {
    return at::from_blob(bytes.data() + begin, {facts_.predictions, width}, type);
  };
  const bool narrow = facts_.id_type() == DType::kU16;
  at::Tensor ids = rows_at(0, facts_.top, narrow ? at::kShort : at::kInt).to(at::kLong);
  ids = narrow ? ids.bitwise_and(0xffff) : ids;  // stored without a sign
  if (ids.lt(0).logical_or(ids.ge(facts_.vocab_size)).any().item<bool>()) {
    throw_bad_input("{}: a token is outside the vocabulary of {} tokens", place_of(sample),
                    facts_.vocab_size);
  }
  const std::int64_t asked = predictions_of(window, facts_.predictions);
  const at::Tensor log_probabilities =
      rows_at(facts_.id_bytes(), facts_.top + 1, at::kHalf).narrow(0, 0, asked).to(at::kFloat);
  if (!add_up_to_one(log_probabilities)) {
    throw_bad_input("{}: the probabilities of a prediction do not sum to 1", place_of(sample));
  }
  if (!all_differ(ids.narrow(0, 0, asked))) {
    throw_bad_input("{}: a prediction names a token twice", place_of(sample));
  }
  return {ids.narrow(0, 0, asked), log_probabilities};
}

}  // namespace regroup
