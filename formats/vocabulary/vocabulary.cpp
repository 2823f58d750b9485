#include "formats/vocabulary/vocabulary.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/vocabulary/sentencepiece.h"
#include "formats/vocabulary/tokenizer_files.h"

namespace regroup {

std::optional<std::uint32_t> Vocabulary::special_id(const std::string& role) const {
  const auto found = special_ids.find(role);
  return found == special_ids.end() ? std::nullopt : std::optional(found->second);
}

namespace {

namespace fs = std::filesystem;

// The scores of placeholder tokens, and of tokens added to a SentencePiece model.
constexpr float kPlaceholderScore = -10000.0F;
constexpr float kAddedScore = -1000.0F;

// Builds a vocabulary with a fixed number of ids.
class VocabularyBuilder {
 public:
  // Every id starts as a placeholder. `scored`: whether tokens have scores.
  VocabularyBuilder(std::int64_t rows, bool scored) : taken_(static_cast<std::size_t>(rows)) {
    for (std::int64_t i = 0; i < rows; ++i) {
      vocabulary.tokens.push_back(fmt::format("[PAD{}]", i));
    }
    vocabulary.types.assign(taken_.size(), static_cast<std::int32_t>(TokenType::kUnused));
    vocabulary.scores.assign(scored ? taken_.size() : 0, kPlaceholderScore);
  }

  // Sets the token with that id. Ids beyond the rows are counted and dropped. Throws kBadInput
  // naming `where` for a duplicate id.
  void put(std::int64_t id, std::string text, TokenType type, float score, std::string_view where) {
    const auto at = static_cast<std::size_t>(id);
    if (!has_row(id, "token", text, where)) {
      return;
    }
    if (taken_[at]) {
      throw_bad_input("{}: tokens {} and {} have the same id {}", where,
                      printable(vocabulary.tokens[at], 60), printable(text, 60), id);
    }
    place(at, type == TokenType::kUserDefined ? with_plain_spaces(text) : std::move(text), type,
          score);
  }

  // Adds one of the added tokens. Special ones become control tokens, others user-defined with
  // literal spaces. Replaces the token with that id, unless it has the same text and is special
  // already.
  void put_added(const AddedToken& token) {
    const auto at = static_cast<std::size_t>(token.id);
    if (!has_row(token.id, "added token", token.content, token.where)) {
      return;
    }
    if (token.lstrip || token.rstrip || token.single_word) {
      bound_.insert(printable(token.content, 60));
    }
    const TokenType type = vocabulary.type(at);
    const bool special =
        type == TokenType::kUnknown || type == TokenType::kControl || type == TokenType::kByte;
    if (taken_[at] && special && vocabulary.tokens[at] == token.content) {
      return;
    }
    place(at, token.special ? token.content : with_plain_spaces(token.content),
          token.special ? TokenType::kControl : TokenType::kUserDefined, kAddedScore);
  }

  // The id of the token with that text.
  std::optional<std::uint32_t> find(const std::string& text) const {
    const auto found = places_.find(text);
    return found == places_.end() ? std::nullopt : std::optional(found->second);
  }

  // The finished vocabulary, with notes on dropped tokens and on those that are found otherwise.
  Vocabulary finish() {
    if (!left_out_.empty()) {
      vocabulary.notes.push_back(
          fmt::format("{} tokens beyond the {} rows of the token embedding are left out",
                      left_out_.size(), taken_.size()));
    }
    if (!bound_.empty()) {
      vocabulary.notes.push_back(fmt::format(
          "GGUF has no key for added tokens that take the spaces around them or are whole words "
          "only, so text with them may be split differently: {}",
          first_of({bound_.begin(), bound_.end()}, 5)));
    }
    return std::move(vocabulary);
  }

  Vocabulary vocabulary;

 private:
  bool has_row(std::int64_t id, std::string_view kind, std::string_view text,
               std::string_view where) {
    if (id < 0) {
      throw_bad_input("{}: {} {} has the id {}", where, kind, printable(text, 60), id);
    }
    if (id >= std::ssize(taken_)) {
      left_out_.insert(id);
    }
    return id < std::ssize(taken_);
  }

  void place(std::size_t at, std::string text, TokenType type, float score) {
    const auto old = taken_[at] ? places_.find(vocabulary.tokens[at]) : places_.end();
    if (old != places_.end() && old->second == at) {
      places_.erase(old);
    }
    taken_[at] = true;
    places_.try_emplace(text, static_cast<std::uint32_t>(at));
    vocabulary.tokens[at] = std::move(text);
    vocabulary.set_type(at, type);
    if (!vocabulary.scores.empty()) {
      vocabulary.scores[at] = score;
    }
  }

