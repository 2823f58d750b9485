// A tokenizer: tokenizer.json if the input begins like JSON, otherwise a SentencePiece model.
#include "formats/base/json.h"
#include "formats/vocabulary/sentencepiece.h"
#include "formats/vocabulary/vocabulary.h"
#include "tests/fuzz/fuzz_target.h"

namespace regroup {
namespace {

void read_json(std::string_view text) {
  constexpr std::int64_t kRows = 8;
  const std::filesystem::path nowhere("/proc/self/no-such-directory");
  const SortedJson tokenizer = parse_sorted_json_object(text, "fuzz");
  std::optional<VocabularyBuilder> builder = read_tokenizer_json(tokenizer, "fuzz", kRows);
  if (!builder) {
    return;
  }
  put_added_tokens(*builder, nowhere, tokenizer);
  read_special_tokens(*builder, nowhere, tokenizer);
  const Vocabulary vocabulary = builder->finish();
  if (vocabulary.tokens.size() != kRows || vocabulary.types.size() != kRows) {
    ::abort();
  }
  for (const auto& [role, id] : vocabulary.special_ids) {
    if (id >= kRows) {
      ::abort();
    }
  }
}

}  // namespace
}  // namespace regroup

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = regroup::text_of(data, size);
  regroup::refuse_or_read([&] {
    if (text.starts_with('{')) {
      regroup::read_json(text);
    } else {
      regroup::parse_sentencepiece_model(text, "fuzz");
    }
  });
  return 0;
}
