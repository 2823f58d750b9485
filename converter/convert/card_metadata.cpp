#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "converter/convert/model_card.h"
#include "converter/convert/runtimes.h"
#include "converter/convert/target.h"
#include "formats/base/error.h"
#include "formats/base/ranges.h"
#include "formats/families/family.h"
#include "formats/families/gguf_model.h"

namespace regroup {

namespace {

constexpr std::array<std::string_view, 10> kLastingKeys{
    "base_model", "model_name",   "license",      "license_name", "license_link",
    "language",   "library_name", "pipeline_tag", "datasets",     "tags"};
// Lists of which some values may be left out. Half of a license would be another one.
constexpr std::array<std::string_view, 3> kPartlyLasting{"language", "datasets", "tags"};
constexpr std::string_view kFence = "---";

// A key with its value, or with a list of them.
struct MetadataEntry {
  std::string key;
  std::vector<std::string_view> values;  // plain ones
  bool plain = true;  // whether it is a value or a list of values, and not something nested
  bool list = false;
};

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char letter) { return letter == ' ' || letter == '\r'; };
  while (!text.empty() && is_space(text.front())) {
    text.remove_prefix(1);
  }
  while (!text.empty() && is_space(text.back())) {
    text.remove_suffix(1);
  }
  return text;
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view without_quotes(std::string_view value) {
  const bool quoted = value.size() > 2 && (value.front() == '"' || value.front() == '\'') &&
                      value.back() == value.front();
  return quoted ? value.substr(1, value.size() - 2) : value;
}

// Whether `value`, without quotes, is one plain word.
bool is_plain_value(std::string_view value) {
  return !value.empty() && value.size() <= 200 &&
         (is_letter(value.front()) || is_digit(value.front())) && value.back() != ':' &&
         std::ranges::all_of(value, [&](char c) {
           return is_letter(c) || is_digit(c) || contains(std::string_view("._-/:+~%?="), c);
         });
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return lower;
}

// Words that YAML 1.1 or 1.2 read as a boolean or null, in any case. Readers of 1.1 differ on y and
// n.
bool is_yaml_word(std::string_view text) {
  constexpr std::array<std::string_view, 9> kWords{"y",   "n",    "yes",   "no",  "on",
                                                   "off", "true", "false", "null"};
  return contains(kWords, lower_case(text));
}

std::optional<std::string_view> next_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  if (end == std::string_view::npos) {
    return std::nullopt;
  }
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end + 1);
  return line;
}

// Adds a value without its quotes, if it is plain.
void add_value(MetadataEntry& entry, std::string_view value) {
  const std::string_view text = without_quotes(trimmed(value));
  if (is_plain_value(text)) {
    entry.values.push_back(text);
  } else if (!contains(kPartlyLasting, entry.key)) {
    entry.plain = false;
  }
}

