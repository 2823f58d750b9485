// Writes a GGUF file's vocabulary as a Hugging Face directory has it: tokenizer.json and the files
// that belong to it.
#include <algorithm>
#include <array>
#include <charconv>
#include <unordered_set>

#include "formats/base/error.h"
#include "formats/vocabulary/tokenizer_files.h"

namespace regroup {
namespace {

using nlohmann::json;

constexpr std::size_t kByteTokens = 256;

// An object from token to id.
json token_ids_of(const std::vector<std::string>& tokens) {
  json ids = json::object();
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    ids.emplace(tokens[id], id);
  }
  return ids;
}

// A normalizer or decoder that replaces matches of `pattern`.
json replacement_of(json pattern, std::string_view content) {
  return {{"type", "Replace"}, {"pattern", std::move(pattern)}, {"content", content}};
}

// Throws kBadInput if there is none.
std::uint32_t unknown_id_of(const Vocabulary& vocabulary, std::string_view where) {
  const auto id = vocabulary.special_id("unk");
  if (!id) {
    throw_bad_input("{}: the vocabulary needs an unknown token (tokenizer.ggml.unknown_token_id)",
                    where);
  }
  return *id;
}

// Whether characters without a token become bytes: if there is a token for each byte. Throws
// kBadInput if there are tokens for some of them.
bool has_byte_tokens(const Vocabulary& vocabulary, std::string_view where) {
  std::unordered_set<std::string_view> bytes;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.type(id) == TokenType::kByte) {
      bytes.insert(vocabulary.tokens[id]);
    }
  }
  std::size_t found = 0;
  for (std::size_t byte = 0; byte < kByteTokens; ++byte) {
    found += bytes.contains(fmt::format("<0x{:02X}>", byte)) ? 1 : 0;
  }
  if (found != bytes.size() || (found > 0 && found < kByteTokens)) {
    throw_bad_input("{}: the vocabulary has {} byte tokens, {} of the 256 from <0x00> to <0xFF>",
                    where, bytes.size(), found);
  }
  return found == kByteTokens;
}

json bpe_model(json vocab, json merges) {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"vocab", std::move(vocab)},
          {"merges", std::move(merges)}};
}

json metaspace(std::string_view prepend, bool split) {
  return {{"type", "Metaspace"},
          {"replacement", kSpaceOfPieces},
          {"prepend_scheme", prepend},
          {"split", split}};
}

// Whether no token goes on after a space, so that words can be encoded one by one.
bool splits_at_spaces(const Vocabulary& vocabulary) {
  return std::ranges::all_of(vocabulary.tokens, [](const auto& token) {
    return token.find(kSpaceOfPieces, 1) == std::string::npos;
  });
}

// SentencePiece's rules, and its spaces: collapsed and left out at the end, or kept as they are.
json unigram_normalizers(const Vocabulary& vocabulary) {
  json steps = json::array();
  if (!vocabulary.charsmap.empty()) {
    steps.push_back(
        {{"type", "Precompiled"}, {"precompiled_charsmap", base64_of(vocabulary.charsmap)}});
  }
  if (vocabulary.removes_extra_spaces.value_or(false)) {
    steps.push_back(replacement_of({{"Regex", R"( +\z)"}}, ""));
    steps.push_back(replacement_of({{"Regex", " {2,}"}}, " "));
  } else if (vocabulary.add_space_prefix.value_or(false)) {
    steps.push_back({{"type", "Prepend"}, {"prepend", kSpaceOfPieces}});
  }
  return steps;
}

// llama.cpp marks tokens that begin a word, the original those that do not.
std::vector<std::string> word_pieces(const Vocabulary& vocabulary, std::string_view where) {
  std::vector<std::string> tokens = vocabulary.tokens;
  std::unordered_set<std::string> known;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    std::string& token = tokens[id];
    const TokenType type = vocabulary.type(id);
    const bool bracketed = token.size() > 2 && token.front() == '[' && token.back() == ']';
    if (token.starts_with(kSpaceOfPieces)) {
      token.erase(0, kSpaceOfPieces.size());
    } else if (type == TokenType::kNormal && !bracketed) {
      token.insert(0, "##");
    }
    if (!known.insert(token).second) {
      throw_bad_input("{}: two tokens of the vocabulary have the same text: {}", where,
                      printable(token, 60));
    }
  }
  return tokens;
}

