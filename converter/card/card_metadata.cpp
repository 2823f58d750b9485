#include "converter/card/card_metadata.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "formats/json/json.h"

namespace regroup {
namespace {

constexpr std::array<std::string_view, 7> kLastingKeys{"base_model",   "license",  "license_name",
                                                       "license_link", "language", "library_name",
                                                       "pipeline_tag"};
constexpr std::string_view kFence = "---";

// A key with its value, or with an item in each of the following lines.
struct MetadataEntry {
  std::string key;
  std::vector<std::string_view> values;
  bool plain = true;  // whether all values are
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
         std::all_of(value.begin(), value.end(), [&](char c) {
           return is_letter(c) || is_digit(c) ||
                  std::string_view("._-/:+~%?=").find(c) != std::string_view::npos;
         });
}

// Words that YAML 1.1 or 1.2 read as a boolean or null, in any case. Readers of 1.1 differ on y and
// n.
bool is_yaml_word(std::string_view text) {
  constexpr std::array<std::string_view, 9> kWords{"y",   "n",    "yes",   "no",  "on",
                                                   "off", "true", "false", "null"};
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return std::find(kWords.begin(), kWords.end(), lower) != kWords.end();
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

// A line that begins in the first column is a key or a list item of the one before; any other is a
// list item, or part of a value that is not plain.
void add_line(std::vector<MetadataEntry>& entries, std::string_view line) {
  const std::string_view content = trimmed(line);
  if (content.empty() || content.front() == '#') {
    return;
  }
  const bool item = content.starts_with("- ");
  std::string_view value;
  if (line.front() != ' ' && !item) {
    const std::size_t colon = std::min(content.find(':'), content.size());
    entries.push_back({std::string(content.substr(0, colon)), {}, colon < content.size(), false});
    value = trimmed(content.substr(std::min(colon + 1, content.size())));
    if (value.empty()) {
      entries.back().list = true;
      return;
    }
  } else if (!entries.empty()) {
    value = trimmed(content.substr(1));
    entries.back().plain = entries.back().plain && item && entries.back().list;
  } else {
    return;
  }
  entries.back().plain = entries.back().plain && is_plain_value(without_quotes(value));
  entries.back().values.push_back(without_quotes(value));
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

}  // namespace

std::string yaml_text(std::string_view text) {
  const bool unmistakable = is_plain_value(text) && is_letter(text.front()) && !is_yaml_word(text);
  return unmistakable ? std::string(text)
                      : Json(text).dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::string lasting_metadata(std::string_view card) {
  std::string kept;
  std::vector<std::string> seen;
  for (const MetadataEntry& entry : entries_of(card)) {
    const bool lasting =
        std::find(kLastingKeys.begin(), kLastingKeys.end(), entry.key) != kLastingKeys.end();
    if (!lasting || !entry.plain || entry.values.empty() ||
        std::find(seen.begin(), seen.end(), entry.key) != seen.end()) {
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

bool has_metadata(std::string_view metadata, std::string_view key) {
  return without_metadata(metadata, key) != metadata;
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

}  // namespace regroup
