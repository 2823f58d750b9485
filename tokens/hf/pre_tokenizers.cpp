#include <unordered_map>

#include "formats/vocabulary/tokenizer_files.h"
#include "tokens/hf/regex.h"
#include "tokens/hf/steps.h"
#include "tokens/hf/unicode.h"

namespace regroup {
namespace {

// GPT-2's words: contractions, letters, digits and other signs, each with a space before, and runs
// of white space without the space that belongs to the next word.
constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Parts by the matches of an expression. `inverted`: what is between them is the match.
FindParts parts_by(std::shared_ptr<const Regex> regex, bool inverted) {
  return [regex = std::move(regex), inverted](std::string_view piece, std::vector<Part>& parts) {
    regex->for_each_match(piece, [&](std::size_t begin, std::size_t end) {
      append_until(parts, begin, inverted);
      parts.push_back({begin, end, !inverted});  // even if it is empty
    });
    append_until(parts, piece.size(), inverted);
  };
}

// Parts by a text.
FindParts parts_by(const std::string& sought) {
  return [sought](std::string_view piece, std::vector<Part>& parts) {
    for (std::size_t at = piece.find(sought); at != std::string_view::npos;
         at = piece.find(sought, at + sought.size())) {
      append_until(parts, at, false);
      append_until(parts, at + sought.size(), true);
    }
    append_until(parts, piece.size(), false);
  };
}

// Parts by single characters. For kContiguous, runs of matching characters stay together.
FindParts parts_by(bool (*matches)(char32_t)) {
  return [matches](std::string_view piece, std::vector<Part>& parts) {
    for (std::size_t at = 0; at < piece.size();) {
      const std::size_t begin = at;
      if (matches(next_character(piece, at))) {
        append_until(parts, begin, false);
        append_until(parts, at, true);
      }
    }
    append_until(parts, piece.size(), false);
  };
}

PreTokenizer splitter(SplitBehavior behavior, FindParts find) {
  return
      [behavior, find = std::move(find)](Pieces& pieces) { split_pieces(pieces, behavior, find); };
}

SplitBehavior behavior_in(const JsonFields& fields) {
  static const std::unordered_map<std::string, SplitBehavior> behaviors{
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  const auto found = behaviors.find(fields.text("behavior"));
  if (found == behaviors.end()) {
    fields.refuse("behavior", "a behavior that regroup supports");
  }
  return found->second;
}

PreTokenizer read_byte_level(const JsonFields& fields) {
  fields.allow({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  const bool prefix = fields.flag("add_prefix_space");
  PreTokenizer split;
  if (fields.flag("use_regex", true)) {
    split = splitter(SplitBehavior::kIsolated,
                     parts_by(std::make_shared<const Regex>(kGpt2Words, fields.where()), false));
  }
  return [prefix, split = std::move(split)](Pieces& pieces) {
    if (prefix) {
      rewrite_pieces(pieces, [](std::string_view piece, const Origin& origin, std::string& text) {
        text += piece.front() == ' ' || origin.continues ? "" : " ";
        text += piece;
      });
    }
    if (split) {
      split(pieces);
    }
    rewrite_pieces(pieces, [](std::string_view piece, const Origin&, std::string& text) {
      append_byte_level(piece, text);
    });
  };
}

// A text of one character.
std::string character_in(const JsonFields& fields, std::string_view key) {
  std::string character = fields.text(key);
  std::size_t length = 0;
  if (character.empty() || (next_character(character, length), length != character.size())) {
    fields.refuse(key, "one character");
  }
  return character;
}

enum class Prepend { kAlways, kFirst, kNever };

// Where Metaspace puts a mark. Files before version 0.15 have add_prefix_space instead.
Prepend prepend_in(const JsonFields& fields) {
  const auto scheme = fields.optional_text("prepend_scheme");
  if (!scheme) {
    return fields.flag("add_prefix_space", true) ? Prepend::kAlways : Prepend::kNever;
  }
  if (*scheme != "always" && *scheme != "first" && *scheme != "never") {
    fields.refuse("prepend_scheme", "\"always\", \"first\" or \"never\"");
  }
  if (*scheme != "never" && !fields.flag("add_prefix_space", true)) {
    fields.refuse("add_prefix_space", "what prepend_scheme says");
  }
  return *scheme == "always"  ? Prepend::kAlways
         : *scheme == "first" ? Prepend::kFirst
                              : Prepend::kNever;
}

void mark_spaces(Pieces& pieces, const std::string& mark, Prepend prepend) {
  rewrite_pieces(pieces, [&](std::string_view piece, const Origin& origin, std::string& text) {
    const bool wanted =
        prepend == Prepend::kAlways || (prepend == Prepend::kFirst && origin.at_start);
    if (wanted && !origin.continues && piece.front() != ' ' && !piece.starts_with(mark)) {
      text += mark;
    }
    for (const char byte : piece) {
      byte == ' ' ? text += mark : text += byte;
    }
  });
}

PreTokenizer read_metaspace(const JsonFields& fields) {
  fields.allow({"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"});
  const std::string mark = character_in(fields, "replacement");
  if (fields.optional_text("str_rep").value_or(mark) != mark) {
    fields.refuse("str_rep", "the same as replacement");
  }
  const Prepend prepend = prepend_in(fields);
  const bool split = fields.flag("split", true);
  return [=, find = parts_by(mark)](Pieces& pieces) {
    mark_spaces(pieces, mark, prepend);
    if (split) {
      split_pieces(pieces, SplitBehavior::kMergedWithNext, find);
    }
  };
}

PreTokenizer read_split(const JsonFields& fields) {
  fields.allow({"type", "pattern", "behavior", "invert"});
  auto pattern = read_pattern(fields.object("pattern"));
  return splitter(behavior_in(fields), parts_by(std::move(pattern), fields.flag("invert")));
}

PreTokenizer read_digits(const JsonFields& fields) {
  fields.allow({"type", "individual_digits"});
  return splitter(
      fields.flag("individual_digits") ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
      parts_by(is_numeric));
}

PreTokenizer read_punctuation(const JsonFields& fields) {
  fields.allow({"type", "behavior"});
  return splitter(fields.at("behavior").is_null() ? SplitBehavior::kIsolated : behavior_in(fields),
                  parts_by(is_punctuation));
}

PreTokenizer read_delimiter(const JsonFields& fields) {
  fields.allow({"type", "delimiter"});
  return splitter(SplitBehavior::kRemoved, parts_by(character_in(fields, "delimiter")));
}

PreTokenizer read_white_space(const JsonFields& fields) {
  fields.allow({"type"});
  return splitter(SplitBehavior::kRemoved, parts_by(is_white_space));
}

// Words and runs of signs: what \w+|[^\w\s]+ matches.
PreTokenizer read_words(const JsonFields& fields) {
  fields.allow({"type"});
  const auto kind_of = [](char32_t character) {
    return is_white_space(character) ? 0 : is_word_character(character) ? 1 : 2;
  };
  return splitter(SplitBehavior::kRemoved, [=](std::string_view piece, std::vector<Part>& parts) {
    int before = -1;
    for (std::size_t at = 0; at < piece.size();) {
      const std::size_t begin = at;
      const int kind = kind_of(next_character(piece, at));
      if (kind == before) {
        parts.back().end = static_cast<std::uint32_t>(at);
      } else {
        parts.push_back({begin, at, kind == 0});
      }
      before = kind;
    }
  });
}

PreTokenizer read_bert(const JsonFields& fields) {
  return [spaces = read_white_space(fields),
          signs = splitter(SplitBehavior::kIsolated, parts_by(is_punctuation))](Pieces& pieces) {
    spaces(pieces);
    signs(pieces);
  };
}

}  // namespace

void read_pre_tokenizer(const JsonFields& fields, std::vector<PreTokenizer>& pre_tokenizers) {
  static const std::unordered_map<std::string, PreTokenizer (*)(const JsonFields&)> readers{
      {"BertPreTokenizer", read_bert},
      {"ByteLevel", read_byte_level},
      {"CharDelimiterSplit", read_delimiter},
      {"Digits", read_digits},
      {"Metaspace", read_metaspace},
      {"Punctuation", read_punctuation},
      {"Split", read_split},
      {"Whitespace", read_words},
      {"WhitespaceSplit", read_white_space}};
  read_steps(fields, "pretokenizers", "a pre-tokenizer that regroup supports", readers,
             pre_tokenizers);
}

}  // namespace regroup
