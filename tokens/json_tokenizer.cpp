#include <algorithm>
#include <mutex>
#include <set>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/vocabulary/tokenizer_files.h"
#include "tokens/hf/added_tokens.h"
#include "tokens/hf/bpe_model.h"
#include "tokens/hf/steps.h"
#include "tokens/hf/token_model.h"
#include "tokens/hf/work.h"
#include "tokens/tokenizer.h"

namespace regroup {
namespace {

constexpr std::uint64_t kMaxJsonBytes = 64U << 20;  // published files have up to 33 MB
constexpr std::size_t kMaxNormalized = 10'000;      // bytes of an added token
constexpr std::size_t kMaxAdded = 16U << 20;        // bytes of all added tokens

// Lends a cache for the time of one call.
class CachePool {
 public:
  std::unique_ptr<WordCache> take() {
    const std::lock_guard lock(mutex_);
    if (caches_.empty()) {
      return std::make_unique<WordCache>();
    }
    std::unique_ptr<WordCache> cache = std::move(caches_.back());
    caches_.pop_back();
    return cache;
  }
  void give_back(std::unique_ptr<WordCache> cache) {
    const std::lock_guard lock(mutex_);
    caches_.push_back(std::move(cache));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<WordCache>> caches_;
};

TokenTexts special_among(const std::vector<AddedToken>& added) {
  TokenTexts special;
  for (const AddedToken& token : added) {
    if (token.special) {
      special.insert(token.content);
    }
  }
  return special;
}

// What a tokenizer.json describes: added tokens, normalizers, pre-tokenizers, a model, what comes
// before and after a document, and a decoder. Each thread uses a cache of up to 16 MiB. Settings
// for truncation and padding have no meaning here.
class JsonTokenizer : public Tokenizer {
 public:
  JsonTokenizer(const nlohmann::json& tokenizer, const std::string& where) : where_(where) {
    Work::of_thread().begin(where, 0);
    const JsonFields fields(tokenizer, where, "");
    if (fields.at("model").is_null()) {
      throw_bad_input(
          "{}: model is missing, so it is no tokenizer.json: name that, or the model's directory",
          where);
    }
    std::vector<AddedToken> added = read_added_tokens(fields);
    fields.allow({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                  "post_processor", "decoder", "model"});
    if (!fields.at("normalizer").is_null()) {
      read_normalizer(fields.object("normalizer"), normalizers_);
    }
    if (!fields.at("pre_tokenizer").is_null()) {
      read_pre_tokenizer(fields.object("pre_tokenizer"), pre_tokenizers_);
    }
    model_ = read_token_model(fields.object("model"), special_among(added));
    decoder_ = fields.at("decoder");
    vocabulary_ = std::int64_t{model_->largest_id()} + 1;
    number(added);
    find_added_tokens(added);
    if (!fields.at("post_processor").is_null()) {
      const EndTokens ends = read_post_processor(fields.object("post_processor"));
      set_ends({ends.first, ends.last, ends.first.has_value(), ends.last.has_value()});
    }
  }

  // The text must be UTF-8. Throws kBadInput if that takes more time or memory than Work allows,
  // kInterrupted if Work is to stop.
  void encode(std::string_view text, bool begins_document,
              std::vector<std::uint32_t>& ids) const override {
    std::unique_ptr<WordCache> cache = caches_.take();
    Work::of_thread().begin(where_, text.size());
    literal_.encode(text, ids, [&](std::string_view section, bool first) {
      encode_section(section, {first && begins_document, first && !begins_document}, {*cache, ids});
    });
    caches_.give_back(std::move(cache));
  }

  bool parse_special() override {
    literal_.find_special();
    normalized_.find_special();
    return true;
  }

  std::string decode(std::span<const std::uint32_t> ids) const override {
    std::call_once(listed_, [&] {
      for_each_token([&](std::int64_t id, std::string_view text) {
        texts_.resize(std::max(texts_.size(), static_cast<std::size_t>(id) + 1));
        texts_[static_cast<std::size_t>(id)] = text;
      });
    });
    std::vector<std::string> tokens;
    for (const std::uint32_t id : ids) {
      if (id < texts_.size() && !special_.contains(id)) {
        tokens.push_back(texts_[id]);
      }
    }
    return decoded_text(std::move(tokens), decoder_, where_);
  }

  std::optional<std::int64_t> id_of(std::string_view token) const override {
    const auto added = added_ids_.find(token);
    return added != added_ids_.end() ? added->second : model_->id_of(token);
  }

