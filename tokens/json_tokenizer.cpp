#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/base/printable.h"
#include "formats/vocabulary/tokenizer_files.h"
#include "tokens/hf/added_tokens.h"
#include "tokens/hf/pipeline.h"
#include "tokens/hf/steps.h"
#include "tokens/hf/token_model.h"
#include "tokens/hf/work.h"
#include "tokens/tokenizer_kinds.h"

namespace regroup {
namespace {

constexpr std::uint64_t kMaxJsonBytes = 64U << 20;  // published files have up to 33 MB

class JsonTokenizer : public Tokenizer {
 public:
  JsonTokenizer(const nlohmann::json& tokenizer, const std::string& where)
      : pipeline_(tokenizer, where), where_(where), decoder_(tokenizer.value("decoder", Empty())) {
    const EndTokens& ends = pipeline_.ends();
    set_ends({ends.first, ends.last, ends.first.has_value(), ends.last.has_value()});
  }

  void encode(std::string_view text, bool begins_document,
              std::vector<std::uint32_t>& ids) const override {
    pipeline_.encode(text, begins_document, ids);
  }
  bool parse_special() override {
    pipeline_.parse_special();
    return true;
  }
  std::string decode(std::span<const std::uint32_t> ids) const override {
    std::call_once(listed_, [&] {
      pipeline_.for_each_token([&](std::int64_t id, std::string_view text) {
        texts_.resize(std::max(texts_.size(), static_cast<std::size_t>(id) + 1));
        texts_[static_cast<std::size_t>(id)] = text;
      });
    });
    std::vector<std::string> tokens;
    for (const std::uint32_t id : ids) {
      if (id < texts_.size() && !pipeline_.is_special(id)) {
        tokens.push_back(texts_[id]);
      }
    }
    return decoded_text(std::move(tokens), decoder_, where_);
  }
  std::int64_t vocabulary() const override { return pipeline_.vocabulary(); }
  bool reads_utf8() const override { return true; }
  std::int64_t left_out() const override { return static_cast<std::int64_t>(pipeline_.left_out()); }
  std::optional<std::int64_t> id_of(std::string_view token) const override {
    return pipeline_.id_of(token);
  }
  void for_each_token(const TokenVisitor& visit) const override { pipeline_.for_each_token(visit); }

 private:
  using Empty = nlohmann::json;

  Pipeline pipeline_;
  std::string where_;
  nlohmann::json decoder_;
  mutable std::once_flag listed_;
  mutable std::vector<std::string> texts_;  // by id, for decode()
};

class AddedTokenizer : public Tokenizer {
 public:
  AddedTokenizer(std::unique_ptr<Tokenizer> inner, const std::vector<StoredAddedToken>& added,
                 bool sections_begin)
      : inner_(std::move(inner)), sections_begin_(sections_begin) {
    nlohmann::json listed = nlohmann::json::array();
    for (const StoredAddedToken& token : added) {
      listed.push_back(json_of(token));
    }
    const nlohmann::json tokenizer{{"added_tokens", std::move(listed)}};
    vocabulary_ = inner_->vocabulary();
    for (AddedToken& token : read_added_tokens({tokenizer, added.front().where, ""})) {
      vocabulary_ = std::max<std::int64_t>(vocabulary_, std::int64_t{token.id} + 1);
      ids_.emplace(token.content, token.id);
      contents_.emplace(token.id, token.special ? "" : token.content);
      std::string content = token.content;
      finder_.add(std::move(token), std::move(content));
    }
    finder_.finish();
    set_ends(inner_->ends());
  }

  void encode(std::string_view text, bool begins_document,
              std::vector<std::uint32_t>& ids) const override {
    Work::of_thread().begin(inner_->file().string(), text.size());
    finder_.for_each_section(text, [&](const AddedTokenFinder::Section& section) {
      if (section.token != nullptr) {
        ids.push_back(section.token->id);
        return;
      }
      const bool first = section.text.data() == text.data();
      inner_->encode(section.text, first ? begins_document : sections_begin_, ids);
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
    std::unordered_set<std::int64_t> added;
    for (const auto& [text, id] : ids_) {
      added.insert(id);
      visit(id, text);
    }
    inner_->for_each_token([&](std::int64_t id, std::string_view text) {
      if (!added.contains(id)) {
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
void put_missing(std::vector<StoredAddedToken> added, nlohmann::json& tokenizer) {
  nlohmann::json& listed = tokenizer["added_tokens"];
  std::unordered_set<std::string> known;
  for (const auto& [place, token] : listed.items()) {
    const auto content = token.is_object() ? token.find("content") : token.end();
    if (token.is_object() && content != token.end() && content->is_string()) {
      known.insert(content->get<std::string>());
    }
  }
  std::ranges::sort(added, {}, &StoredAddedToken::id);
  for (const StoredAddedToken& token : added) {
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
                                               const std::vector<StoredAddedToken>& added) {
  const std::string where = printable_path(file);
  nlohmann::json tokenizer = is_vocabulary_file(file)
                                 ? tokenizer_json_from(file)
                                 : parse_sorted_json_object(read_text(file, kMaxJsonBytes), where);
  put_missing(added, tokenizer);
  return make_json_tokenizer(tokenizer, where);
}

std::unique_ptr<Tokenizer> with_added_tokens(std::unique_ptr<Tokenizer> inner,
                                             const std::vector<StoredAddedToken>& added,
                                             bool sections_begin) {
  return std::make_unique<AddedTokenizer>(std::move(inner), added, sections_begin);
}

}  // namespace regroup
