#include "converter/card/card_metadata.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

namespace regroup {
namespace {

constexpr std::array<std::string_view, 7> kLastingKeys{"base_model",   "license",  "license_name",
                                                       "license_link", "language", "library_name",
                                                       "pipeline_tag"};
constexpr std::string_view kFence = "---";

// A key with its value, or with an item in each of the following lines.
struct MetadataEntry {
  std::string key, lines;
  bool plain = true;  // whether all values are
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

// Whether YAML reads `value` as one plain word, with or without quotes.
bool is_plain_value(std::string_view value) {
  if (value.size() > 2 && (value.front() == '"' || value.front() == '\'') &&
      value.back() == value.front()) {
    value = value.substr(1, value.size() - 2);
  }
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  return !value.empty() && value.size() <= 200 && is_letter(value.front()) && value.back() != ':' &&
         std::all_of(value.begin(), value.end(), [&](char c) {
           return is_letter(c) || std::string_view("._-/:+~%?=").find(c) != std::string_view::npos;
         });
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
  if (line.front() != ' ' && !item) {
    const std::size_t colon = content.find(':');
    const std::string_view value =
        colon == std::string_view::npos ? "" : trimmed(content.substr(colon + 1));
    entries.push_back(
        {std::string(content.substr(0, colon)), std::string(content) + "\n",
         colon != std::string_view::npos && (value.empty() || is_plain_value(value))});
  } else if (!entries.empty()) {
    MetadataEntry& entry = entries.back();
    entry.plain = entry.plain && item && entry.lines.find(":\n") == entry.key.size() &&
                  is_plain_value(trimmed(content.substr(1)));
    entry.lines += std::string(content) + "\n";
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

}  // namespace

std::string lasting_metadata(std::string_view card) {
  std::string kept;
  std::vector<std::string> seen;
  for (const MetadataEntry& entry : entries_of(card)) {
    const bool lasting =
        std::find(kLastingKeys.begin(), kLastingKeys.end(), entry.key) != kLastingKeys.end();
    const bool has_value = entry.lines != entry.key + ":\n";
    if (lasting && entry.plain && has_value &&
        std::find(seen.begin(), seen.end(), entry.key) == seen.end()) {
      kept += entry.lines;
      seen.push_back(entry.key);
    }
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