// With lower-cased text, no token with a capital letter would ever be found.
bool has_capitals(const Vocabulary& vocabulary) {
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string& token = vocabulary.tokens[id];
    if (token.starts_with(kSpaceOfPieces) && vocabulary.type(id) == TokenType::kNormal &&
        std::ranges::any_of(token, [](char c) { return c >= 'A' && c <= 'Z'; })) {
      return true;
    }
  }
  return false;
}

// The parts that differ between the kinds of vocabularies: normalizer, pre-tokenizer, model and
// decoder.

json byte_level_parts(const Vocabulary& vocabulary, std::string_view where) {
  const PreTokenization* pre = find_pre_tokenization(vocabulary.pre);
  if (pre == nullptr) {
    throw_bad_input(
        "{}: tokenizer.ggml.pre is {}, a way to split text that regroup does not know; it knows "
        "{}. Give the original model's tokenizer.json",
        where, vocabulary.pre.empty() ? "missing" : printable(vocabulary.pre, 60),
        pre_tokenization_names());
  }
  json parts = byte_level_tokenizer(token_ids_of(vocabulary.tokens), vocabulary.merges, *pre);
  parts["decoder"] = {{"type", "ByteLevel"},
                      {"add_prefix_space", true},
                      {"trim_offsets", true},
                      {"use_regex", true}};
  return parts;
}

// SentencePiece's BPE. The text is one word, whose spaces are marks.
json scored_parts(const Vocabulary& vocabulary, std::string_view where) {
  json merges = json::array();
  for (const auto& [left, right] : merges_by_score(vocabulary, where)) {
    if (left.find(' ') == std::string_view::npos && right.find(' ') == std::string_view::npos) {
      merges.push_back(std::string(left).append(" ").append(right));
    } else {
      merges.push_back({left, right});
    }
  }
  json model = bpe_model(token_ids_of(vocabulary.tokens), std::move(merges));
  model["unk_token"] = vocabulary.tokens[unknown_id_of(vocabulary, where)];
  model["fuse_unk"] = true;
  model["byte_fallback"] = has_byte_tokens(vocabulary, where);
  const bool prefix = vocabulary.add_space_prefix.value_or(true);
  json steps = json::array();
  if (prefix) {
    steps.push_back({{"type", "Prepend"}, {"prepend", kSpaceOfPieces}});
  }
  steps.push_back(replacement_of({{"String", " "}}, kSpaceOfPieces));
  json decoders = {replacement_of({{"String", kSpaceOfPieces}}, " "),
                   {{"type", "ByteFallback"}},
                   {{"type", "Fuse"}}};
  if (prefix) {
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1U}, {"stop", 0U}});
  }
  return {{"normalizer", {{"type", "Sequence"}, {"normalizers", std::move(steps)}}},
          {"pre_tokenizer", nullptr},
          {"model", std::move(model)},
          {"decoder", {{"type", "Sequence"}, {"decoders", std::move(decoders)}}}};
}

json unigram_parts(const Vocabulary& vocabulary, std::string_view where) {
  json pieces = json::array();
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    pieces.push_back({vocabulary.tokens[id], static_cast<double>(vocabulary.scores[id])});
  }
  json model = {{"type", "Unigram"},
                {"unk_id", unknown_id_of(vocabulary, where)},
                {"vocab", std::move(pieces)},
                {"byte_fallback", has_byte_tokens(vocabulary, where)}};
  const bool prefix = vocabulary.add_space_prefix.value_or(false);
  // Without extra spaces, a space at the beginning is the prefix; else it follows one.
  const bool once = vocabulary.removes_extra_spaces.value_or(false);
  return {{"normalizer", {{"type", "Sequence"}, {"normalizers", unigram_normalizers(vocabulary)}}},
          {"pre_tokenizer",
           metaspace(prefix && once ? "always" : "never", splits_at_spaces(vocabulary))},
          {"model", std::move(model)},
          {"decoder", metaspace(prefix ? "always" : "never", true)}};
}