  void for_each_token(const TokenVisitor& visit) const override {
    for (const auto& [text, id] : added_ids_) {
      visit(id, text);
    }
    model_->for_each_token([&](std::int64_t id, std::string_view text) {
      if (!added_ids_.contains(text)) {
        visit(id, text);
      }
    });
  }

  std::int64_t left_out() const override { return left_out_; }
  std::int64_t vocabulary() const override { return vocabulary_; }
  bool reads_utf8() const override { return true; }

 private:
  struct Output {
    WordCache& cache;
    std::vector<std::uint32_t>& ids;
  };

  // An added token has the id of the vocabulary's token of the same text, or else the next free
  // one. That is how Python numbers them; the ids in the file only confirm it.
  void number(const std::vector<AddedToken>& added) {
    auto next = static_cast<std::uint32_t>(model_->size());
    for (const AddedToken& token : added) {
      const std::uint32_t id = model_->id_of(token.content).value_or(next);
      if (id != token.id) {
        throw_bad_input("{}: the added token {} has the id {}, its place in the vocabulary is {}",
                        where_, printable(token.content, 60), token.id, id);
      }
      next = std::max(next, id + 1);
      added_ids_.emplace(token.content, id);
      if (token.special) {
        special_.insert(id);
      }
      vocabulary_ = std::max<std::int64_t>(vocabulary_, std::int64_t{id} + 1);
    }
  }

  // Of equal texts to look for, the first is found: special tokens come first.
  void find_added_tokens(const std::vector<AddedToken>& added) {
    std::vector<AddedTokenFinder::Sought> literal, normalized;
    std::size_t bytes = 0;
    for (const bool special : {true, false}) {
      for (const AddedToken& token : added) {
        if (token.special != special) {
          continue;
        }
        if (!token.normalized) {
          literal.emplace_back(token, token.content);
          continue;
        }
        NormalText text{token.content, {}};
        normalize(text);
        bytes += text.text.size();
        if (text.text.empty() || text.text.size() > kMaxNormalized || bytes > kMaxAdded) {
          throw_bad_input("{}: normalization turns the added token {} into {} bytes", where_,
                          printable(token.content, 60), text.text.size());
        }
        normalized.emplace_back(token, std::move(text.text));
      }
    }
    literal_ = AddedTokenFinder(literal);
    normalized_ = AddedTokenFinder(normalized);
  }

  void normalize(NormalText& text) const {
    Work& work = Work::of_thread();
    for (const auto& normalizer : normalizers_) {
      work.step(1 + text.text.size() / 2);
      normalizer(text);
      work.check_size(text.text.size());
    }
  }

  void encode_section(std::string_view section, const Origin& origin, Output output) const {
    if (normalizers_.empty() && normalized_.empty()) {
      encode_normal(section, origin, output);
      return;
    }
    NormalText normal{std::string(section), origin};
    normalize(normal);
    normalized_.encode(normal.text, output.ids, [&](std::string_view part, bool first) {
      encode_normal(part, first ? normal.origin : Origin{false, false}, output);
    });
  }

  void encode_normal(std::string_view section, const Origin& origin, Output output) const {
    if (pre_tokenizers_.empty()) {
      encode_word(section, output);
      return;
    }
    Pieces pieces{std::string(section), {{0, static_cast<std::uint32_t>(section.size()), origin}}};
    for (const auto& pre_tokenizer : pre_tokenizers_) {
      pre_tokenizer(pieces);
    }
    for (const Piece& piece : pieces.list) {
      encode_word(pieces.view(piece), output);
    }
  }

  void encode_word(std::string_view word, Output output) const {
    while (!word.empty()) {
      const std::string_view unit = word.substr(0, model_->first_unit(word));
      word.remove_prefix(unit.size());
      if (const auto known = output.cache.find(unit)) {
        output.ids.insert(output.ids.end(), known->begin(), known->end());
        continue;
      }
      const std::size_t begin = output.ids.size();
      const std::size_t left_out = model_->encode(unit, output.ids);
      if (left_out == 0) {
        output.cache.put(unit, std::span(output.ids).subspan(begin));
      }
      left_out_ += static_cast<std::int64_t>(left_out);
    }
  }

