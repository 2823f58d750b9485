#include "formats/vocabulary/vocabulary.h"

#include <algorithm>
#include <array>
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

constexpr std::uint64_t kMaxSentencePieceBytes = 256U << 20;

// The scores of placeholder tokens, and of tokens added to a SentencePiece model.
constexpr float kPlaceholderScore = -10000.0F;
constexpr float kAddedScore = -1000.0F;

constexpr std::array<std::string_view, 6> kRoles{"bos", "eos", "unk", "sep", "pad", "mask"};

// Builds a vocabulary with a fixed number of ids.
class VocabularyBuilder {
 public:
  // Every id starts as a placeholder. `scored`: whether tokens have scores.
  VocabularyBuilder(std::int64_t rows, bool scored);

  // Sets the token with that id. Ids beyond the rows are counted and dropped. Throws kBadInput
  // naming `where` for a duplicate id.
  void put(std::int64_t id, std::string text, TokenType type, float score, std::string_view where);

  // Adds one of the added tokens. Special ones become control tokens, others user-defined with
  // literal spaces. Replaces the token with that id, unless it has the same text and is special
  // already.
  void put_added(std::int64_t id, std::string text, bool special, std::string_view where);

  // The id of the token with that text.
  std::optional<std::uint32_t> find(const std::string& text) const {
    const auto found = places_.find(text);
    return found == places_.end() ? std::nullopt : std::optional(found->second);
  }

  // The finished vocabulary, with a note on dropped tokens.
  Vocabulary finish();

  Vocabulary vocabulary;

 private:
  bool has_row(std::int64_t id, std::string_view kind, std::string_view text,
               std::string_view where);
  void place(std::int64_t id, std::string text, TokenType type, float score);

  std::unordered_map<std::string, std::uint32_t> places_;
  std::vector<bool> taken_;  // whether an id is more than a placeholder
  std::int64_t rows_;
  std::set<std::int64_t> left_out_;  // ids beyond the rows
};

VocabularyBuilder::VocabularyBuilder(std::int64_t rows, bool scored) : rows_(rows) {
  const auto count = static_cast<std::size_t>(rows);
  for (std::int64_t i = 0; i < rows; ++i) {
    vocabulary.tokens.push_back(fmt::format("[PAD{}]", i));
  }
  vocabulary.types.assign(count, static_cast<std::int32_t>(TokenType::kUnused));
  vocabulary.scores.assign(scored ? count : 0, kPlaceholderScore);
  taken_.assign(count, false);
}

bool VocabularyBuilder::has_row(std::int64_t id, std::string_view kind, std::string_view text,
                                std::string_view where) {
  if (id < 0) {
    throw_bad_input("{}: {} {} has the id {}", where, kind, printable(text, 60), id);
  }
  if (id >= rows_) {
    left_out_.insert(id);
  }
  return id < rows_;
}

void VocabularyBuilder::place(std::int64_t id, std::string text, TokenType type, float score) {
  const auto at = static_cast<std::size_t>(id);
  if (taken_[at]) {
    const auto old = places_.find(vocabulary.tokens[at]);
    if (old != places_.end() && old->second == at) {
      places_.erase(old);
    }
  }
  taken_[at] = true;
  places_.try_emplace(text, static_cast<std::uint32_t>(id));
  vocabulary.tokens[at] = std::move(text);
  vocabulary.types[at] = static_cast<std::int32_t>(type);
  if (!vocabulary.scores.empty()) {
    vocabulary.scores[at] = score;
  }
}

void VocabularyBuilder::put(std::int64_t id, std::string text, TokenType type, float score,
                            std::string_view where) {
  if (!has_row(id, "token", text, where)) {
    return;
  }
  if (taken_[static_cast<std::size_t>(id)]) {
    throw_bad_input("{}: tokens {} and {} have the same id {}", where,
                    printable(vocabulary.tokens[static_cast<std::size_t>(id)], 60),
                    printable(text, 60), id);
  }
  place(id, type == TokenType::kUserDefined ? with_plain_spaces(text) : std::move(text), type,
        score);
}

void VocabularyBuilder::put_added(std::int64_t id, std::string text, bool special,
                                  std::string_view where) {
  if (!has_row(id, "added token", text, where)) {
    return;
  }
  const auto at = static_cast<std::size_t>(id);
  const TokenType type = vocabulary.type(at);
  const bool known = taken_[at] && vocabulary.tokens[at] == text;
  if (known &&
      (type == TokenType::kUnknown || type == TokenType::kControl || type == TokenType::kByte)) {
    return;
  }
  place(id, special ? std::move(text) : with_plain_spaces(text),
        special ? TokenType::kControl : TokenType::kUserDefined, kAddedScore);
}

