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
#include "formats/base/ranges.h"
#include "formats/model/model_directory.h"
#include "formats/vocabulary/vocabulary.h"
#include "uptrain/ops/expert_routing.h"

namespace regroup {

namespace {

constexpr std::string_view kPrefix = "<extra_id_";
constexpr std::int64_t kHiddenByBart = 30;  // percent of the tokens

using SentinelIds = std::map<std::int64_t, std::int64_t>;  // k -> token
using NamedTokens = std::vector<std::pair<std::string, std::int64_t>>;

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, fault] = std::from_chars(text.data(), end, number);
  return fault == std::errc() && stopped == end ? std::optional(number) : std::nullopt;
}

// The number k of "<extra_id_k>".
std::optional<std::int64_t> sentinel_number(std::string_view text) {
  if (!text.starts_with(kPrefix) || !text.ends_with('>')) {
    return std::nullopt;
  }
  const auto number = whole_number(text.substr(kPrefix.size(), text.size() - kPrefix.size() - 1));
  return number.value_or(-1) >= 0 ? number : std::nullopt;
}

void add(NamedTokens& found, const SortedJson& text, const SortedJson& id) {
  if (text.is_string() && id.is_number_integer()) {
    found.emplace_back(text.get<std::string>(), id.get<std::int64_t>());
  }
}

// Reads {"added_tokens_decoder": {"32099": {"content": "<extra_id_0>", …}, …}}.
void add_from_tokenizer_config(NamedTokens& found, const SortedJson& file) {
  const SortedJson& tokens = member_of(file, "added_tokens_decoder");
  if (!tokens.is_object()) {
    return;
  }
  for (const auto& [key, token] : tokens.items()) {
    if (const auto id = whole_number(key)) {
      add(found, member_of(token, "content"), *id);
    }
  }
}

// Reads {"<extra_id_0>": 32099, …}.
void add_from_added_tokens(NamedTokens& found, const SortedJson& file) {
  for (const auto& [text, id] : file.items()) {
    add(found, text, id);
  }
}

// Reads {"added_tokens": [{"id": 32099, "content": "<extra_id_0>", …}, …], …}.
void add_from_tokenizer(NamedTokens& found, const SortedJson& file) {
  const SortedJson& tokens = member_of(file, "added_tokens");
  if (tokens.is_array()) {
    for (const SortedJson& token : tokens) {
      add(found, member_of(token, "content"), member_of(token, "id"));
    }
  }
}

struct TokenizerFile {
  std::filesystem::path path;
  NamedTokens tokens;
};

// The tokens that each tokenizer file of a directory names.
std::vector<TokenizerFile> read_tokenizer_files(const std::filesystem::path& directory) {
  using Reader = void (*)(NamedTokens&, const SortedJson&);
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

// The language model's own config, in that of the model that it is a part of.
const Json& own_config(const Model& model) {
  const Json* part = &model.config;
  for (const std::string& name : model.spec.config_path) {
    part = &part->at(name);
  }
  return *part;
}

// The language model's own token, otherwise that of the model that it is a part of.
std::optional<std::int64_t> token_of(const Model& model, const char* key) {
  for (const Json* config : {&own_config(model), &model.config}) {
    if (const Json& token = member_of(*config, key); token.is_number_integer()) {
      return token.get<std::int64_t>();
    }
  }
  return std::nullopt;
}

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

// Calls `visit` with the tokens and the spans of each window.
template <typename Visit>
void for_each_window(const at::Tensor& ids, std::int64_t first, std::uint64_t seed,
                     std::int64_t percent, Visit visit) {
  const at::Tensor all = ids.contiguous();
  const std::int64_t context = ids.size(1);
  for (std::int64_t window = 0; window < ids.size(0); ++window) {
    visit(all.const_data_ptr<std::int64_t>() + window * context,
          draw_spans(context, seed, static_cast<std::uint64_t>(first + window), percent));
  }
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

std::vector<std::int64_t> end_tokens_of(const Model& model) {
  std::vector<std::int64_t> ends;
  const auto add_from = [&](const Json& config) {
    const Json& found = member_of(config, "eos_token_id");
    for (const Json& token : found.is_array() ? found : Json::array({found})) {
      if (token.is_number_integer() && !contains(ends, token.get<std::int64_t>())) {
        ends.push_back(token.get<std::int64_t>());
      }
    }
  };
  add_from(own_config(model));
  if (ends.empty()) {
    add_from(model.config);
  }
  constexpr std::uint64_t kMostBytes = 1U << 20;
  const std::filesystem::path generation =
      directory_of_model(model.path) / "generation_config.json";
  std::error_code unusable;
  if (!model.gguf && std::filesystem::is_regular_file(generation, unusable)) {
    add_from(parse_json_object(read_text(generation, kMostBytes), printable_path(generation)));
  }
  return ends;
}

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
  const SpanCounts counts = span_counts(ids.size(1), hiding.end_token.has_value());
  TextPair result{at::empty({ids.size(0), counts.source}, at::kLong),
                  {},
                  at::empty({ids.size(0), counts.target}, at::kLong)};
  auto* source = result.source.mutable_data_ptr<std::int64_t>();
  auto* answers = result.answers.mutable_data_ptr<std::int64_t>();
  for_each_window(ids, first, hiding.seed, kHiddenByT5, [&](const auto* text, const auto& spans) {
    for (std::size_t i = 0; i < spans.size(); i += 2) {
      source = std::copy_n(text, spans[i], source);
      text += spans[i];
      *source++ = *answers++ = hiding.token - static_cast<std::int64_t>(i / 2);
      answers = std::copy_n(text, spans[i + 1], answers);
      text += spans[i + 1];
    }
    if (hiding.end_token) {
      *source++ = *answers++ = *hiding.end_token;
    }
  });
  result.target = shifted_right(result.answers, start_token);
  return result;
}

SpanCounts infilling_counts(std::int64_t context, bool with_end_token) {
  SpanCounts counts = span_counts(context, with_end_token, kHiddenByBart);
  counts.target = context + (with_end_token ? 1 : 0);
  return counts;
}

TextPair infill_text(const at::Tensor& ids, std::int64_t first, const Hiding& hiding,
                     std::int64_t start_token) {
  const std::int64_t windows = ids.size(0);
  const SpanCounts counts = infilling_counts(ids.size(1), hiding.end_token.has_value());
  TextPair result{at::empty({windows, counts.source}, at::kLong), {}, ids.contiguous()};
  auto* source = result.source.mutable_data_ptr<std::int64_t>();
  for_each_window(ids, first, hiding.seed, kHiddenByBart, [&](const auto* text, const auto& spans) {
    for (std::size_t i = 0; i < spans.size(); i += 2) {
      source = std::copy_n(text, spans[i], source);
      *source++ = hiding.token;
      text += spans[i] + spans[i + 1];
    }
    if (hiding.end_token) {
      *source++ = *hiding.end_token;
    }
  });
  if (hiding.end_token) {
    const at::Tensor ends = at::full({windows, 1}, *hiding.end_token, at::kLong);
    result.answers = at::cat({result.answers, ends}, 1);
  }
  result.target = shifted_right(result.answers, start_token);
  return result;
}

}  // namespace regroup
