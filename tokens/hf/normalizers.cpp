#include <cstring>
#include <unordered_map>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/vocabulary/sentencepiece.h"
#include "formats/vocabulary/tokenizer_files.h"
#include "tokens/hf/regex.h"
#include "tokens/hf/steps.h"
#include "tokens/hf/unicode.h"
#include "tokens/hf/work.h"

namespace regroup {
namespace {

// Keeps each character, replaces it or leaves it out. `change` returns what becomes of it; nothing
// drops it.
template <typename Change>
void map_characters(NormalText& text, Change&& change) {
  std::string mapped;
  mapped.reserve(text.text.size());
  for (std::size_t at = 0; at < text.text.size();) {
    const std::size_t begin = at;
    const char32_t character = next_character(text.text, at);
    const std::optional<char32_t> changed = change(character);
    if (changed == character) {
      mapped.append(text.text, begin, at - begin);
    } else if (changed) {
      append_utf8(mapped, *changed);
    } else if (begin == 0) {
      text.origin.at_start = false;
    }
  }
  text.text = std::move(mapped);
}

std::optional<char32_t> clean_character(char32_t character) {
  if (character == 0 || character == 0xfffd || is_control_character(character)) {
    return std::nullopt;
  }
  return is_white_space(character) ? U' ' : character;
}

std::optional<char32_t> nmt_character(char32_t character) {
  if ((character >= 1 && character <= 8) || character == 11 ||
      (character >= 14 && character <= 31) || character == 0x7f || character == 0x8f ||
      character == 0x9f) {
    return std::nullopt;
  }
  const bool space = character == 9 || character == 10 || character == 12 || character == 13 ||
                     character == 0x1680 || (character >= 0x200b && character <= 0x200f) ||
                     character == 0x2028 || character == 0x2029 || character == 0x2581 ||
                     character == 0xfeff || character == 0xfffd;
  return space ? U' ' : character;
}

std::string with_spaces_around_chinese(const std::string& text) {
  std::string spaced;
  spaced.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const bool chinese = is_chinese_character(next_character(text, at));
    spaced += chinese ? " " : "";
    spaced.append(text, begin, at - begin);
    spaced += chinese ? " " : "";
  }
  return spaced;
}

// Leaves out the characters for which `drops` is true.
void drop_characters(NormalText& text, bool (*drops)(char32_t)) {
  map_characters(text, [&](char32_t character) {
    return drops(character) ? std::nullopt : std::optional(character);
  });
}

using Maker = std::function<Normalizer(const JsonFields&)>;

Maker without_settings(Normalizer change) {
  return [change = std::move(change)](const JsonFields& fields) {
    fields.allow({"type"});
    return change;
  };
}

Maker form_maker(NormalForm form) {
  return without_settings([form](NormalText& text) { text.text = normal_form(text.text, form); });
}

Normalizer read_bert_normalizer(const JsonFields& fields) {
  fields.allow({"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  const bool cleans = fields.flag("clean_text"), spaces = fields.flag("handle_chinese_chars");
  const bool lowers = fields.flag("lowercase"), strips = fields.flag("strip_accents", lowers);
  return [=](NormalText& text) {
    if (cleans) {
      map_characters(text, clean_character);
    }
    if (spaces) {
      text.text = with_spaces_around_chinese(text.text);
    }
    if (strips) {
      text.text = normal_form(text.text, NormalForm::kNfd);
      drop_characters(text, is_nonspacing_mark);
    }
    if (lowers) {
      text.text = lower_case(text.text);
    }
  };
}

// A part that continues a document keeps the white space at its beginning.
Normalizer read_strip(const JsonFields& fields) {
  fields.allow({"type", "strip_left", "strip_right"});
  return [left = fields.flag("strip_left"), right = fields.flag("strip_right")](NormalText& text) {
    std::size_t begin = 0, end = text.text.size();
    for (std::size_t at = 0; left && !text.origin.continues && at < end;) {
      if (!is_white_space(next_character(text.text, at))) {
        break;
      }
      begin = at;
    }
    std::size_t kept = begin;
    for (std::size_t at = begin; right && at < end;) {
      kept = is_white_space(next_character(text.text, at)) ? kept : at;
    }
    end = right ? kept : end;
    text.origin.at_start = text.origin.at_start && begin == 0;
    text.text = text.text.substr(begin, end - begin);
  };
}

Normalizer read_replace(const JsonFields& fields) {
  fields.allow({"type", "pattern", "content"});
  const auto pattern = read_pattern(fields.object("pattern"));
  return [pattern, content = fields.short_text("content")](NormalText& text) {
    const Work& work = Work::of_thread();
    std::string replaced;
    std::size_t done = 0;
    pattern->for_each_match(text.text, [&](std::size_t begin, std::size_t end) {
      replaced.append(text.text, done, begin - done);
      replaced += content;
      done = end;
      work.check_size(replaced.size());
    });
    if (done > 0 || !replaced.empty()) {
      text.text = replaced.append(text.text, done);
    }
  };
}

Normalizer read_prepend(const JsonFields& fields) {
  fields.allow({"type", "prepend"});
  return [prefix = fields.short_text("prepend")](NormalText& text) {
    if (!text.text.empty() && !text.origin.continues) {
      text.text.insert(0, prefix);
    }
  };
}

// The normalizer "Precompiled": SentencePiece's rules as a double-array trie, applied as the
// tokenizers package applies them (not as SentencePiece does).

constexpr std::size_t kMaxEncoded = 8U << 20;
constexpr std::size_t kLongestGrapheme = 5;  // in bytes; longer ones are replaced by character

class Charsmap {
 public:
  // `rules` have passed check_charsmap().
  explicit Charsmap(std::string_view rules) {
    const auto trie_bytes = number_at<std::uint32_t>(rules);
    rules.remove_prefix(sizeof(trie_bytes));
    units_.resize(trie_bytes / sizeof(CharsmapUnit));
    std::memcpy(units_.data(), rules.data(), trie_bytes);
    replacements_ = rules.substr(trie_bytes);
  }

  const std::string& replacements() const { return replacements_; }

  void apply(NormalText& text) const {
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
    std::uint32_t place = units_[0].offset();
    for (const char byte : text) {
      const auto label = static_cast<unsigned char>(byte);
      place ^= label;
      const CharsmapUnit unit = units_[place];
      if (label == 0 || unit.is_value() || unit.label() != label) {
        return std::nullopt;
      }
      place ^= unit.offset();
      if (unit.ends_rule()) {
        return replacement_at(units_[place].value());
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

  std::vector<CharsmapUnit> units_;
  std::string replacements_;  // each ends with a zero
};

Normalizer read_charsmap(const JsonFields& fields) {
  constexpr const char* kKey = "precompiled_charsmap";
  fields.allow({"type", kKey});
  const std::string encoded = fields.text(kKey);
  const auto rules = bytes_of_base64(encoded);
  if (!rules || encoded.size() > kMaxEncoded) {
    fields.refuse(kKey, "base64 of at most 8 MiB");
  }
  if (rules->empty()) {
    fields.refuse(kKey, "a set of rules");
  }
  check_charsmap(*rules, fields.where());
  const auto charsmap = std::make_shared<const Charsmap>(*rules);
  if (!is_utf8(charsmap->replacements())) {
    fields.refuse_all("precompiled_charsmap has replacements that are not UTF-8");
  }
  return [charsmap](NormalText& text) { charsmap->apply(text); };
}

}  // namespace

void read_normalizer(const JsonFields& fields, std::vector<Normalizer>& normalizers) {
  static const std::unordered_map<std::string, Maker> makers{
      {"NFC", form_maker(NormalForm::kNfc)},
      {"NFD", form_maker(NormalForm::kNfd)},
      {"NFKC", form_maker(NormalForm::kNfkc)},
      {"NFKD", form_maker(NormalForm::kNfkd)},
      {"Lowercase", without_settings([](NormalText& text) { text.text = lower_case(text.text); })},
      {"StripAccents", without_settings([](NormalText& text) { drop_characters(text, is_mark); })},
      {"Nmt", without_settings([](NormalText& text) { map_characters(text, nmt_character); })},
      {"ByteLevel",
       without_settings([](NormalText& text) { text.text = byte_level_text(text.text); })},
      {"BertNormalizer", read_bert_normalizer},
      {"Strip", read_strip},
      {"Replace", read_replace},
      {"Prepend", read_prepend},
      {"Precompiled", read_charsmap},
  };
  read_steps(fields, "normalizers", "a normalizer that regroup supports", makers, normalizers);
}

}  // namespace regroup
