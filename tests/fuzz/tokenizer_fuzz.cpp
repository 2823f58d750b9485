// A tokenizer: tokenizer.json if the input begins like JSON, otherwise a SentencePiece model.
#include "formats/vocabulary/sentencepiece.h"
#include "formats/vocabulary/vocabulary.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

// A model directory whose tokenizer.json is the file in memory.
const std::filesystem::path& directory_of(const MemoryFile& file) {
  static const TemporaryDirectory directory;
  static const std::filesystem::path path = [&] {
    std::filesystem::create_symlink(file.path(), directory / "tokenizer.json");
    return directory.path();
  }();
  return path;
}

void read_json(std::string_view text) {
  constexpr std::int64_t kRows = 8;
  static const MemoryFile file;
  file.hold(text);
  const Vocabulary vocabulary = read_vocabulary(directory_of(file), kRows);
  if (!vocabulary.present()) {
    return;
  }
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
