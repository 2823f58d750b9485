// A SentencePiece model, or only its normalisation rules. If the checks accept it, Google's library
// must handle it with any text.
#include <algorithm>
#include <string>

#include "tests/fuzz/fuzz_target.h"
#include "tests/tokens/sentencepiece_builder.h"
#include "tokens/tokenizer.h"

namespace regroup {
namespace {

// Every byte once, characters of all lengths, and long runs.
std::string texts() {
  std::string text = "ab aab \u00e4\u2581\u3000\ufb01\U0001f600 ";
  for (int byte = 1; byte < 256; ++byte) {
    text += static_cast<char>(byte);
  }
  return text + std::string(100, 'a') + std::string(40, ' ') + std::string(3, '\0');
}

// Input that begins with 'C' is a set of rules, and other input a whole model.
std::string model_of(std::string_view input) {
  if (!input.starts_with('C')) {
    return std::string(input);
  }
  BuiltSentencePiece model{{{"<unk>", 0, 2}, {"\u2581", -1}, {"a", -2}, {"b", -3}, {"ab", -1}}};
  model.unigram = true;
  model.charsmap = input.substr(1);
  return model.bytes();
}

}  // namespace
}  // namespace regroup

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const regroup::MemoryFile file;
  static const std::string text = regroup::texts();
  const std::string_view input = regroup::text_of(data, size);
  file.hold(regroup::model_of(input));
  regroup::refuse_or_read([&] {
    const auto tokenizer = regroup::open_sentencepiece(file.path());
    std::vector<std::uint32_t> ids;
    tokenizer->encode(text, /*begins_document=*/true, ids);
    tokenizer->encode(input.substr(input.size() - std::min<std::size_t>(input.size(), 256)),
                      /*begins_document=*/false, ids);
    for (const std::uint32_t id : ids) {
      if (id >= static_cast<std::uint64_t>(tokenizer->vocabulary())) {
        ::abort();
      }
    }
  });
  return 0;
}