// A line that begins in the first column is a key or a list item of the one before; any other is a
// list item, or part of a value that is not plain.
void add_line(std::vector<MetadataEntry>& entries, std::string_view line) {
  const std::string_view content = trimmed(line.substr(0, line.find(" #")));
  if (content.empty() || content.front() == '#') {
    return;
  }
  const bool item = content.starts_with("- ");
  if (line.front() == ' ' || item) {
    if (!entries.empty()) {
      entries.back().plain = entries.back().plain && item && entries.back().list;
      add_value(entries.back(), content.substr(1));
    }
    return;
  }
  const std::size_t colon = std::min(content.find(':'), content.size());
  const std::string_view value = trimmed(content.substr(std::min(colon + 1, content.size())));
  const bool in_brackets = value.size() >= 2 && value.front() == '[' && value.back() == ']';
  entries.push_back({std::string(content.substr(0, colon)),
                     {},
                     colon < content.size(),
                     value.empty() || in_brackets});
  if (!in_brackets && !value.empty()) {
    add_value(entries.back(), value);
  }
  std::string_view rest = in_brackets ? value.substr(1, value.size() - 2) : "";
  while (!rest.empty()) {  // "[a, b]"
    const std::size_t end = std::min(rest.find(','), rest.size());
    add_value(entries.back(), rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

// The entries between the first two fences; none without them.
std::vector<MetadataEntry> entries_of(std::string_view card) {
  std::vector<MetadataEntry> entries;
  auto line = next_line(card);
  if (!line || trimmed(*line) != kFence) {
    return {};
  }
  while ((line = next_line(card))) {
    if (trimmed(*line) == kFence) {
      return entries;
    }
    add_line(entries, *line);
  }
  return {};
}

// A text of a GGUF file that fits into a line of metadata; empty for others.
std::string line_in(const GgufMetadata& gguf, std::string_view key) {
  const GgufMetadata::Entry* entry = gguf.find(key);
  const std::string text(entry != nullptr && entry->type == GgufType::kString ? *gguf.text(key)
                                                                              : "");
  return text.find_first_of("\r\n") == std::string::npos ? text : "";
}

// "owner/name" of an address on the hub, or of such a name.
std::string hub_repository(std::string text) {
  constexpr std::string_view kHub = "https://huggingface.co/";
  text.erase(0, text.starts_with(kHub) ? kHub.size() : 0);
  return std::ranges::count(text, '/') == 1 ? text : "";
}

}  // namespace

std::string yaml_text(std::string_view text) {
  const bool unmistakable = is_plain_value(text) && is_letter(text.front()) && !is_yaml_word(text);
  return unmistakable ? std::string(text)
                      : Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
}

bool is_format_word(std::string_view word) {
  constexpr std::array<std::string_view, 18> kFormats{
      "gguf",      "ggml", "llama.cpp", "llama-cpp", "mlx",    "onnx",
      "openvino",  "gptq", "awq",       "exl2",      "exl3",   "bitsandbytes",
      "quantized", "fp8",  "4-bit",     "8-bit",     "marlin", "compressed-tensors"};
  return contains(kFormats, lower_case(word));
}

std::string lasting_metadata(std::string_view card) {
  std::string kept;
  std::vector<std::string> seen;
  for (const MetadataEntry& entry : entries_of(card)) {
    const bool lasting = contains(kLastingKeys, entry.key) &&
                         !(entry.key == "library_name" && !entry.values.empty() &&
                           is_format_word(entry.values.front()));
    if (!lasting || !entry.plain || entry.values.empty() || contains(seen, entry.key)) {
      continue;
    }
    kept += entry.key + ":" + (entry.list ? "\n" : " ");
    for (const std::string_view value : entry.values) {
      kept += (entry.list ? "- " : "") + yaml_text(value) + "\n";
    }
    seen.push_back(entry.key);
  }
  return kept;
}

std::string lasting_metadata(const GgufMetadata& gguf) {
  std::string base;
  for (const std::string_view key :
       {"general.source.huggingface.repository", "general.source.repo_url", "general.repo_url",
        "general.base_model.0.repo_url"}) {
    base = base.empty() ? hub_repository(line_in(gguf, key)) : base;
  }
  std::string name = line_in(gguf, "general.name");
  std::ranges::replace(name, ' ', '-');
  std::string card = fmt::format("{0}\nbase_model: {1}\nmodel_name: {2}\n", kFence, base, name);
  for (const std::string_view suffix : {"", "_name", "_link"}) {
    card +=
        fmt::format("license{}: {}\n", suffix,
                    line_in(gguf, "general.license" +
                                      (suffix.empty() ? "" : "." + std::string(suffix.substr(1)))));
  }
  const GgufMetadata::Entry* languages = gguf.find("general.languages");
  if (languages != nullptr && languages->type == GgufType::kArray) {
    card += "language:\n";
    for (const std::string_view language :
         gguf.array("general.languages")->strings().value_or(std::vector<std::string_view>())) {
      const bool one_line = language.find_first_of("\r\n") == std::string_view::npos;
      card += one_line ? fmt::format("- {}\n", language) : "";
    }
  }
  return lasting_metadata(card + std::string(kFence) + "\n");
}

bool has_metadata(std::string_view metadata, std::string_view key) {
  return without_metadata(metadata, key) != metadata;
}

std::string metadata_value(std::string_view metadata, std::string_view key) {
  const std::string start = std::string(key) + ":";
  while (const auto line = next_line(metadata)) {
    if (line->starts_with(start)) {
      return std::string(without_quotes(trimmed(line->substr(start.size()))));
    }
  }
  return "";
}

std::vector<std::string> metadata_values(std::string_view metadata, std::string_view key) {
  std::vector<std::string> values;
  bool inside = false;
  while (const auto line = next_line(metadata)) {
    if (!line->starts_with("- ")) {
      inside = *line == std::string(key) + ":";
      const std::string start = std::string(key) + ": ";
      if (line->starts_with(start)) {
        values.emplace_back(without_quotes(line->substr(start.size())));
      }
    } else if (inside) {
      values.emplace_back(without_quotes(line->substr(2)));
    }
  }
  return values;
}

std::string without_metadata(std::string_view metadata, std::string_view key) {
  std::string others;
  bool dropped = false;
  while (const auto line = next_line(metadata)) {
    dropped = line->starts_with("- ") ? dropped : line->starts_with(std::string(key) + ":");
    others += dropped ? "" : std::string(*line) + "\n";
  }
  return others;
}

namespace {

// Who supports the model's heads in transformers.
enum class LoadedBy { kStockClasses, kCarriedCode, kOwnCode, kUnknown, kNoClasses, kNothing };

LoadedBy loaded_by(const Json& config, const ModelSpec& spec, const DirectoryCode& code) {
  if (code.carried) {
    return LoadedBy::kCarriedCode;
  }
  if (has_own_code(config) || has_loader_code(config)) {
    return LoadedBy::kOwnCode;
  }
  if (loaders_are_unknown(spec)) {
    return LoadedBy::kUnknown;
  }
  if (!spec.layer_configs_key.empty()) {
    return LoadedBy::kNoClasses;
  }
  return loaders_take_heads(spec) && !has_alibi_names(config) ? LoadedBy::kStockClasses
                                                              : LoadedBy::kNothing;
}

constexpr std::string_view kNoClasses =
    "no: it has neither a config class nor a model class for this model_type";
constexpr std::string_view kWithoutHead = "AutoModel";

std::string_view auto_class_of(const ModelSpec& spec) {
  const std::string_view name = spec.architecture;
  if (name.ends_with("ForCausalLM") || name.ends_with("LMHeadModel")) {
    return "AutoModelForCausalLM";
  }
  if (name.ends_with("ForConditionalGeneration") || name.ends_with("MTModel")) {
    return spec.spectrum.present() ? "AutoModelForSpeechSeq2Seq" : "AutoModelForSeq2SeqLM";
  }
  return name.ends_with("ForMaskedLM") ? "AutoModelForMaskedLM" : kWithoutHead;
}

}  // namespace

std::string_view pipeline_tag_of(const ModelSpec& spec) {
  const std::string_view loader = spec.whole_model.empty() ? auto_class_of(spec) : "";
  return loader == "AutoModelForCausalLM"   ? "text-generation"
         : loader == "AutoModelForMaskedLM" ? "fill-mask"
         : loader == kWithoutHead && spec.architecture.ends_with("Model") &&
                 !spec.architecture.ends_with("RewardModel")
             ? "feature-extraction"
             : "";
}

namespace {

std::string in_transformers(LoadedBy loader, const ModelSpec& spec) {
  const auto call = [&](std::string_view options) {
    return fmt::format(
        "`{}.from_pretrained(DIRECTORY{})`",
        spec.whole_model.empty() ? std::string(auto_class_of(spec)) : card_word(spec.architecture),
        options);
  };
  switch (loader) {
    case LoadedBy::kStockClasses:
      return call("") + (transformers_caches_all_heads(spec)
                             ? "; its cache has all query heads all the same"
                             : "");
    case LoadedBy::kCarriedCode:
      return call(", trust_remote_code=True") +
             ": runs Python files of this directory; `AutoTokenizer` needs it, too";
    case LoadedBy::kOwnCode:
      return call(", trust_remote_code=True") + ", if the model's own code supports these heads";
    case LoadedBy::kUnknown: return "not known for this architecture";
    case LoadedBy::kNoClasses: return std::string(kNoClasses);
    case LoadedBy::kNothing: break;
  }
  return "no: its classes do not support these heads";
}

// sentence-transformers loads the model as transformers does.
std::string sentence_transformers_row(LoadedBy loader, std::string_view metadata) {
  if (metadata.find("library_name: sentence-transformers\n") == std::string_view::npos ||
      loader == LoadedBy::kUnknown || loader == LoadedBy::kNothing) {
    return "";
  }
  return fmt::format("| sentence-transformers | `SentenceTransformer(DIRECTORY{})` |\n",
                     loader == LoadedBy::kStockClasses ? "" : ", trust_remote_code=True");
}

struct Commands {
  Runtime runtime;
  std::string_view plain, with_code;  // the second lets the code in the directory run
  std::string_view in_other;          // for a nemotron-nas model in OTHER
};

constexpr std::array kCommands{
    Commands{Runtime::kVllm, "vllm serve DIRECTORY",
             "vllm serve DIRECTORY --trust-remote-code --model-impl transformers",
             "vllm serve OTHER --trust-remote-code"},
    Commands{Runtime::kMlxLm, "mlx_lm.generate --model DIRECTORY", "",
             "mlx_lm.generate --model OTHER"},
    Commands{Runtime::kCTranslate2,
             "ct2-transformers-converter --model DIRECTORY --output_dir CONVERTED", "", ""},
};

std::string command_in(const Commands& commands, LoadedBy loader, const Served& served) {
  const Loading loading = loader == LoadedBy::kOwnCode || loader == LoadedBy::kUnknown
                              ? Loading::kUnknown
                              : loading_in(commands.runtime, served);
  switch (loading) {
    case Loading::kSame: return fmt::format("`{}`", commands.plain);
    case Loading::kByCarriedCode: return fmt::format("`{}`", commands.with_code);
    case Loading::kNotThisResult:
      return has_layers_of_nas(served.spec) && commands.runtime != Runtime::kCTranslate2
                 ? fmt::format(
                       "after `regroup convert DIRECTORY OTHER --target nemotron-nas`: "
                       "`{}`",
                       commands.in_other)
                 : "no: it does not load these heads";
    case Loading::kNotThisFamily: return "no: it does not load this architecture";
    case Loading::kByCarriedConfig: return fmt::format("`{} --trust-remote-code`", commands.plain);
    case Loading::kSomethingElse:
      return fmt::format("**no**: it computes something else, without an error: {}",
                         difference_in(commands.runtime, served));
    case Loading::kUnknown: break;
  }
  return "not tried";
}

std::string runtime_rows(LoadedBy loader, const Served& served) {
  std::string rows;
  for (const Commands& commands : kCommands) {
    rows += fmt::format("| {} | {} |\n", name_of(commands.runtime),
                        command_in(commands, loader, served));
  }
  return rows;
}

std::string in_llama_cpp(const Json& config, const ModelSpec& spec) {
  if (!spec.whole_model.empty()) {
    return "not tried";
  }
  try {
    if (!has_alibi_names(config) && !spec.attention_only() && auto_class_of(spec) != kWithoutHead) {
      gguf_metadata_for(spec);
      return "after `regroup convert DIRECTORY model.gguf --to gguf`";
    }
  } catch (const Error&) {  // no graph computes this model
  }
  return "no: it has no graph that computes this model";
}

// What the table does not vouch for.
std::string foreign_code_list(const DirectoryCode& code) {
  constexpr std::size_t kShown = 100;
  constexpr std::string_view kInPaths = "/: ";
  if (code.foreign.empty()) {
    return "";
  }
  std::string list =
      "\n**Code that regroup did not write.** It was here before the conversion, and loaders may "
      "run "
      "it. Read it before you let them, as with `trust_remote_code=True`.\n\n";
  for (const ForeignCode& each :
       std::span(code.foreign).first(std::min(code.foreign.size(), kShown))) {
    list += fmt::format("- `{}`{}\n", card_word(each.place, kInPaths),
                        each.code.empty() ? "" : " = `" + card_word(each.code, kInPaths) + "`");
  }
  return list + (code.foreign.size() > kShown
                     ? fmt::format("- and {} more\n", code.foreign.size() - kShown)
                     : "");
}

}  // namespace

std::string card_word(std::string_view text, std::string_view also) {
  std::string word(text.substr(0, 200));
  const auto is_strange = [&](char c) {
    return !is_letter(c) && !is_digit(c) && !contains(std::string_view("_.-"), c) &&
           !contains(also, c);
  };
  std::ranges::replace_if(word, is_strange, '?');
  return word;
}

std::string loading_section(const Json& config, const ModelSpec& spec, std::string_view metadata,
                            const DirectoryCode& code) {
  const LoadedBy loader = loaded_by(config, spec, code);
  return fmt::format(
      "\n## How to load it\n\n| Runtime | |\n|---|---|\n| transformers | {} |\n{}{}"
      "| llama.cpp | {} |\n| regroup | {} |\n{}",
      in_transformers(loader, spec), sentence_transformers_row(loader, metadata),
      runtime_rows(has_alibi_names(config) ? LoadedBy::kUnknown : loader, {config, spec}),
      in_llama_cpp(config, spec),
      spec.not_computable.empty() && auto_class_of(spec) != kWithoutHead
          ? "`regroup eval DIRECTORY --text TEXT.txt`"
          : "`regroup inspect DIRECTORY`",
      foreign_code_list(code));
}

}  // namespace regroup
