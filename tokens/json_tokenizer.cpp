#include "tokens/json_tokenizer.h"

#include <utility>

#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/json/json.h"
#include "tokens/hf/pipeline.h"

namespace regroup {
namespace {

constexpr std::uint64_t kMaxJsonBytes = 64U << 20;  // published files have up to 33 MB

class JsonTokenizer : public Tokenizer {
 public:
  JsonTokenizer(const nlohmann::json& tokenizer, const std::string& where)
      : pipeline_(tokenizer, where) {
    const EndTokens& ends = pipeline_.ends();
    set_ends({ends.first, ends.last, ends.first.has_value(), ends.last.has_value()});
  }

  void encode(std::string_view text, bool begins_document,
              std::vector<std::uint32_t>& ids) const override {
    pipeline_.encode(text, begins_document, ids);
  }
  std::int64_t vocabulary() const override { return pipeline_.vocabulary(); }
  bool reads_utf8() const override { return true; }
  std::int64_t left_out() const override { return static_cast<std::int64_t>(pipeline_.left_out()); }
  std::optional<std::int64_t> id_of(std::string_view token) const override {
    return pipeline_.id_of(token);
  }

 private:
  Pipeline pipeline_;
};

}  // namespace

bool reads_tokenizer_json() { return true; }

std::unique_ptr<Tokenizer> make_json_tokenizer(const nlohmann::json& tokenizer,
                                               const std::string& where) {
  return std::make_unique<JsonTokenizer>(tokenizer, where);
}

std::unique_ptr<Tokenizer> open_tokenizer_json(const std::filesystem::path& file) {
  const std::string where = printable(file.string(), 0);
  return make_json_tokenizer(parse_sorted_json_object(read_text(file, kMaxJsonBytes), where),
                             where);
}

}  // namespace regroup
