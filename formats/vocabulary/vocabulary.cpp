#include "formats/vocabulary/vocabulary.h"

#include <utility>

#include <fmt/format.h>

#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/vocabulary/sentencepiece.h"
#include "formats/vocabulary/vocabulary_builder.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxSentencePieceBytes = 256U << 20;

Vocabulary absent(const std::string& why) {
  Vocabulary vocabulary;
  vocabulary.notes.push_back(why);
  return vocabulary;
}

std::optional<VocabularyBuilder> read_own_tokens(const fs::path& directory,
                                                 const SortedJson& tokenizer, std::int64_t rows) {
  if (path_exists(directory / "tokenizer.model")) {
    return read_sentencepiece(directory / "tokenizer.model", rows);
  }
  if (!tokenizer.is_null()) {
    return read_tokenizer_json(tokenizer, printable((directory / "tokenizer.json").string(), 0),
                               rows);
  }
  return read_vocab_and_merges(directory, rows);
}

}  // namespace

VocabularyBuilder read_sentencepiece(const fs::path& file, std::int64_t rows) {
  const std::string where = printable(file.string(), 0);
  SentencePieceModel model =
      parse_sentencepiece_model(read_text(file, kMaxSentencePieceBytes), where);
  VocabularyBuilder builder(rows, true);
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    SentencePiece& piece = model.pieces[id];
    builder.put(static_cast<std::int64_t>(id), std::move(piece.text),
                static_cast<TokenType>(piece.type), piece.score, where);
  }
  Vocabulary& vocabulary = builder.vocabulary();
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

Vocabulary read_vocabulary(const fs::path& directory, std::int64_t rows) {
  const bool sentencepiece = path_exists(directory / "tokenizer.model");
  const SortedJson tokenizer = read_json_if_there(directory, "tokenizer.json");
  if (!sentencepiece && tokenizer.is_null() &&
      !(path_exists(directory / "vocab.json") && path_exists(directory / "merges.txt"))) {
    return absent(
        "there is no tokenizer.model, tokenizer.json or vocab.json with merges.txt: the "
        "result has no vocabulary");
  }
  auto builder = read_own_tokens(directory, tokenizer, rows);
  if (!builder) {
    return absent(fmt::format(
        "tokenizer.json has type {}, only BPE is supported: the result has no vocabulary",
        printable(token_text(member_of(tokenizer, "model"), "type"), 60)));
  }
  put_added_tokens(*builder, directory, tokenizer);
  read_special_tokens(*builder, directory, tokenizer);
  Vocabulary vocabulary = builder->finish();
  if (!sentencepiece && !tokenizer.is_null()) {
    note_other_merges(vocabulary, tokenizer, printable((directory / "tokenizer.json").string(), 0));
  }
  return vocabulary;
}

}  // namespace regroup