  std::unordered_map<std::string, std::uint32_t> places_;
  std::vector<bool> taken_;          // of each row, whether it is more than a placeholder
  std::set<std::int64_t> left_out_;  // ids beyond the rows
  std::set<std::string> bound_;      // added tokens with rules of what is around them, printable
};

VocabularyBuilder read_sentencepiece(const fs::path& file, std::int64_t rows) {
  const std::string where = printable_path(file);
  SentencePieceModel model = parse_sentencepiece_model(read_text(file, kMaxTokenizerBytes), where);
  VocabularyBuilder builder(rows, true);
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    SentencePiece& piece = model.pieces[id];
    builder.put(static_cast<std::int64_t>(id), std::move(piece.text),
                static_cast<TokenType>(piece.type), piece.score, where);
  }
  Vocabulary& vocabulary = builder.vocabulary;
  vocabulary.model = "llama";
  vocabulary.pre = "default";
  vocabulary.add_space_prefix = model.adds_space_prefix;
  if (model.unigram) {
    vocabulary.notes.emplace_back(
        "tokenizer.model is a unigram model; loaders of \"llama\" vocabularies merge pieces by "
        "score and may split words differently");
  }
  return builder;
}

// tokenizer.json: byte-level BPE, or BPE in SentencePiece's style.

// A space inside a token of a merge would be ambiguous; byte-level BPE spells it differently.
std::string with_encoded_spaces(std::string part) {
  replace_all(part, " ", "\u0120");
  return part;
}

// Returns "left right" for a merge that is spelled so or as ["left", "right"].
std::string merge_text(const SortedJson& merge, const std::string& where) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return with_encoded_spaces(merge[0].get<std::string>()) + " " +
           with_encoded_spaces(merge[1].get<std::string>());
  }
  const std::string text = merge.is_string() ? merge.get<std::string>() : "";
  const std::size_t space = text.find(' ');
  if (space == std::string::npos || space == 0 || space + 1 == text.size()) {
    throw_bad_input("{}: the merge {} is not a pair of tokens", where, printable_json(merge));
  }
  return text;
}

std::vector<std::string> merges_of(const SortedJson& model, const std::string& where) {
  const SortedJson& listed = member_of(model, "merges");
  if (!listed.is_array()) {
    throw_bad_input("{}: model.merges is not a list", where);
  }
  std::vector<std::string> merges;
  for (const SortedJson& merge : listed) {
    merges.push_back(merge_text(merge, where));
  }
  return merges;
}

void put_vocab(VocabularyBuilder& builder, const SortedJson& vocab, const std::string& where) {
  if (!vocab.is_object() || vocab.empty()) {
    throw_bad_input("{}: there is no vocabulary of tokens and their ids", where);
  }
  for (const auto& [text, id] : vocab.items()) {
    if (!id.is_number_integer()) {
      throw_bad_input("{}: token {} has the id {}, a whole number is needed", where,
                      printable(text, 60), printable_json(id));
    }
    builder.put(id.get<std::int64_t>(), text, TokenType::kNormal, 0.0F, where);
  }
}

// The token that "left right" makes.
std::string made_by(std::string merge) { return merge.erase(merge.find(' '), 1); }

// A SentencePiece model that was converted to BPE in tokenizer.json has lost its scores. Earlier
// merges get higher scores, which restores the order.
void score_by_merges(VocabularyBuilder& builder, const std::vector<std::string>& merges) {
  Vocabulary& vocabulary = builder.vocabulary;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.type(id) == TokenType::kNormal) {
      vocabulary.scores[id] = -static_cast<float>(merges.size());
    }
  }
  for (std::size_t rank = merges.size(); rank-- > 0;) {  // the best score is set last and stays
    const auto id = builder.find(made_by(merges[rank]));
    if (id && vocabulary.type(*id) == TokenType::kNormal) {
      vocabulary.scores[*id] = -static_cast<float>(rank);
    }
  }
}

// What each merge makes. Runs of one character are left out: their order is not that of scores.
std::vector<std::string> made_tokens(const std::vector<std::string>& merges) {
  std::vector<std::string> tokens;
  for (const std::string& merge : merges) {
    if (std::string made = made_by(merge); !repeats_one_character(made)) {
      tokens.push_back(std::move(made));
    }
  }
  return tokens;
}

void mark_bytes_and_unknown(VocabularyBuilder& builder, const std::string& unknown) {
  Vocabulary& vocabulary = builder.vocabulary;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string& text = vocabulary.tokens[id];
    if (text.size() == 6 && text.starts_with("<0x") && text.ends_with('>')) {
      vocabulary.set_type(id, TokenType::kByte);
    }
  }
  if (const auto id = builder.find(unknown)) {
    vocabulary.set_type(*id, TokenType::kUnknown);
  }
}

