#include "uptrain/answers_file.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include "formats/checksum.h"
#include "formats/error.h"
#include "formats/printable.h"
#include "formats/safetensors.h"

namespace regroup {
namespace {

constexpr const char* kFactsKey = "regroup.teacher_answers";
constexpr const char* kFileKey = "regroup.file";
constexpr std::int64_t kVersion1 = 1;

std::string text_of_facts(const AnswersFacts& facts) {
  return Json({{"version", kVersion1},
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

// Facts that no writer states.
bool sound(const AnswersFacts& facts) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const auto within = [](std::int64_t value, std::int64_t most) {
    return value >= 1 && value <= most;
  };
  return within(facts.vocab_size, std::int64_t{1} << 31) && within(facts.samples, kMost) &&
         within(facts.predictions, std::int64_t{1} << 24) && within(facts.top, facts.vocab_size) &&
         within(facts.samples_per_file, kMost) && facts.temperature > 0;
}

AnswersFacts facts_of(const std::string& text, const std::string& where) {
  try {
    const Json json = Json::parse(text);
    const AnswersFacts facts{json.at("questions"),   json.at("teacher"),
                             json.at("vocab_size"),  json.at("samples"),
                             json.at("predictions"), json.at("top"),
                             json.at("temperature"), json.at("samples_per_file")};
    if (json.at("version") == kVersion1 && sound(facts)) {
      return facts;
    }
  } catch (const Json::exception&) {  // said below
  }
  throw_bad_input("{}: {} is not understood: {}", where, kFactsKey, printable(text));
}

const std::string& metadata_at(const Checkpoint& file, const char* key, const std::string& where) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) {
    throw_bad_input("{}: {} is missing: no file of regroup teach", where, key);
  }
  return found->second;
}

Checkpoint open_file(const std::filesystem::path& path) {
  std::vector<Checkpoint::Part> parts;
  parts.push_back(open_safetensors(path));
  return Checkpoint(std::move(parts));
}

}  // namespace

std::int64_t AnswersFacts::samples_in(std::int64_t file) const {
  return std::min(samples_per_file, samples - file * samples_per_file);
}

std::uint64_t AnswersFacts::id_bytes() const { return tensor_bytes(id_type(), {predictions, top}); }

std::uint64_t AnswersFacts::probability_bytes() const {
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

std::string answers_file_name(std::int64_t file) {
  return fmt::format("answers-{:05}.safetensors", file);
}

std::vector<TensorInfo> answers_tensors(const AnswersFacts& facts, std::int64_t file) {
  const std::int64_t n = facts.samples_in(file);
  std::vector<TensorInfo> tensors{
      // wide numbers first: all are aligned
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

std::map<std::string, std::string> answers_metadata(const AnswersFacts& facts, std::int64_t file) {
  return {{kFactsKey, text_of_facts(facts)}, {kFileKey, std::to_string(file)}};
}

Checkpoint open_answers_file(const std::filesystem::path& directory, const AnswersFacts& facts,
                             std::int64_t file) {
  const std::filesystem::path path = directory / answers_file_name(file);
  const std::string where = printable(path.string(), 0);
  Checkpoint opened = open_file(path);
  for (const auto& [key, value] : answers_metadata(facts, file)) {
    if (metadata_at(opened, key.c_str(), where) != value) {
      throw_bad_input("{}: {} is {}, expected {}: it belongs to other answers", where, key,
                      printable(metadata_at(opened, key.c_str(), where), 0), printable(value, 0));
    }
  }
  for (const TensorInfo& expected : answers_tensors(facts, file)) {
    const TensorInfo& tensor = opened.at(expected.name);
    if (tensor.dtype != expected.dtype || tensor.shape != expected.shape) {
      throw_bad_input("{}: tensor {} is {} {}, expected {} {}", where, expected.name,
                      name_of(tensor.dtype), text_of(tensor.shape), name_of(expected.dtype),
                      text_of(expected.shape));
    }
  }
  return opened;
}

AnswersFacts read_answers_facts(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / answers_file_name(0);
  if (!path_exists(path)) {
    throw_bad_input("{}: no {} in it: not made by regroup teach", printable(directory.string(), 0),
                    answers_file_name(0));
  }
  const std::string where = printable(path.string(), 0);
  return facts_of(metadata_at(open_file(path), kFactsKey, where), where);
}

std::uint64_t window_hash(const at::Tensor& window) {
  const at::Tensor ids = window.contiguous();
  return xxh64({static_cast<const std::byte*>(ids.const_data_ptr()), ids.nbytes()});
}

std::int64_t predictions_of(const at::Tensor& window, std::int64_t predictions) {
  const at::Tensor answered = window.narrow(0, 1, window.size(0) - 1).ge(0);
  return std::min(predictions, answered.sum().item<std::int64_t>());
}

}  // namespace regroup
