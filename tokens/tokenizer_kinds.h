// The kinds of tokenizers: SentencePiece models, Hugging Face's tokenizer.json, GGUF files, and
// those with tokens that other files add.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "formats/tensors/gguf_metadata.h"
#include "formats/vocabulary/tokenizer_files.h"
#include "tokens/tokenizer.h"

namespace regroup {

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
                                               const std::vector<StoredAddedToken>& added = {});

/// The same from the contents. Error messages begin with `where` (a file name).
std::unique_ptr<Tokenizer> make_json_tokenizer(const nlohmann::json& tokenizer,
                                               const std::string& where);

/// Finds `added` in a text, except special ones, and has `inner` encode what is between them. Such
/// a section begins as a document does only if `sections_begin` is true. The ids of added tokens
/// take precedence over those of `inner`. Throws kBadInput for malformed tokens, kUsage in a build
/// without utf8proc and PCRE2.
std::unique_ptr<Tokenizer> with_added_tokens(std::unique_ptr<Tokenizer> inner,
                                             const std::vector<StoredAddedToken>& added,
                                             bool sections_begin);

/// The tokenizer of a GGUF file: byte-level BPE, SentencePiece's BPE, Unigram or WordPiece. BOS and
/// EOS are the file's: EOS is added if there is one, BOS if the file or the kind of tokenizer says
/// so. Throws kBadInput for malformed and unknown vocabularies, kUsage in a build that does not
/// read tokenizer.json.
std::unique_ptr<Tokenizer> make_gguf_tokenizer(const GgufMetadata& metadata);

}  // namespace regroup
