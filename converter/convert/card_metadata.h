// Parts of the model card: metadata, and how to load the result.
#pragma once

#include <string>
#include <string_view>

#include "formats/base/json.h"
#include "formats/families/loader_code.h"
#include "formats/spec/model_spec.h"
#include "formats/tensors/gguf_metadata.h"

namespace regroup {

// The metadata in the first lines of a model card, README.md.
// https://huggingface.co/docs/hub/model-cards#model-card-metadata

/// `text` as a YAML value that every reader takes for this text: in quotes unless it begins with a
/// letter, has only letters, digits and "._-/:+~%?=", and is none of YAML's words, such as yes.
std::string yaml_text(std::string_view text);

/// The lines of `card`'s metadata that also hold for a model made from it: base_model, its name,
/// the license, language, library and task, each with a plain value or a list of plain values.
/// Other values are left out, so that no text of a card becomes another key. Values are written by
/// yaml_text(). Ends with a line break unless empty.
std::string lasting_metadata(std::string_view card);

/// The same of a GGUF file: license, languages, model_name with dashes for spaces, and as
/// base_model the repository that it names as its own, or else as the one it was made from.
std::string lasting_metadata(const GgufMetadata& gguf);

/// Whether `metadata`, such lines, has a value for `key`.
bool has_metadata(std::string_view metadata, std::string_view key);

/// `metadata` without `key`.
std::string without_metadata(std::string_view metadata, std::string_view key);

// The section of a model card on how to load the model.

/// `text` if it consists of letters, digits, "_.-" and `also`, as names do; other characters become
/// "?".
std::string card_word(std::string_view text, std::string_view also = "");

/// What transformers, vLLM, mlx-lm, CTranslate2, llama.cpp and regroup need to load a directory
/// with this config.json and spec, as Markdown; also sentence-transformers if `metadata`
/// (lasting_metadata()) names it. Only if the directory's `code` is regroup's is that said of it;
/// what regroup did not write is listed.
std::string loading_section(const Json& config, const ModelSpec& spec, std::string_view metadata,
                            const DirectoryCode& code);

}  // namespace regroup
