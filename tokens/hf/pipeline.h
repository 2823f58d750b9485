// A tokenizer from its parts: normalizer, pre-tokenizer, model and post-processor.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "tokens/hf/added_tokens.h"
#include "tokens/hf/bpe_model.h"
#include "tokens/hf/json_fields.h"
#include "tokens/hf/steps.h"
#include "tokens/hf/token_model.h"

namespace regroup {

/// The tokens before and after a document, which the post-processor adds.
struct EndTokens {
  std::optional<std::uint32_t> first, last;
};

/// What a tokenizer.json describes: added tokens, normalizers, pre-tokenizers, a model, and what
/// comes before and after a document. Thread-safe. Each thread uses a cache of up to 16 MiB.
class Pipeline {
 public:
  /// Error messages begin with `where` (a file name). Throws kBadInput for what is malformed or not
  /// supported. Settings for truncation, padding and decoding have no meaning here.
  Pipeline(const nlohmann::json& tokenizer, const std::string& where);

  /// Appends the ids of a document or of a part of one, which must be UTF-8. Throws kBadInput if
  /// that takes more time or memory than Work allows, kInterrupted if Work is to stop.
  void encode(std::string_view text, bool begins_document, std::vector<std::uint32_t>& ids) const;

  /// From now on, special tokens are found in a text, too.
  void parse_special();

  /// All ids are below this.
  std::int64_t vocabulary() const { return vocabulary_; }
  /// Characters that encode() left out so far: the vocabulary cannot represent them.
  std::size_t left_out() const { return left_out_; }
  const EndTokens& ends() const { return ends_; }
  /// Calls `visit` with each token of the vocabulary and each added one, once.
  void for_each_token(const TokenVisitor& visit) const;
  bool is_special(std::uint32_t id) const { return special_.contains(id); }
  /// The id of a token of the vocabulary, or of an added one.
  std::optional<std::uint32_t> id_of(std::string_view token) const;

 private:
  // Lends a cache for the time of one call.
  class CachePool {
   public:
    std::unique_ptr<WordCache> take();
    void give_back(std::unique_ptr<WordCache> cache);

   private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<WordCache>> caches_;
  };

  struct Output {
    WordCache& cache;
    std::vector<std::uint32_t>& ids;
  };

  void number(const std::vector<AddedToken>& added, const JsonFields& fields);
  void find_added_tokens(const std::vector<AddedToken>& added, const JsonFields& fields);
  void normalize(NormalText& text) const;
  void encode_section(std::string_view section, const Origin& origin, Output output) const;
  void encode_normal(std::string_view section, const Origin& origin, Output output) const;
  void encode_word(std::string_view word, Output output) const;

  std::string where_;
  Normalizers normalizers_;
  PreTokenizers pre_tokenizers_;
  std::unique_ptr<TokenModel> model_;
  TokenIds added_ids_;
  std::set<std::uint32_t> special_;
  AddedTokenFinder literal_, normalized_;  // looked for before and after normalization
  EndTokens ends_;
  std::int64_t vocabulary_ = 0;
  mutable CachePool caches_;
  mutable std::atomic<std::size_t> left_out_{0};
};

}  // namespace regroup
