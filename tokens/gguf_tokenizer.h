// The tokenizer inside a GGUF file.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include <nlohmann/json.hpp>

#include "formats/gguf/gguf_metadata.h"
#include "tokens/tokenizer.h"

namespace regroup {

/// Opens the tokenizer of a GGUF file. BOS and EOS are the file's: EOS is added if there is one,
/// BOS if the file or the kind of tokenizer says so. Throws kBadInput for malformed and unknown
/// vocabularies, kUsage in a build that does not read tokenizer.json.
std::unique_ptr<Tokenizer> open_gguf_tokenizer(const std::filesystem::path& file);

/// What a tokenizer.json says that gives the same ids. Only byte-level BPE ("gpt2") with a known
/// tokenizer.ggml.pre; throws kBadInput for others.
nlohmann::json tokenizer_json_of(const GgufMetadata& metadata);

}  // namespace regroup
