#include "tokens/json_tokenizer.h"

#include <algorithm>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/base/printable.h"
#include "formats/vocabulary/vocabulary_files.h"
#include "tokens/hf/decoder.h"
#include "tokens/hf/pipeline.h"

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
  void for_each_token(
      const std::function<void(std::int64_t, std::string_view)>& visit) const override {
    pipeline_.for_each_token(visit);
  }

 private:
  using Empty = nlohmann::json;

  Pipeline pipeline_;
  std::string where_;
  nlohmann::json decoder_;
  mutable std::once_flag listed_;
  mutable std::vector<std::string> texts_;  // by id, for decode()
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
  std::sort(added.begin(), added.end(),
            [](const auto& left, const auto& right) { return left.id < right.id; });
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
  const std::string where = printable(file.string(), 0);
  nlohmann::json tokenizer = is_vocabulary_file(file)
                                 ? tokenizer_json_from(file)
                                 : parse_sorted_json_object(read_text(file, kMaxJsonBytes), where);
  put_missing(added, tokenizer);
  return make_json_tokenizer(tokenizer, where);
}

}  // namespace regroup
