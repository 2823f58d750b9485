#include "formats/base/printable.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace regroup {

namespace {

constexpr std::string_view kBase64Digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::size_t length_of(unsigned char lead) {
  return lead < 0x80                    ? 1
         : lead >= 0xc2 && lead <= 0xdf ? 2
         : (lead & 0xf0) == 0xe0        ? 3
         : lead >= 0xf0 && lead <= 0xf4 ? 4
                                        : 0;
}

// Whether a continuation byte may follow this first byte.
bool may_follow(unsigned char lead, unsigned char second) {
  switch (lead) {
    case 0xe0: return second >= 0xa0;
    case 0xed: return second <= 0x9f;
    case 0xf0: return second >= 0x90;
    case 0xf4: return second <= 0x8f;
    default: return true;
  }
}

// Length of the well-formed, printable UTF-8 sequence at `at`, or 0.
std::size_t printable_sequence(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  const std::size_t length = utf8_sequence(text, at);
  if (length <= 1) {
    return lead >= 0x20 && lead != 0x7f ? length : 0;
  }
  const bool c1_control = lead == 0xc2 && byte(at + 1) < 0xa0;
  // U+200E..U+202E and U+2066..U+2069 reorder text on a terminal.
  const bool reorders = lead == 0xe2 && ((byte(at + 1) == 0x80 && byte(at + 2) >= 0x8e) ||
                                         (byte(at + 1) == 0x81 && byte(at + 2) >= 0xa0));
  return c1_control || reorders ? 0 : length;
}

}  // namespace

std::size_t utf8_sequence(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const std::size_t length = length_of(lead);
  const std::string_view rest = text.substr(at + 1, length == 0 ? 0 : length - 1);
  const bool complete =
      length > 0 && rest.size() == length - 1 && std::ranges::all_of(rest, continues_utf8);
  return complete && (length == 1 || may_follow(lead, static_cast<unsigned char>(rest[0]))) ? length
                                                                                            : 0;
}

std::size_t valid_utf8_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t length = utf8_sequence(text, at);
    if (length == 0) {
      return at;
    }
    at += length;
  }
  return at;
}

void append_utf8(std::string& text, char32_t code_point) {
  constexpr std::array<unsigned, 4> kLeads{0x00, 0xc0, 0xe0, 0xf0};  // by the bytes that follow
  const unsigned more = code_point < 0x80      ? 0
                        : code_point < 0x800   ? 1
                        : code_point < 0x10000 ? 2
                                               : 3;
  text += static_cast<char>(kLeads[more] | code_point >> 6 * more);
  for (unsigned i = more; i-- > 0;) {
    text += static_cast<char>(0x80 | (code_point >> 6 * i & 0x3f));
  }
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::string replaced;
  std::size_t done = 0;
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, done)) {
    replaced.append(text, done, at - done).append(to);
    done = at + from.size();
  }
  if (done > 0) {
    text = replaced.append(text, done);
  }
}

std::string printable_path(const std::filesystem::path& path) {
  return printable(path.string(), 0);
}

std::string printable(std::string_view text, std::size_t max_bytes) {
  std::string shown;
  for (std::size_t at = 0; at < text.size();) {
    if (max_bytes != 0 && shown.size() >= max_bytes) {
      return shown + "...";
    }
    const std::size_t length = printable_sequence(text, at);
    if (length == 0) {
      fmt::format_to(std::back_inserter(shown), "\\x{:02x}", static_cast<unsigned char>(text[at]));
      ++at;
    } else {
      shown.append(text.substr(at, length));
      at += length;
    }
  }
  return shown;
}

// The optimal string alignment distance (Damerau-Levenshtein without repeated edits of a part).
// Only three rows of the table of distances between prefixes are kept.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::string nearest_name(std::string_view typed, const std::vector<std::string>& names) {
  constexpr std::size_t kLongest = 64;  // longer words are not misspelt names
  std::string nearest;
  std::size_t least = std::max<std::size_t>(1, typed.size() / 3) + 1;
  for (const std::string& name : names) {
    const std::size_t distance = typed.size() > kLongest ? least : edit_distance(typed, name);
    if (distance < least) {
      least = distance;
      nearest = name;
    }
  }
  const auto begun = std::ranges::find_if(
      names, [&](const std::string& name) { return typed.size() > 2 && name.starts_with(typed); });
  return nearest.empty() && begun != names.end() ? *begun : nearest;
}

std::string first_of(const std::vector<std::string>& sentences, std::size_t shown) {
  const auto first = std::span(sentences).first(std::min(sentences.size(), shown));
  const std::size_t more = sentences.size() - first.size();
  return fmt::format("{}{}", fmt::join(first, "; "),
                     more > 0 ? fmt::format("; and {} more", more) : "");
}

std::string base64_of(std::string_view bytes) {
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = std::min<std::size_t>(bytes.size() - at, 3);
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; ++i) {
      group = group << 8 | (i < count ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      text += i <= count ? kBase64Digits[group >> (18 - 6 * i) & 63] : '=';
    }
  }
  return text;
}

std::optional<std::string> bytes_of_base64(std::string_view text) {
  const std::size_t end = text.find_last_not_of('=') + 1;
  if (text.size() % 4 != 0 || text.size() - end > 2 ||
      text.find_first_not_of(kBase64Digits) < end) {
    return std::nullopt;
  }
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char digit : text.substr(0, end)) {
    bits = bits << 6 | static_cast<std::uint32_t>(kBase64Digits.find(digit));
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>(bits >> count & 0xff);
    }
  }
  return bytes;
}

}  // namespace regroup