// Nothing unless it is BPE.
std::optional<VocabularyBuilder> read_tokenizer_json(const SortedJson& tokenizer,
                                                     const std::string& where, std::int64_t rows) {
  const SortedJson& model = member_of(tokenizer, "model");
  const std::string type = token_text(model, "type");
  if (!model.is_object() || (type != "BPE" && !(type.empty() && model.contains("merges")))) {
    return std::nullopt;
  }
  const bool like_sentencepiece = flag_in(model, "byte_fallback").value_or(false);
  VocabularyBuilder builder(rows, like_sentencepiece);
  put_vocab(builder, member_of(model, "vocab"), where);
  std::vector<std::string> merges = merges_of(model, where);
  Vocabulary& vocabulary = builder.vocabulary;
  if (like_sentencepiece) {
    vocabulary.model = "llama";
    vocabulary.pre = "default";
    mark_bytes_and_unknown(builder, token_text(model, "unk_token"));
    score_by_merges(builder, merges);
    return builder;
  }
  vocabulary.model = "gpt2";
  vocabulary.merges = std::move(merges);
  vocabulary.pre = pre_tokenizer_name(tokenizer);
  if (vocabulary.pre.empty()) {
    vocabulary.pre = "default";
    vocabulary.notes.emplace_back(
        "llama.cpp's name for how this tokenizer splits text is unknown (the key "
        "tokenizer.ggml.pre); \"default\" may split differently");
  }
  return builder;
}

// Adds a note to the vocabulary of a tokenizer.json whose merges are not those that llama.cpp makes
// of its scores.
void note_other_merges(Vocabulary& vocabulary, const SortedJson& tokenizer,
                       const std::string& where) {
  if (vocabulary.model != "llama") {
    return;
  }
  std::vector<std::string> stated = merges_of(member_of(tokenizer, "model"), where), made;
  try {
    for (const auto& [left, right] : merges_by_score(vocabulary, where)) {
      made.push_back(std::string(left).append(" ").append(right));
    }
  } catch (const Error&) {
    made.clear();  // no order at all
  }
  const bool same_order = made_tokens(made) == made_tokens(stated);
  std::ranges::sort(made);
  std::ranges::sort(stated);
  if (!same_order || made != stated) {
    vocabulary.notes.emplace_back(
        "llama.cpp merges whatever makes a token, by score; tokenizer.json has other merges, so "
        "llama.cpp may split words differently");
  }
}

// The tokens listed in tokenizer.json's "added_tokens", added_tokens.json and
// tokenizer_config.json's "added_tokens_decoder".
void put_added_tokens(VocabularyBuilder& builder, const fs::path& directory,
                      const SortedJson& tokenizer) {
  if (const SortedJson& listed = member_of(tokenizer, "added_tokens"); listed.is_array()) {
    const std::string where = printable_path(directory / "tokenizer.json");
    for (const SortedJson& token : listed) {
      builder.put_added(listed_token(token, where));
    }
  }
  for (const AddedToken& token : added_tokens_beside(directory)) {
    builder.put_added(token);
  }
}

// The tokens that a post-processor adds around a text. Overrides the flags in
// tokenizer_config.json.
void read_post_processor(Vocabulary& vocabulary, const VocabularyBuilder& builder,
                         const SortedJson& processor) {
  const std::string type = token_text(processor, "type");
  const SortedJson& single = member_of(processor, "single");
  if (type == "Sequence" && member_of(processor, "processors").is_array()) {
    for (const SortedJson& part : member_of(processor, "processors")) {
      if (token_text(part, "type") != "Sequence") {
        read_post_processor(vocabulary, builder, part);
      }
    }
  } else if (type == "TemplateProcessing" && single.is_array() && single.size() > 1) {
    const auto matches = [&](const SortedJson& part, const char* role) -> std::optional<bool> {
      const std::string text = token_text(member_of(part, "SpecialToken"), "id");
      const auto id = vocabulary.special_id(role);
      return text.empty() ? std::nullopt : std::optional(id && builder.find(text) == id);
    };
    const auto begins = matches(single.front(), "bos");
    const auto ends = matches(single.back(), "eos");
    vocabulary.add_bos = begins ? begins : vocabulary.add_bos;
    vocabulary.add_eos = ends ? ends : vocabulary.add_eos;
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    const SortedJson& first = member_of(processor, "cls");  // its text and id
    const auto id = vocabulary.special_id("bos");
    vocabulary.add_bos = id && first.is_array() && !first.empty() && first[0].is_string() &&
                         builder.find(first[0].get<std::string>()) == id;
  }
}

