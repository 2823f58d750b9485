#include <sentencepiece_processor.h>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/vocabulary/sentencepiece.h"
#include "tokens/tokenizer.h"

namespace regroup {
namespace {

using sentencepiece::SentencePieceProcessor;

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(const std::string& bytes, std::string where) : where_(std::move(where)) {
    const SentencePieceModel model = parse_sentencepiece_model(bytes, where_);
    load(whole_, bytes);
    continues_alike_ = model.adds_space_prefix == model.removes_extra_spaces;
    if (!continues_alike_) {
      // protobuf merges the appended bytes into the model's normalizer_spec (3). They set
      // add_dummy_prefix (3).
      load(going_on_, bytes + "\x1a\x02\x18" + (model.removes_extra_spaces ? '\1' : '\0'));
    }
    const auto bos = id_or_none(whole_.bos_id()), eos = id_or_none(whole_.eos_id());
    set_ends({bos, eos, bos.has_value(), eos.has_value()});
  }

  void encode(std::string_view text, bool begins_document,
              std::vector<std::uint32_t>& ids) const override {
    std::vector<int> found;
    const auto& processor = begins_document || continues_alike_ ? whole_ : going_on_;
    check(processor.Encode(text, &found));
    append(ids, found);
  }

  std::string decode(std::span<const std::uint32_t> ids) const override {
    std::vector<int> known;
    for (const std::uint32_t id : ids) {
      if (id < static_cast<std::uint32_t>(whole_.GetPieceSize()) && !whole_.IsControl(int(id))) {
        known.push_back(static_cast<int>(id));
      }
    }
    std::string text;
    check(whole_.Decode(known, &text));
    return text;
  }

  std::int64_t vocabulary() const override { return whole_.GetPieceSize(); }
  std::optional<std::int64_t> id_of(std::string_view token) const override {
    const int id = whole_.PieceToId(token);
    return id == whole_.unk_id() && token != whole_.IdToPiece(id) ? std::nullopt : id_or_none(id);
  }
  void for_each_token(const TokenVisitor& visit) const override {
    for (int id = 0; id < whole_.GetPieceSize(); ++id) {
      visit(id, whole_.IdToPiece(id));
    }
  }
  bool reads_utf8() const override { return true; }

 private:
  static std::optional<std::int64_t> id_or_none(int id) {
    return id < 0 ? std::nullopt : std::optional<std::int64_t>(id);
  }

  void check(const sentencepiece::util::Status& status) const {
    if (!status.ok()) {
      throw_bad_input("{}: SentencePiece: {}", where_, printable(status.error_message()));
    }
  }

  void load(SentencePieceProcessor& processor, const std::string& bytes) {
    check(processor.LoadFromSerializedProto(bytes));
    check(processor.status());
  }

  std::string where_;
  SentencePieceProcessor whole_;
  // For parts of a document after the first. It keeps leading white space and adds no prefix. If
  // the model removes white space at the ends, the prefix restores it.
  SentencePieceProcessor going_on_;
  bool continues_alike_ = false;
};

}  // namespace

std::unique_ptr<Tokenizer> open_sentencepiece(const std::filesystem::path& model) {
  return std::make_unique<SentencePieceTokenizer>(read_text(model, kMaxTokenizerBytes),
                                                  printable_path(model));
}

}  // namespace regroup
