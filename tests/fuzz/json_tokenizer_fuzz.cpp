// A tokenizer.json, and a text that it encodes: what follows the first line of the input, and texts
// with all kinds of characters. The ids must be those of the vocabulary, from the cache as well.
#include <algorithm>
#include <string>

#include "formats/base/json.h"
#include "tests/fuzz/encode_twice.h"
#include "tests/fuzz/fuzz_target.h"
#include "tokens/text_stream.h"
#include "tokens/tokenizer.h"

namespace regroup {
namespace {

std::string fixed_text() {
  std::string text = "ab aab don't 12345 \u00e4a\u0308\u2581\u3000\ufb01\U0001f600 \u11a7\n\n  x\t";
  for (char byte = 1; byte < 127; ++byte) {
    text += byte;
  }
  return text + std::string(40, 'a') + std::string(20, ' ') + std::string(3, '\0');
}

}  // namespace
}  // namespace regroup

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string text = regroup::fixed_text();
  const std::string_view input = regroup::text_of(data, size);
  const std::size_t line = std::min(input.find('\n'), input.size());
  const std::string own = regroup::with_replacements(input.substr(line));
  regroup::refuse_or_read([&] {
    const auto tokenizer = regroup::make_json_tokenizer(
        regroup::parse_sorted_json_object(input.substr(0, line), "fuzz"), "fuzz");
    regroup::encode_twice(*tokenizer, text, /*begins_document=*/true);
    regroup::encode_twice(*tokenizer, own, /*begins_document=*/true);
    regroup::encode_twice(*tokenizer, own, /*begins_document=*/false);
  });
  return 0;
}
