// Whether tokens are those of a model: whether its tokenizer made them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "cli/terminal/console.h"
#include "formats/model/model.h"
#include "formats/token_files/token_origin.h"
#include "tokens/tokenizer.h"

namespace regroup {

/// What a token file made with this tokenizer records.
TokenOrigin origin_of(const Tokenizer& tokenizer);

/// The same of a model's own tokenizer; nothing if it has none that can be read.
std::optional<TokenOrigin> origin_of(const Model& model);

/// Throws kUsage if `origin` is another tokenizer than the model's; `what` names the tokens.
/// Returns a warning if a few tokens differ or the model's tokenizer cannot be read; empty for
/// none, and for a model without a tokenizer.
std::string check_origin(const Model& model, const TokenOrigin& origin, const std::string& what);

/// The same for a token file, printing warnings; an empty path is none. Also warns if the file does
/// not say which tokenizer made it.
void check_data_origin(const Model& model, const std::filesystem::path& data,
                       const Console& console);

}  // namespace regroup
