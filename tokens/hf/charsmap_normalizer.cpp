// The normalizer "Precompiled": SentencePiece's rules as a double-array trie, applied as the
// tokenizers package applies them (not as SentencePiece does).
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/utf8.h"
#include "formats/vocabulary/charsmap.h"
#include "tokens/hf/normalizers.h"
#include "tokens/hf/unicode.h"
#include "tokens/hf/work.h"

namespace regroup {
namespace {

constexpr std::size_t kMaxEncoded = 8U << 20;
constexpr std::size_t kLongestGrapheme = 5;  // in bytes; longer ones are replaced by character

std::string decoded_base64(const JsonFields& fields, std::string_view key) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string encoded = fields.text(key);
  const std::size_t end = encoded.find_last_not_of('=') + 1;
  const bool padded = encoded.size() % 4 == 0 && encoded.size() - end <= 2;
  if (!padded || encoded.size() > kMaxEncoded || encoded.find_first_not_of(kDigits) < end) {
    fields.refuse(key, "base64 of at most 8 MiB");
  }
  encoded.resize(end);
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char digit : encoded) {
    bits = bits << 6 | static_cast<std::uint32_t>(kDigits.find(digit));
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>(bits >> count & 0xff);
    }
  }
  return bytes;
}

bool is_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t length = utf8_sequence(text, at);
    if (length == 0) {
      return false;
    }
    at += length;
  }
  return true;
}

class CharsmapNormalizer : public Normalizer {
 public:
  // `rules` have passed check_charsmap().
  explicit CharsmapNormalizer(std::string_view rules) {
    std::uint32_t trie_bytes = 0;
    std::memcpy(&trie_bytes, rules.data(), sizeof(trie_bytes));
    rules.remove_prefix(sizeof(trie_bytes));
    units_.resize(trie_bytes / sizeof(std::uint32_t));
    std::memcpy(units_.data(), rules.data(), trie_bytes);
    replacements_ = rules.substr(trie_bytes);
  }

  const std::string& replacements() const { return replacements_; }

  void apply(NormalText& text) const override {
    const Work& work = Work::of_thread();
    std::string normal;
    normal.reserve(text.text.size());
    for (std::string_view rest = text.text; !rest.empty();) {
      const std::string_view grapheme = rest.substr(0, grapheme_at(rest));
      rest.remove_prefix(grapheme.size());
      const auto whole =
          grapheme.size() <= kLongestGrapheme ? replacement_of(grapheme) : std::nullopt;
      if (whole) {
        normal += *whole;
      } else {
        append_by_character(grapheme, normal);
      }
      work.check_size(normal.size());
    }
    text.text = std::move(normal);
  }

 private:
  static std::size_t grapheme_at(std::string_view text) {
    // Two ASCII characters are never one grapheme, except for a line end of two.
    const bool ascii = is_ascii(text[0]) && (text.size() == 1 || is_ascii(text[1]));
    return ascii && text[0] != '\r' ? 1 : first_grapheme(text);
  }

  void append_by_character(std::string_view grapheme, std::string& normal) const {
    for (std::size_t at = 0; at < grapheme.size();) {
      const std::size_t begin = at;
      next_character(grapheme, at);
      const std::string_view character = grapheme.substr(begin, at - begin);
      normal += replacement_of(character).value_or(character);
    }
  }

  // The replacement of the shortest rule that `text` begins with.
  std::optional<std::string_view> replacement_of(std::string_view text) const {
    std::uint32_t place = offset(units_[0]);
    for (const char byte : text) {
      const auto label = static_cast<unsigned char>(byte);
      place ^= label;
      const std::uint32_t unit = units_[place];
      if (label == 0 || (unit & 0x800000ffU) != label) {
        return std::nullopt;
      }
      place ^= offset(unit);
      if ((unit >> 8 & 1) != 0) {
        return replacement_at(units_[place] & 0x7fffffffU);
      }
    }
    return std::nullopt;
  }

  std::string_view replacement_at(std::size_t begin) const {
    if (continues_utf8(replacements_[begin])) {
      throw_bad_input(
          "the tokenizer's precompiled_charsmap begins a replacement inside a character");
    }
    return replacements_.c_str() + begin;
  }

  static std::uint32_t offset(std::uint32_t unit) { return unit >> 10 << ((unit & 1U << 9) >> 6); }

  std::vector<std::uint32_t> units_;
  std::string replacements_;  // each ends with a zero
};

}  // namespace

std::unique_ptr<Normalizer> read_charsmap_normalizer(const JsonFields& fields) {
  fields.allow({"type", "precompiled_charsmap"});
  const std::string rules = decoded_base64(fields, "precompiled_charsmap");
  if (rules.empty()) {
    fields.refuse("precompiled_charsmap", "a set of rules");
  }
  check_charsmap(rules, fields.where());
  auto normalizer = std::make_unique<CharsmapNormalizer>(rules);
  if (!is_utf8(normalizer->replacements())) {
    fields.refuse_all("precompiled_charsmap has replacements that are not UTF-8");
  }
  return normalizer;
}

}  // namespace regroup
