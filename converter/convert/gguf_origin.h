// What a directory made from a GGUF file keeps of it: its tokenizer in Hugging Face's form, and all
// of its metadata, so that a GGUF file made from the directory has them again.
#pragma once

#include <string_view>

#include "converter/convert/target.h"

namespace regroup {

/// The file with the metadata: a GGUF file without tensors.
inline constexpr std::string_view kGgufMetadataFile = "gguf-metadata.kv";

/// Adds the files of a directory that is made from `source`, a GGUF file. If the file's tokenizer
/// has no other form, a note says why, and only the metadata are added.
void keep_gguf_origin(Target& target, const Model& source);

/// Sets the tokenizer and the "general.*" keys of `target`, a GGUF file that is made from the
/// directory `source`. If the directory has metadata of a GGUF file and its tokenizer files are
/// still those made from them, the tokenizer keys are those of the metadata, else they are made
/// from the tokenizer files. Throws kBadInput for malformed files.
void restore_gguf_origin(Target& target, const Model& source);

}  // namespace regroup
