#include "tokens/gguf_tokenizer.h"

#include <string>

#include "formats/tensors/gguf_split.h"
#include "formats/vocabulary/gguf_vocabulary.h"
#include "formats/vocabulary/tokenizer_files.h"
#include "tokens/json_tokenizer.h"

namespace regroup {

std::unique_ptr<Tokenizer> make_gguf_tokenizer(const GgufMetadata& metadata) {
  const Vocabulary vocabulary = vocabulary_in(metadata);
  auto tokenizer =
      make_json_tokenizer(tokenizer_json_of(vocabulary, metadata.where()), metadata.where());
  DocumentEnds ends = tokenizer->ends();  // of the post-processor
  const auto id_of = [&](const std::string& role) -> std::optional<std::int64_t> {
    const auto id = vocabulary.special_ids.find(role);
    return id == vocabulary.special_ids.end() ? std::nullopt : std::optional(id->second);
  };
  ends.bos = ends.bos ? ends.bos : id_of("bos");
  ends.eos = ends.eos ? ends.eos : id_of("eos");
  ends.add_eos = vocabulary.add_eos.value_or(true) && ends.eos;
  tokenizer->set_ends(ends);
  tokenizer->set_chat_template(vocabulary.chat_template);
  return tokenizer;
}

std::unique_ptr<Tokenizer> open_gguf_tokenizer(const std::filesystem::path& file) {
  return make_gguf_tokenizer(gguf_metadata_of(file));
}

}  // namespace regroup