  std::string where_;
  std::vector<Normalizer> normalizers_;
  std::vector<PreTokenizer> pre_tokenizers_;
  std::unique_ptr<TokenModel> model_;
  nlohmann::json decoder_;
  TokenIds added_ids_;
  std::set<std::uint32_t> special_;
  AddedTokenFinder literal_, normalized_;  // looked for before and after normalization
  std::int64_t vocabulary_ = 0;
  mutable CachePool caches_;
  mutable std::atomic<std::int64_t> left_out_{0};
  mutable std::once_flag listed_;
  mutable std::vector<std::string> texts_;  // by id, for decode()
};

class AddedTokenizer : public Tokenizer {
 public:
  AddedTokenizer(std::unique_ptr<Tokenizer> inner, const std::vector<AddedToken>& added,
                 bool sections_begin)
      : inner_(std::move(inner)), sections_begin_(sections_begin) {
    nlohmann::json listed = nlohmann::json::array();
    for (const AddedToken& token : added) {
      listed.push_back(json_of(token));
    }
    const nlohmann::json tokenizer{{"added_tokens", std::move(listed)}};
    vocabulary_ = inner_->vocabulary();
    std::vector<AddedTokenFinder::Sought> sought;
    for (const AddedToken& token : read_added_tokens({tokenizer, added.front().where, ""})) {
      const auto id = static_cast<std::uint32_t>(token.id);
      vocabulary_ = std::max(vocabulary_, token.id + 1);
      ids_.emplace(token.content, id);
      contents_.emplace(id, token.special ? "" : token.content);
      sought.emplace_back(token, token.content);
    }
    finder_ = AddedTokenFinder(sought);
    set_ends(inner_->ends());
  }

  void encode(std::string_view text, bool begins_document,
              std::vector<std::uint32_t>& ids) const override {
    Work::of_thread().begin(inner_->file().string(), text.size());
    finder_.encode(text, ids, [&](std::string_view section, bool first) {
      inner_->encode(section, first ? begins_document : sections_begin_, ids);
    });
  }

  std::string decode(std::span<const std::uint32_t> ids) const override {
    std::string text;
    std::vector<std::uint32_t> between;
    for (const std::uint32_t id : ids) {
      const auto found = contents_.find(id);
      if (found == contents_.end()) {
        between.push_back(id);
        continue;
      }
      text += inner_->decode(std::exchange(between, {})) + found->second;
    }
    return text + inner_->decode(between);
  }

  std::optional<std::int64_t> id_of(std::string_view token) const override {
    const auto found = ids_.find(token);
    return found == ids_.end() ? inner_->id_of(token) : std::optional<std::int64_t>(found->second);
  }
  void for_each_token(const TokenVisitor& visit) const override {
    for (const auto& [text, id] : ids_) {
      visit(id, text);
    }
    inner_->for_each_token([&](std::int64_t id, std::string_view text) {
      if (!contents_.contains(static_cast<std::uint32_t>(id))) {
        visit(id, text);
      }
    });
  }
  std::int64_t left_out() const override { return inner_->left_out(); }
  std::int64_t vocabulary() const override { return vocabulary_; }
  bool reads_utf8() const override { return inner_->reads_utf8(); }

 private:
  std::unique_ptr<Tokenizer> inner_;
  AddedTokenFinder finder_;
  TokenIds ids_;
  std::unordered_map<std::uint32_t, std::string> contents_;  // of special tokens: empty
  std::int64_t vocabulary_ = 0;
  bool sections_begin_ = false;
};

// Adds the tokens that "added_tokens" lacks, in the order of their ids.
void put_missing(std::vector<AddedToken> added, nlohmann::json& tokenizer) {
  nlohmann::json& listed = tokenizer["added_tokens"];
  std::unordered_set<std::string> known;
  for (const nlohmann::json& token : listed) {
    if (const auto& content = member_of(token, "content"); content.is_string()) {
      known.insert(content.get<std::string>());
    }
  }
  std::ranges::sort(added, {}, &AddedToken::id);
  for (const AddedToken& token : added) {
    if ((listed.is_null() || listed.is_array()) && known.insert(token.content).second) {
      listed.push_back(json_of(token));
    }
  }
}

}  // namespace

bool reads_tokenizer_json() { return true; }

std::unique_ptr<Tokenizer> make_json_tokenizer(const nlohmann::json& tokenizer,
                                               const std::string& where) {
  return std::make_unique<JsonTokenizer>(tokenizer, where);
}

std::unique_ptr<Tokenizer> open_tokenizer_json(const std::filesystem::path& file,
                                               const std::vector<AddedToken>& added) {
  const std::string where = printable_path(file);
  nlohmann::json tokenizer = is_vocabulary_file(file)
                                 ? tokenizer_json_from(file)
                                 : parse_sorted_json_object(read_text(file, kMaxJsonBytes), where);
  put_missing(added, tokenizer);
  return make_json_tokenizer(tokenizer, where);
}

std::unique_ptr<Tokenizer> with_added_tokens(std::unique_ptr<Tokenizer> inner,
                                             const std::vector<AddedToken>& added,
                                             bool sections_begin) {
  return std::make_unique<AddedTokenizer>(std::move(inner), added, sections_begin);
}

}  // namespace regroup
