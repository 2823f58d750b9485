// What makes token ids of text: a SentencePiece model, or the bytes themselves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace regroup {

/// The tokens that stand at the ends of a text, and whether they belong around each document.
struct DocumentEnds {
  std::optional<std::int64_t> bos, eos;  ///< their ids, where there are such tokens
  bool add_bos = false;
  bool add_eos = false;
};

/// Made once and used by several threads at a time.
class Tokenizer {
 public:
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  virtual ~Tokenizer() = default;

  /// Appends the ids of a document, or of a part of one, to `ids`; special tokens that the text
  /// spells out are text. A part that does not begin its document begins with white space, where it
  /// can: then the parts' ids together are those of the whole, unless a token of the vocabulary
  /// has white space inside. Throws kBadInput where the library cannot.
  virtual void encode(std::string_view text, bool begins_document,
                      std::vector<std::uint32_t>& ids) const = 0;

  /// Ids are below this.
  virtual std::int64_t vocabulary() const = 0;

  /// Whether text must be UTF-8; bytes need not be.
  virtual bool reads_utf8() const = 0;

  const DocumentEnds& ends() const { return ends_; }
  void set_ends(const DocumentEnds& ends) { ends_ = ends; }

 private:
  DocumentEnds ends_;
};

/// The tokenizer that `name` names: "bytes" (256 tokens, one per byte), a SentencePiece model, a
/// model directory that holds one as tokenizer.model, or such a directory's name in the Hugging
/// Face cache. What stands around documents is what the directory's tokenizer_config.json says,
/// else BOS and EOS as far as the model has them; bytes have none. Throws kBadInput for what is
/// none of these, for a model that is malformed or larger than the config's vocabulary, and for
/// tokenizers known to number SentencePiece's tokens otherwise; kUsage in a build without
/// SentencePiece.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name);

}  // namespace regroup
