// Converts text to token ids, with a SentencePiece model, a tokenizer.json, or one token per
// byte.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/vocabulary/tokenizer_files.h"

namespace regroup {

/// The BOS and EOS tokens, and whether each document gets them.
struct DocumentEnds {
  std::optional<std::int64_t> bos, eos;  ///< ids, if the tokens exist
  bool add_bos = false;
  bool add_eos = false;
};

/// Thread-safe: one tokenizer serves several threads.
class Tokenizer {
 public:
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  virtual ~Tokenizer() = default;

  /// Appends the ids of a document, or of a part of one, to `ids`. Special tokens spelled out in
  /// the text are treated as text. Parts after the first should begin with white space: their ids
  /// then concatenate to those of the whole, unless a vocabulary token contains inner white space.
  /// Throws kBadInput if the library fails.
  virtual void encode(std::string_view text, bool begins_document,
                      std::vector<std::uint32_t>& ids) const = 0;

  /// From now on, special tokens spelled out in a text are those tokens. Returns false if this kind
  /// of tokenizer does not find them.
  virtual bool parse_special() { return false; }

  /// The text of these tokens, without special ones. Bytes that are not UTF-8, such as half a
  /// character, become U+FFFD. Throws kBadInput if the file's way of decoding is not supported.
  virtual std::string decode(std::span<const std::uint32_t> ids) const = 0;

  /// The id of the token with this text, special tokens included; nothing if there is none, or if
  /// the tokens have no texts.
  virtual std::optional<std::int64_t> id_of(std::string_view) const { return std::nullopt; }

  /// Calls `visit` with the id and the text of each token.
  virtual void for_each_token(const TokenVisitor& visit) const = 0;

  /// The number of characters that encode() has left out, because the tokenizer has no token for
  /// them and none for unknown ones.
  virtual std::int64_t left_out() const { return 0; }

  /// All ids are below this.
  virtual std::int64_t vocabulary() const = 0;

  /// The rows of the model's embedding, if known: tokenize() refuses text that gives other ids.
  std::optional<std::int64_t> rows() const { return rows_; }
  void set_rows(std::int64_t rows) { rows_ = rows; }

  /// Whether text must be UTF-8 (false for byte tokens).
  virtual bool reads_utf8() const = 0;

  const DocumentEnds& ends() const { return ends_; }
  void set_ends(const DocumentEnds& ends) { ends_ = ends; }

  /// The model's chat template, see chat_template_in(); empty if there is none.
  const std::string& chat_template() const { return chat_template_; }
  void set_chat_template(std::string text) { chat_template_ = std::move(text); }

  /// The file that the tokens come from; empty for byte tokens.
  const std::filesystem::path& file() const { return file_; }
  void set_file(std::filesystem::path file) { file_ = std::move(file); }

 private:
  DocumentEnds ends_;
  std::optional<std::int64_t> rows_;
  std::filesystem::path file_;
  std::string chat_template_;
};

/// Opens the tokenizer `name`: "bytes" (256 tokens, one per byte), a SentencePiece model, a
/// tokenizer.json, an older file that tokenizer_json_from() reads, a model directory with one of
/// these, such a directory's name in the Hugging Face cache, or a GGUF file. tokenizer_file_in()
/// chooses a directory's, with tokenizer.json first if this build reads it. A file that has such a
/// name and is given by its path is what it is in its directory: the files beside it add tokens
/// (added_tokens_beside()), and tokenizer_config.json decides about BOS and EOS. If it does not
/// say, SentencePiece models add both; a tokenizer.json adds what its post-processor adds, and at
/// least the EOS that a config names; make_gguf_tokenizer() says what GGUF files add; bytes have
/// none. A config.json says how many rows the model has. Throws kBadInput if `name` is none of
/// these, for a tokenizer that is malformed or not supported, and for a tokenizer.model whose ids
/// are known not to be the model's. Throws kUsage in a build without the library that is needed,
/// kInterrupted soon after `stop` becomes true.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name, const std::atomic<bool>& stop);
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name);

// The kinds: SentencePiece models, Hugging Face's tokenizer.json, GGUF files, and those with tokens
// that other files add.

/// Opens a tokenizer.model and takes BOS and EOS from it. Throws kBadInput for a malformed file,
/// kUsage in a build without SentencePiece.
std::unique_ptr<Tokenizer> open_sentencepiece(const std::filesystem::path& model);

/// Whether this build can read tokenizer.json: it needs PCRE2 and utf8proc.
bool reads_tokenizer_json();

/// Opens a tokenizer.json, or a file of which tokenizer_json_from() makes one, with those of the
/// tokens `added` that it does not list. Its post-processor decides about BOS and EOS. Throws
/// kBadInput for a malformed file and anything that is not supported, kUsage in a build without
/// PCRE2 or utf8proc.
std::unique_ptr<Tokenizer> open_tokenizer_json(const std::filesystem::path& file,
                                               const std::vector<AddedToken>& added = {});

/// The same from the contents. Error messages begin with `where` (a file name).
std::unique_ptr<Tokenizer> make_json_tokenizer(const nlohmann::json& tokenizer,
                                               const std::string& where);

/// Finds `added` in a text, except special ones, and has `inner` encode what is between them. Such
/// a section begins as a document does only if `sections_begin` is true. The ids of added tokens
/// take precedence over those of `inner`. Throws kBadInput for malformed tokens, kUsage in a build
/// without utf8proc and PCRE2.
std::unique_ptr<Tokenizer> with_added_tokens(std::unique_ptr<Tokenizer> inner,
                                             const std::vector<AddedToken>& added,
                                             bool sections_begin);

/// The tokenizer of a GGUF file: byte-level BPE, SentencePiece's BPE, Unigram or WordPiece. BOS and
/// EOS are the file's: EOS is added if there is one, BOS if the file or the kind of tokenizer says
/// so. Throws kBadInput for malformed and unknown vocabularies, kUsage in a build that does not
/// read tokenizer.json.
std::unique_ptr<Tokenizer> make_gguf_tokenizer(const GgufMetadata& metadata);

// Chats.

/// The form of the chats that tokenizer.chat_template() writes, if it is a known one: ChatML, or
/// that of Llama 2 (and Mistral), Llama 3, Llama 3.1, Gemma, Phi-3, Phi-4 or Zephyr. Templates are
/// programs, in Jinja; none is run. They are known by their special tokens, which the tokenizer
/// must have, too. A literal default system prompt is part of the form. Nothing if there is no
/// template or another. From then on the tokenizer finds special tokens in texts (parse_special()).
std::optional<ChatForm> chat_form_of(Tokenizer& tokenizer);

/// The tokens of a chat up to the model's answer to `prompt`.
std::vector<std::uint32_t> asked_in(const ChatForm& chat, std::string_view prompt,
                                    const Tokenizer& tokenizer);

}  // namespace regroup