// Also gives the tokens of `vocabulary` the original's spelling.
json word_piece_parts(Vocabulary& vocabulary, std::string_view where) {
  const bool lower = vocabulary.lower_case.value_or(!has_capitals(vocabulary));
  vocabulary.tokens = word_pieces(vocabulary, where);
  json parts = word_piece_tokenizer(
      token_ids_of(vocabulary.tokens), vocabulary.tokens[unknown_id_of(vocabulary, where)], lower,
      vocabulary.strip_accents ? json(*vocabulary.strip_accents) : json());
  parts["decoder"] = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
  return parts;
}

json added_tokens_of(const Vocabulary& vocabulary) {
  json added = json::array();
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const TokenType type = vocabulary.type(id);
    const bool special = type == TokenType::kControl || type == TokenType::kUnknown;
    if (special || type == TokenType::kUserDefined) {
      added.push_back(json_of({.id = static_cast<std::int64_t>(id),
                               .content = vocabulary.tokens[id],
                               .special = special,
                               .where = {}}));
    }
  }
  return added;
}

json parts_of(Vocabulary& vocabulary, std::string_view where) {
  return vocabulary.model == "gpt2"    ? byte_level_parts(vocabulary, where)
         : vocabulary.model == "llama" ? scored_parts(vocabulary, where)
         : vocabulary.model == "t5"    ? unigram_parts(vocabulary, where)
                                       : word_piece_parts(vocabulary, where);
}

// Adds the tokens before and after a document that the file names.
json post_processor_of(const Vocabulary& vocabulary) {
  const auto text_of_role = [&](const std::string& role) {
    const auto id = vocabulary.special_id(role);
    return id ? vocabulary.tokens[*id] : "";
  };
  const bool bert = vocabulary.model == "bert";
  std::string first, last;
  if (vocabulary.add_bos.value_or(false)) {
    first = text_of_role(bert && vocabulary.special_id("cls") ? "cls" : "bos");
  }
  if (vocabulary.add_eos.value_or(bert || vocabulary.model == "t5")) {
    last = text_of_role(bert ? "sep" : "eos");
  }
  if (first.empty() && last.empty()) {
    return nullptr;
  }
  json single = json::array(), pair, special = json::object();
  const auto put = [&](json& list, const std::string& token, int sequence) {
    if (!token.empty()) {
      list.push_back({{"SpecialToken", {{"id", token}, {"type_id", sequence}}}});
      const auto found = std::ranges::find(vocabulary.tokens, token);
      const auto id = static_cast<std::uint64_t>(found - vocabulary.tokens.begin());
      special[token] = {
          {"id", token}, {"ids", json::array({id})}, {"tokens", json::array({token})}};
    }
  };
  const auto put_text = [](json& list, const char* name, int sequence) {
    list.push_back({{"Sequence", {{"id", name}, {"type_id", sequence}}}});
  };
  put(single, first, 0);
  put_text(single, "A", 0);
  put(single, last, 0);
  pair = single;
  put(pair, bert ? "" : first, 1);
  put_text(pair, "B", 1);
  put(pair, last, 1);
  return {{"type", "TemplateProcessing"},
          {"single", std::move(single)},
          {"pair", std::move(pair)},
          {"special_tokens", std::move(special)}};
}

// The class is the generic one: a model's own class would build a tokenizer anew from parts.
json tokenizer_config_of(const Vocabulary& vocabulary) {
  json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                 {"clean_up_tokenization_spaces", false}};
  for (const auto& [role, id] : vocabulary.special_ids) {
    config[role + "_token"] = vocabulary.tokens[id];
  }
  if (vocabulary.add_bos) {
    config["add_bos_token"] = *vocabulary.add_bos;
  }
  if (vocabulary.add_eos) {
    config["add_eos_token"] = *vocabulary.add_eos;
  }
  if (!vocabulary.chat_template.empty()) {
    config["chat_template"] = vocabulary.chat_template;
  }
  return config;
}

