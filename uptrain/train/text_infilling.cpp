#include "uptrain/train/text_infilling.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/base/printable.h"
#include "uptrain/ops/expert_routing.h"

namespace regroup {

namespace {

constexpr std::uint64_t kMaxTokenizerBytes = 256U << 20;
constexpr std::string_view kPrefix = "<extra_id_";

using SentinelIds = std::map<std::int64_t, std::int64_t>;  // k -> token
using NamedTokens = std::vector<std::pair<std::string, std::int64_t>>;

// The number k of "<extra_id_k>".
std::optional<std::int64_t> sentinel_number(std::string_view text) {
  std::int64_t number = 0;
  if (!text.starts_with(kPrefix) || !text.ends_with('>')) {
    return std::nullopt;
  }
  const char* end = text.data() + text.size() - 1;
  const auto [stopped, fault] = std::from_chars(text.data() + kPrefix.size(), end, number);
  return fault == std::errc() && stopped == end && number >= 0 ? std::optional(number)
                                                               : std::nullopt;
}

void add(NamedTokens& found, const nlohmann::json& text, const nlohmann::json& id) {
  if (text.is_string() && id.is_number_integer()) {
    found.emplace_back(text.get<std::string>(), id.get<std::int64_t>());
  }
}

// Reads {"added_tokens_decoder": {"32099": {"content": "<extra_id_0>", …}, …}}.
void add_from_tokenizer_config(NamedTokens& found, const nlohmann::json& file) {
  const auto tokens = file.find("added_tokens_decoder");
  if (tokens == file.end() || !tokens->is_object()) {
    return;
  }
  for (const auto& [key, token] : tokens->items()) {
    std::int64_t id = 0;
    const auto [stopped, fault] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (fault == std::errc() && stopped == key.data() + key.size() && token.is_object()) {
      add(found, token.value("content", nlohmann::json()), id);
    }
  }
}

// Reads {"<extra_id_0>": 32099, …}.
void add_from_added_tokens(NamedTokens& found, const nlohmann::json& file) {
  for (const auto& [text, id] : file.items()) {
    add(found, text, id);
  }
}

// Reads {"added_tokens": [{"id": 32099, "content": "<extra_id_0>", …}, …], …}.
void add_from_tokenizer(NamedTokens& found, const nlohmann::json& file) {
  const auto tokens = file.find("added_tokens");
  if (tokens == file.end() || !tokens->is_array()) {
    return;
  }
  for (const nlohmann::json& token : *tokens) {
    if (token.is_object()) {
      add(found, token.value("content", nlohmann::json()), token.value("id", nlohmann::json()));
    }
  }
}

struct TokenizerFile {
  std::filesystem::path path;
  NamedTokens tokens;
};

// The tokens that each tokenizer file of a directory names.
std::vector<TokenizerFile> read_tokenizer_files(const std::filesystem::path& directory) {
  using Reader = void (*)(NamedTokens&, const nlohmann::json&);
  const std::pair<const char*, Reader> files[] = {
      {"tokenizer_config.json", add_from_tokenizer_config},
      {"added_tokens.json", add_from_added_tokens},
      {"tokenizer.json", add_from_tokenizer}};
  std::vector<TokenizerFile> read_files;
  for (const auto& [name, read] : files) {
    const std::filesystem::path path = directory / name;
    if (path_exists(path)) {
      read(read_files.emplace_back(path).tokens,
           parse_sorted_json_object(read_text(path, kMaxTokenizerBytes), printable_path(path)));
    }
  }
  return read_files;
}

std::optional<Sentinels> sentinels_in(const SentinelIds& found, const std::filesystem::path& file) {
  const auto first = found.find(0);
  if (first == found.end()) {
    return std::nullopt;
  }
  std::int64_t count = 0;
  for (const auto& [number, id] : found) {
    if (number != count || id != first->second - number) {
      throw_bad_input("{}: <extra_id_{}> is token {}, allowed is {}: they count down from {}",
                      printable_path(file), number, id, first->second - count, first->second);
    }
    ++count;
  }
  return Sentinels{first->second, count};
}

std::optional<std::int64_t> token_in(const Json& config, const char* key) {
  if (!config.is_object() || !config.contains(key) || !config[key].is_number_integer()) {
    return std::nullopt;
  }
  return config[key].get<std::int64_t>();
}

// The language model's own token, otherwise that of the model that it is a part of.
std::optional<std::int64_t> token_of(const Model& model, const char* key) {
  const Json* part = &model.config;
  for (const std::string& name : model.spec.config_path) {
    part = &part->at(name);
  }
  const auto own = token_in(*part, key);
  return own ? own : token_in(model.config, key);
}

}  // namespace

std::optional<Sentinels> find_sentinels(const std::filesystem::path& directory) {
  for (const TokenizerFile& file : read_tokenizer_files(directory)) {
    SentinelIds found;
    for (const auto& [text, id] : file.tokens) {
      if (const auto number = sentinel_number(text)) {
        found[*number] = id;
      }
    }
    if (const auto sentinels = sentinels_in(found, file.path)) {
      return sentinels;
    }
  }
  return std::nullopt;
}

std::optional<std::int64_t> find_mask_token(const std::filesystem::path& directory) {
  for (const TokenizerFile& file : read_tokenizer_files(directory)) {
    for (const auto& [text, id] : file.tokens) {
      if (text == "<mask>") {
        return id;
      }
    }
  }
  return std::nullopt;
}

std::optional<std::int64_t> start_token_of(const Model& model) {
  return token_of(model, "bos_token_id");
}

std::optional<std::int64_t> end_token_of(const Model& model) {
  return token_of(model, "eos_token_id");
}

namespace {

// Cuts `total` into `parts` pieces of at least one each. The ends of all pieces except the last are
// distinct positions from 1 to total - 1.
std::vector<std::int64_t> cut(std::int64_t total, std::int64_t parts, std::uint64_t seed,
                              std::uint64_t stream) {
  std::vector<std::int64_t> ends{total};
  if (parts > 1) {
    const Permutation order(static_cast<std::uint64_t>(total - 1), seed, stream);
    for (std::int64_t i = 0; i < parts - 1; ++i) {
      ends.push_back(static_cast<std::int64_t>(order(static_cast<std::uint64_t>(i))) + 1);
    }
  }
  std::sort(ends.begin(), ends.end());
  for (std::size_t i = ends.size() - 1; i > 0; --i) {
    ends[i] -= ends[i - 1];
  }
  return ends;  // now lengths
}

// Writes one window's source and answers.
void corrupt(const std::int64_t* text, const std::vector<std::int64_t>& spans, const Hiding& hiding,
             std::int64_t* source, std::int64_t* answers) {
  for (std::size_t i = 0; i < spans.size(); i += 2) {
    source = std::copy_n(text, spans[i], source);
    text += spans[i];
    *source++ = *answers++ = hiding.token - static_cast<std::int64_t>(i / 2);
    answers = std::copy_n(text, spans[i + 1], answers);
    text += spans[i + 1];
  }
  if (hiding.end_token) {
    *source = *answers = *hiding.end_token;
  }
}

}  // namespace

SpanCounts span_counts(std::int64_t context, bool with_end_token, std::int64_t percent) {
  SpanCounts counts;
  counts.hidden = std::clamp<std::int64_t>((context * percent + 50) / 100, 1, context - 1);
  const std::int64_t most = std::min(counts.hidden, context - counts.hidden);
  counts.spans = std::clamp<std::int64_t>((counts.hidden * 2 + 3) / 6, 1, most);
  counts.source = context - counts.hidden + counts.spans + (with_end_token ? 1 : 0);
  counts.target = counts.hidden + counts.spans + (with_end_token ? 1 : 0);
  return counts;
}

std::vector<std::int64_t> draw_spans(std::int64_t context, std::uint64_t seed, std::uint64_t window,
                                     std::int64_t percent) {
  const SpanCounts counts = span_counts(context, false, percent);
  const auto shown = cut(context - counts.hidden, counts.spans, seed, window);
  const auto hidden = cut(counts.hidden, counts.spans, ~seed, window);
  std::vector<std::int64_t> spans;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    spans.push_back(shown[i]);
    spans.push_back(hidden[i]);
  }
  return spans;
}