// Llama 3's files in Meta's form name no tokens with a role.
void find_edges_of_text(const VocabularyBuilder& builder, Vocabulary& vocabulary) {
  for (const auto& [role, text] :
       {std::pair("bos", "<|begin_of_text|>"), {"eos", "<|end_of_text|>"}}) {
    if (const auto id = builder.find(text)) {
      vocabulary.special_ids.emplace(role, *id);
    }
  }
}

// Fills in special_ids, add_bos, add_eos and chat_template from tokenizer_config.json,
// special_tokens_map.json, config.json, generation_config.json and tokenizer.json's post-processor.
void read_special_tokens(VocabularyBuilder& builder, const fs::path& directory,
                         const SortedJson& tokenizer) {
  Vocabulary& vocabulary = builder.vocabulary;
  const SortedJson tokenizer_config = read_json_if_there(directory, "tokenizer_config.json");
  const SortedJson config = read_json_if_there(directory, "config.json");
  const SortedJson generation = read_json_if_there(directory, "generation_config.json");
  for (const std::string role : {"bos", "eos", "unk", "sep", "pad", "mask"}) {
    const std::string named = named_token(directory, role);
    std::optional<std::uint32_t> id = named.empty() ? std::nullopt : builder.find(named);
    // A token of the vocabulary with a role is never part of text, even if nothing says so.
    if (id && vocabulary.type(*id) == TokenType::kNormal) {
      vocabulary.set_type(*id, TokenType::kControl);
    }
    for (const SortedJson* file : {&config, &generation}) {
      const auto stated = first_number_in(*file, role + "_token_id");
      const bool fits = stated && *stated >= 0 && *stated < std::ssize(vocabulary.tokens);
      id = !id && fits ? std::optional(static_cast<std::uint32_t>(*stated)) : id;
    }
    if (id) {
      vocabulary.special_ids.emplace(role, *id);
    }
  }
  find_edges_of_text(builder, vocabulary);
  vocabulary.add_bos = flag_in(tokenizer_config, "add_bos_token");
  if (!vocabulary.add_bos && !tokenizer.is_null()) {
    vocabulary.add_bos = false;  // only its post-processor adds one; loaders of GGUF assume one
  }
  vocabulary.add_eos = flag_in(tokenizer_config, "add_eos_token");
  const auto prefix = flag_in(tokenizer_config, "add_prefix_space");
  if (prefix && vocabulary.model == "llama") {  // byte-level loaders never add one
    vocabulary.add_space_prefix = prefix;
  }
  read_post_processor(vocabulary, builder, member_of(tokenizer, "post_processor"));
  vocabulary.chat_template = chat_template_in(directory, tokenizer_config, vocabulary.notes);
}

Vocabulary absent(const std::string& why) {
  Vocabulary vocabulary;
  vocabulary.notes.push_back(why);
  return vocabulary;
}

}  // namespace

Vocabulary read_vocabulary(const fs::path& directory, std::int64_t rows) {
  const auto file = tokenizer_file_in(directory, /*reads_json=*/false);
  if (!file) {
    return absent(
        "there is no tokenizer.model, tokenizer.json or vocab.json with merges.txt: the "
        "result has no vocabulary");
  }
  const std::string where = printable(file->string(), 0);
  const bool sentencepiece = file->extension() == ".model" && !is_vocabulary_file(*file);
  SortedJson tokenizer = read_json_if_there(directory, "tokenizer.json");
  try {
    tokenizer = tokenizer.is_null() && !sentencepiece ? tokenizer_json_from(*file) : tokenizer;
  } catch (const Error& fault) {
    if (fault.kind() != ErrorKind::kUsage) {
      throw;
    }
    return absent(fmt::format("{}: the result has no vocabulary", fault.what()));
  }
  auto builder = sentencepiece ? std::optional(read_sentencepiece(*file, rows))
                               : read_tokenizer_json(tokenizer, where, rows);
  if (!builder) {
    return absent(fmt::format("{} has type {}, only BPE is supported: the result has no vocabulary",
                              file->filename().string(),
                              printable(token_text(member_of(tokenizer, "model"), "type"), 60)));
  }
  put_added_tokens(*builder, directory, tokenizer);
  read_special_tokens(*builder, directory, tokenizer);
  Vocabulary vocabulary = builder->finish();
  if (!sentencepiece) {
    note_other_merges(vocabulary, tokenizer, where);
  }
  return vocabulary;
}

}  // namespace regroup
