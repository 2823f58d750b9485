// The vocabulary of a GGUF file, and a text that it encodes. The first line of the input names
// model and pre-tokenization, the others have a type, a score and a token each; after an empty line
// follow merges. Missing columns make lists of different lengths.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "formats/tensors/gguf_metadata.h"
#include "formats/vocabulary/tokenizer_files.h"
#include "tests/fuzz/encode_twice.h"
#include "tests/fuzz/fuzz_target.h"
#include "tokens/text_stream.h"
#include "tokens/tokenizer.h"

namespace regroup {
namespace {

constexpr std::string_view kKey = "tokenizer.ggml.";

// Takes what precedes the first `end`, which is dropped.
std::string take(std::string_view& rest, char end) {
  const std::string_view taken = rest.substr(0, rest.find(end));
  rest.remove_prefix(std::min(taken.size() + 1, rest.size()));
  return std::string(taken);
}

void put_lists(GgufMetadata& metadata, std::string_view lines) {
  std::vector<std::string> tokens, merges;
  std::vector<std::int32_t> types;
  std::vector<float> scores;
  const auto key = [](std::string_view name) { return std::string(kKey).append(name); };
  while (!lines.empty() && lines.front() != '\n') {
    std::string line = take(lines, '\n');
    std::string_view rest = line;
    types.push_back(std::atoi(take(rest, ' ').c_str()));
    if (!rest.empty()) {
      scores.push_back(std::strtof(take(rest, ' ').c_str(), nullptr));
      tokens.emplace_back(rest);
    }
  }
  while (!lines.empty()) {
    merges.push_back(take(lines, '\n'));
  }
  metadata.set_array(key("tokens"), std::span<const std::string>(tokens));
  metadata.set_array(key("token_type"), std::span<const std::int32_t>(types));
  metadata.set_array(key("scores"), std::span<const float>(scores));
  metadata.set_array(key("merges"), std::span<const std::string>(merges));
}

GgufMetadata metadata_of(std::string_view input) {
  GgufMetadata metadata("fuzz");
  std::string line = take(input, '\n');
  std::string_view rest = line;
  metadata.set_string(std::string(kKey) + "model", take(rest, ' '));
  metadata.set_string(std::string(kKey) + "pre", take(rest, ' '));
  for (const char* flag : {"add_space_prefix", "remove_extra_whitespaces", "add_eos_token"}) {
    if (!rest.empty()) {
      metadata.set_bool(std::string(kKey) + flag, take(rest, ' ') == "1");
    }
  }
  for (const char* id : {"bos_token_id", "unknown_token_id", "eot_token_id"}) {
    if (!rest.empty()) {
      metadata.set_u32(std::string(kKey) + id, static_cast<std::uint32_t>(std::strtoul(
                                                   take(rest, ' ').c_str(), nullptr, 10)));
    }
  }
  put_lists(metadata, input);
  return metadata;
}

}  // namespace
}  // namespace regroup

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input = regroup::text_of(data, size);
  const std::string text = regroup::with_replacements(input) + " aab ab  b\u2581\U0001f600\n<s>";
  const regroup::GgufMetadata metadata = regroup::metadata_of(input);
  regroup::refuse_or_read([&] { regroup::tokenizer_files_of(metadata); });
  regroup::refuse_or_read(
      [&] { regroup::encode_twice(*regroup::make_gguf_tokenizer(metadata), text, true); });
  return 0;
}