at::Tensor shifted_right(const at::Tensor& answers, std::int64_t start_token) {
  const at::Tensor start = at::full({answers.size(0), 1}, start_token, answers.options());
  return at::cat({start, answers.narrow(1, 0, answers.size(1) - 1)}, 1);
}

TextPair corrupt_spans(const at::Tensor& ids, std::int64_t first, const Hiding& hiding,
                       std::int64_t start_token) {
  const std::int64_t windows = ids.size(0);
  const std::int64_t context = ids.size(1);
  const SpanCounts counts = span_counts(context, hiding.end_token.has_value());
  const at::Tensor text = ids.contiguous();
  TextPair result{at::empty({windows, counts.source}, at::kLong),
                  {},
                  at::empty({windows, counts.target}, at::kLong)};
  for (std::int64_t window = 0; window < windows; ++window) {
    const auto spans = draw_spans(context, hiding.seed, static_cast<std::uint64_t>(first + window));
    corrupt(text.const_data_ptr<std::int64_t>() + window * context, spans, hiding,
            result.source.mutable_data_ptr<std::int64_t>() + window * counts.source,
            result.answers.mutable_data_ptr<std::int64_t>() + window * counts.target);
  }
  result.target = shifted_right(result.answers, start_token);
  return result;
}

namespace {

constexpr std::int64_t kHiddenPercent = 30;

// Writes one window's source, without the end token.
void mask_spans(const std::int64_t* text, const std::vector<std::int64_t>& spans,
                std::int64_t mask_token, std::int64_t* source) {
  for (std::size_t i = 0; i < spans.size(); i += 2) {
    source = std::copy_n(text, spans[i], source);
    *source++ = mask_token;
    text += spans[i] + spans[i + 1];
  }
}

}  // namespace

SpanCounts infilling_counts(std::int64_t context, bool with_end_token) {
  SpanCounts counts = span_counts(context, with_end_token, kHiddenPercent);
  counts.target = context + (with_end_token ? 1 : 0);
  return counts;
}

TextPair infill_text(const at::Tensor& ids, std::int64_t first, const Hiding& hiding,
                     std::int64_t start_token) {
  const std::int64_t windows = ids.size(0);
  const std::int64_t context = ids.size(1);
  const SpanCounts counts = infilling_counts(context, hiding.end_token.has_value());
  const at::Tensor text = ids.contiguous();
  TextPair result{at::empty({windows, counts.source}, at::kLong), {}, text};
  for (std::int64_t window = 0; window < windows; ++window) {
    const auto spans = draw_spans(context, hiding.seed, static_cast<std::uint64_t>(first + window),
                                  kHiddenPercent);
    mask_spans(text.const_data_ptr<std::int64_t>() + window * context, spans, hiding.token,
               result.source.mutable_data_ptr<std::int64_t>() + window * counts.source);
  }
  if (hiding.end_token) {
    result.source.select(1, counts.source - 1).fill_(*hiding.end_token);
    result.answers = at::cat({text, at::full({windows, 1}, *hiding.end_token, at::kLong)}, 1);
  }
  result.target = shifted_right(result.answers, start_token);
  return result;
}

}  // namespace regroup
