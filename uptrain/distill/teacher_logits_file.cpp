#include "uptrain/distill/teacher_logits_file.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>

#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include "formats/base/checksum.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/safetensors/safetensors.h"
#include "uptrain/model/tensor_bytes.h"

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

}  // namespace

std::int64_t TeacherLogitsFacts::samples_in(std::int64_t file) const {
  return std::min(samples_per_file, samples - file * samples_per_file);
}

std::uint64_t TeacherLogitsFacts::id_bytes() const {
  return tensor_bytes(id_type(), {predictions, top});
}

std::uint64_t TeacherLogitsFacts::probability_bytes() const {
  return tensor_bytes(DType::kF16, {predictions, top + 1});
}

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
  all.insert(all.end(), answers.begin(), answers.end());
  return xxh64(all);
}

TeacherLogitsFile open_teacher_logits_file(const std::filesystem::path& directory,
                                           const TeacherLogitsFacts& facts, std::int64_t file) {
  const std::filesystem::path path = directory / teacher_logits_file_name(file);
  const std::string where = printable(path.string(), 0);
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
  const File& stored = opened.files().front();
  std::string found(std::min<std::uint64_t>(expected.size(), stored.size()), '\0');
  stored.read_at(0, std::as_writable_bytes(std::span(found)));
  if (found != expected) {
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
                    printable(file.tensors.files().front().path().string(), 0), sample);
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
    throw_bad_input("{}: no {} in it: not made by regroup teach", printable(directory.string(), 0),
                    teacher_logits_file_name(0));
  }
  const std::string where = printable(path.string(), 0);
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

}  // namespace regroup