Vocabulary VocabularyBuilder::finish() {
  if (!left_out_.empty()) {
    vocabulary.notes.push_back(
        fmt::format("{} tokens beyond the {} rows of the token embedding are left out",
                    left_out_.size(), rows_));
  }
  return std::move(vocabulary);
}

VocabularyBuilder read_sentencepiece(const fs::path& file, std::int64_t rows) {
  const std::string where = printable_path(file);
  SentencePieceModel model =
      parse_sentencepiece_model(read_text(file, kMaxSentencePieceBytes), where);
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

bool is_byte_token(std::string_view text) {
  return text.size() == 6 && text.starts_with("<0x") && text.ends_with('>');
}

// A SentencePiece model that was converted to BPE in tokenizer.json has lost its scores. Earlier
// merges get higher scores, which restores the order.
void score_by_merges(VocabularyBuilder& builder, const std::vector<std::string>& merges) {
  const auto worst = -static_cast<float>(merges.size());
  const auto tokens = static_cast<std::uint32_t>(builder.vocabulary.tokens.size());
  for (std::uint32_t id = 0; id < tokens; ++id) {
    if (builder.vocabulary.type(id) == TokenType::kNormal) {
      builder.vocabulary.scores[id] = worst;
    }
  }
  for (std::size_t rank = merges.size(); rank-- > 0;) {  // the best score is set last and stays
    const std::size_t space = merges[rank].find(' ');
    std::string whole = merges[rank];
    const auto id = builder.find(whole.erase(space, 1));
    if (id && builder.vocabulary.type(*id) == TokenType::kNormal) {
      builder.vocabulary.scores[*id] = -static_cast<float>(rank);
    }
  }
}

// What each merge makes. Runs of one character are left out: their order is not that of scores.
std::vector<std::string> made_tokens(const std::vector<std::string>& merges) {
  std::vector<std::string> tokens;
  for (std::string merge : merges) {
    merge.erase(merge.find(' '), 1);
    if (!repeats_one_character(merge)) {
      tokens.push_back(std::move(merge));
    }
  }
  return tokens;
}

void mark_bytes_and_unknown(VocabularyBuilder& builder, const std::string& unknown) {
  const std::vector<std::string>& tokens = builder.vocabulary.tokens;
  for (std::uint32_t id = 0; id < tokens.size(); ++id) {
    if (is_byte_token(tokens[id])) {
      builder.vocabulary.set_type(id, TokenType::kByte);
    }
  }
  if (const auto id = builder.find(unknown)) {
    builder.vocabulary.set_type(*id, TokenType::kUnknown);
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

// Special and added tokens, which several files may define.

// The tokens listed in tokenizer.json's "added_tokens", added_tokens.json and
// tokenizer_config.json's "added_tokens_decoder".
void put_added_tokens(VocabularyBuilder& builder, const fs::path& directory,
                      const SortedJson& tokenizer) {
  const auto put = [&](const StoredAddedToken& token) {
    builder.put_added(token.id, token.content, token.special, token.where);
  };
  if (const SortedJson& listed = member_of(tokenizer, "added_tokens"); listed.is_array()) {
    const std::string where = printable_path(directory / "tokenizer.json");
    for (const SortedJson& token : listed) {
      put(listed_token(token, where));
    }
  }
  std::ranges::for_each(added_tokens_beside(directory), put);
}

// Sets a flag if the config does.
void set_flag(std::optional<bool>& flag, const SortedJson& config, std::string_view key) {
  if (const auto stated = flag_in(config, key)) {
    flag = stated;
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
  for (const std::string_view view : kRoles) {
    const std::string role(view);
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
  set_flag(vocabulary.add_bos, tokenizer_config, "add_bos_token");
  set_flag(vocabulary.add_eos, tokenizer_config, "add_eos_token");
  if (vocabulary.model == "llama") {  // byte-level loaders never add one
    set_flag(vocabulary.add_space_prefix, tokenizer_config, "add_prefix_space");
  }
  read_post_processor(vocabulary, builder, member_of(tokenizer, "post_processor"));
  vocabulary.chat_template = chat_template_in(directory, tokenizer_config, vocabulary.notes);
}

// Llama 3's files in Meta's form name no tokens with a role.
void find_edges_of_text(VocabularyBuilder& builder) {
  for (const auto& [role, text] :
       {std::pair("bos", "<|begin_of_text|>"), {"eos", "<|end_of_text|>"}}) {
    if (const auto id = builder.find(text)) {
      builder.vocabulary.special_ids.emplace(role, *id);
    }
  }
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
  find_edges_of_text(*builder);
  Vocabulary vocabulary = builder->finish();
  if (!sentencepiece) {
    note_other_merges(vocabulary, tokenizer, where);
  }
  return vocabulary;
}

}  // namespace regroup