json generation_config_of(const Vocabulary& vocabulary,
                          const std::vector<std::int64_t>& more_ends) {
  json config = json::object();
  for (const char* role : {"bos", "eos", "pad"}) {
    if (const auto id = vocabulary.special_id(role)) {
      config[fmt::format("{}_token_id", role)] = *id;
    }
  }
  json ends = json::array();
  if (config.contains("eos_token_id")) {
    ends.push_back(config["eos_token_id"]);
  }
  for (const std::int64_t id : more_ends) {
    if (id < std::ssize(vocabulary.tokens) &&
        std::find(ends.begin(), ends.end(), json(id)) == ends.end()) {
      ends.push_back(id);
    }
  }
  if (ends.size() > 1) {
    config["eos_token_id"] = std::move(ends);
  }
  return config;
}

// The shortest text of a number that is nearest to it. The one of nlohmann::json may end in another
// digit, which the tokenizers package reads as another double: that decides between equal paths.
std::string nearest_text(double number) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.begin(), text.end(), number).ptr;
  const std::string spelled(text.begin(), end);
  return spelled + (spelled.find_first_of(".e") == spelled.npos ? ".0" : "");
}

// The text of value.dump(2), with each number written by nearest_text(). `line` begins a line.
std::string text_of(const json& value, const std::string& line = "\n") {
  if (value.is_number_float()) {
    return nearest_text(value.get<double>());
  }
  if (!value.is_structured() || value.empty()) {
    return value.dump();
  }
  std::string text;
  for (const auto& [key, item] : value.items()) {
    text += (text.empty() ? "" : ",") + line + "  ";
    text += value.is_object() ? json(key).dump() + ": " : "";
    text += text_of(item, line + "  ");
  }
  return (value.is_object() ? "{" : "[") + text + line + (value.is_object() ? "}" : "]");
}

}  // namespace

json byte_level_tokenizer(json vocab, json merges, const PreTokenization& pre) {
  json model = bpe_model(std::move(vocab), std::move(merges));
  model["ignore_merges"] = pre.whole_words;
  return {{"normalizer", pre.composes ? json{{"type", "NFC"}} : json()},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", pre.steps()}}},
          {"model", std::move(model)}};
}

json word_piece_tokenizer(json vocab, std::string_view unknown, bool lower_case,
                          json strip_accents) {
  constexpr std::uint32_t kLongestWord = 100;  // BERT's, in characters
  return {{"normalizer",
           {{"type", "BertNormalizer"},
            {"clean_text", true},
            {"handle_chinese_chars", true},
            {"strip_accents", std::move(strip_accents)},
            {"lowercase", lower_case}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"model",
           {{"type", "WordPiece"},
            {"unk_token", unknown},
            {"continuing_subword_prefix", "##"},
            {"max_input_chars_per_word", kLongestWord},
            {"vocab", std::move(vocab)}}}};
}

json tokenizer_json_of(const Vocabulary& stored, std::string_view where) {
  Vocabulary vocabulary = stored;
  json tokenizer = parts_of(vocabulary, where);
  tokenizer["version"] = "1.0";
  tokenizer["truncation"] = nullptr;
  tokenizer["padding"] = nullptr;
  tokenizer["added_tokens"] = added_tokens_of(vocabulary);
  tokenizer["post_processor"] = post_processor_of(vocabulary);
  return tokenizer;
}

std::vector<NamedText> tokenizer_files_of(const Vocabulary& vocabulary, std::string_view where,
                                          const std::vector<std::int64_t>& more_ends) {
  const json tokenizer = tokenizer_json_of(vocabulary, where);
  return {{"tokenizer.json", text_of(tokenizer) + "\n"},
          {"tokenizer_config.json", text_of(tokenizer_config_of(vocabulary)) + "\n"},
          {"generation_config.json", text_of(generation_config_of(vocabulary, more_ends)) + "\n"}};
}

std::vector<NamedText> tokenizer_files_of(const GgufMetadata& metadata) {
  std::vector<std::int64_t> more_ends;
  for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    if (const auto id = metadata.count(key)) {
      more_ends.push_back(*id);
    }
  }
  return tokenizer_files_of(vocabulary_in(metadata), metadata.where(), more_ends);
}

}  // namespace regroup
