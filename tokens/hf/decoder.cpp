// Each step changes the texts of tokens, of which there may be fewer then. What they do is that of
// the package tokenizers 0.23, whose results tests/golden/tokenizers/decoded.json has.
#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_map>

#include <fmt/ranges.h>

#include "formats/vocabulary/tokenizer_files.h"
#include "tokens/hf/steps.h"

namespace regroup {
namespace {

using Texts = std::vector<std::string>;

constexpr std::string_view kUnreadable = "\xef\xbf\xbd";  // U+FFFD

// Whether more bytes could make a character of these.
bool begins_character(std::string_view bytes) {
  for (const char fill : {'\x80', '\xbf'}) {  // the least and the most that may follow
    std::string whole(bytes);
    while (whole.size() < 4) {
      whole += fill;
      if (utf8_sequence(whole) == whole.size()) {
        return true;
      }
    }
  }
  return false;
}

// Each part of a character that does not go on, and each other byte, is one U+FFFD.
std::string lossy_utf8(std::string_view bytes) {
  std::string text;
  for (std::size_t at = 0; at < bytes.size();) {
    std::size_t length = utf8_sequence(bytes, at);
    if (length > 0) {
      text += bytes.substr(at, length);
    } else {
      text += kUnreadable;
      for (length = 3; length > 1 && !begins_character(bytes.substr(at, length)); --length) {
      }
    }
    at += length;
  }
  return text;
}

// The bytes that the characters of a byte-level token stand for. Tokens with another character stay
// as they are: they were added as plain text.
std::string bytes_of(const std::string& token) {
  static const auto kBytes = [] {
    std::unordered_map<std::string, char> bytes;
    for (int byte = 0; byte < 256; ++byte) {
      bytes.emplace(byte_level_text(std::string(1, static_cast<char>(byte))),
                    static_cast<char>(byte));
    }
    return bytes;
  }();
  std::string bytes;
  for (std::size_t at = 0; at < token.size();) {
    const std::size_t length = std::max<std::size_t>(1, utf8_sequence(token, at));
    const auto found = kBytes.find(token.substr(at, length));
    if (found == kBytes.end()) {
      return token;
    }
    bytes += found->second;
    at += length;
  }
  return bytes;
}

void decode_byte_level(Texts& texts, const JsonFields&) {
  std::string bytes;
  for (const std::string& token : texts) {
    bytes += bytes_of(token);
  }
  texts = {lossy_utf8(bytes)};
}

// "<0x0A>": the byte; nothing for other tokens.
std::optional<char> byte_in(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) {
    return std::nullopt;
  }
  unsigned byte = 0;
  const auto [end, fault] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  return fault == std::errc() && end == token.data() + 5 ? std::optional(static_cast<char>(byte))
                                                         : std::nullopt;
}

// A run of bytes that is not UTF-8 becomes one U+FFFD for each byte.
void decode_bytes(Texts& texts, const JsonFields&) {
  Texts result;
  std::string run;
  const auto flush = [&] {
    std::string replaced;
    for (std::size_t i = 0; i < run.size(); ++i) {
      replaced += kUnreadable;
    }
    if (!run.empty()) {
      result.push_back(is_utf8(run) ? run : replaced);
    }
    run.clear();
  };
  for (std::string& token : texts) {
    if (const auto byte = byte_in(token)) {
      run += *byte;
    } else {
      flush();
      result.push_back(std::move(token));
    }
  }
  flush();
  texts = std::move(result);
}

void clean_up(std::string& text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kChanges{
      {{" .", "."},
       {" ?", "?"},
       {" !", "!"},
       {" ,", ","},
       {" ' ", "'"},
       {" n't", "n't"},
       {" 'm", "'m"},
       {" do not", " don't"},
       {" 's", "'s"},
       {" 've", "'ve"},
       {" 're", "'re"}}};
  for (const auto& [from, to] : kChanges) {
    replace_all(text, from, to);
  }
}

void decode_word_pieces(Texts& texts, const JsonFields& fields) {
  const std::string prefix = fields.text("prefix");
  const bool cleanup = fields.flag("cleanup", true);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::string& text = texts[i];
    if (i > 0) {
      text = text.starts_with(prefix) ? text.substr(prefix.size()) : " " + text;
    }
    if (cleanup) {
      clean_up(text);
    }
  }
}

// A text to be looked for: an empty one would be found everywhere, without end.
std::string sought(const JsonFields& fields, std::string_view key) {
  std::string text = fields.text(key);
  if (text.empty()) {
    fields.refuse(key, "a text that is not empty");
  }
  return text;
}

void decode_metaspace(Texts& texts, const JsonFields& fields) {
  const std::string mark = sought(fields, "replacement");
  const bool prepends = fields.optional_text("prepend_scheme").value_or("always") != "never" &&
                        fields.flag("add_prefix_space", true);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    replace_all(texts[i], mark, i == 0 && prepends ? "" : " ");
  }
}

void decode_suffixes(Texts& texts, const JsonFields& fields) {
  const std::string suffix = sought(fields, "suffix");
  for (std::string& text : texts) {
    replace_all(text, suffix, &text == &texts.back() ? "" : " ");
  }
}

void decode_replacements(Texts& texts, const JsonFields& fields) {
  const std::string from = sought(fields.object("pattern"), "String");
  const std::string to = fields.text("content");
  for (std::string& text : texts) {
    replace_all(text, from, to);
  }
}

// Up to `start` and `stop` repetitions of a text at the ends of each token.
void decode_strip(Texts& texts, const JsonFields& fields) {
  const std::string content = sought(fields, "content");
  for (std::string& text : texts) {
    for (std::uint32_t i = 0; i < fields.count("start") && text.starts_with(content); ++i) {
      text.erase(0, content.size());
    }
    for (std::uint32_t i = 0; i < fields.count("stop") && text.ends_with(content); ++i) {
      text.erase(text.size() - content.size());
    }
  }
}

void fuse(Texts& texts, const JsonFields&) { texts = {fmt::format("{}", fmt::join(texts, ""))}; }

void decode(Texts& texts, const JsonFields& fields) {
  static const std::unordered_map<std::string, void (*)(Texts&, const JsonFields&)> decoders{
      {"BPEDecoder", decode_suffixes},  {"ByteFallback", decode_bytes},
      {"ByteLevel", decode_byte_level}, {"Fuse", fuse},
      {"Metaspace", decode_metaspace},  {"Replace", decode_replacements},
      {"Strip", decode_strip},          {"WordPiece", decode_word_pieces}};
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    for (const JsonFields& step : fields.objects("decoders")) {
      decode(texts, step);
    }
  } else if (const auto decoder = decoders.find(type); decoder != decoders.end()) {
    decoder->second(texts, fields);
  } else {
    fields.refuse("type", "a decoder that regroup supports");
  }
}

}  // namespace

std::string decoded_text(std::vector<std::string> tokens, const nlohmann::json& decoder,
                         const std::string& where) {
  if (decoder.is_null()) {
    return fmt::format("{}", fmt::join(tokens, " "));
  }
  if (!tokens.empty()) {
    decode(tokens, JsonFields(decoder, where, "decoder"));
  }
  return fmt::format("{}", fmt::join(tokens, ""));
}

}  // namespace regroup
