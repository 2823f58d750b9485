#include "tokens/added_tokenizer.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tokens/hf/added_tokens.h"
#include "tokens/hf/token_model.h"
#include "tokens/hf/work.h"

namespace regroup {
namespace {

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
  void for_each_token(
      const std::function<void(std::int64_t, std::string_view)>& visit) const override {
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

}  // namespace

std::unique_ptr<Tokenizer> with_added_tokens(std::unique_ptr<Tokenizer> inner,
                                             const std::vector<StoredAddedToken>& added,
                                             bool sections_begin) {
  return std::make_unique<AddedTokenizer>(std::move(inner), added, sections_begin);
}

}  // namespace regroup
