// The section of a model card on how to load the model.
#pragma once

#include <string>
#include <string_view>

#include "formats/json/json.h"
#include "formats/loaders/foreign_code.h"
#include "formats/spec/model_spec.h"

namespace regroup {

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
