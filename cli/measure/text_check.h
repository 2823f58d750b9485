// Refuses a text that the model does not predict: what is computed from it would be of no use.
#pragma once

#include <filesystem>
#include <string>

#include "cli/measure/refit_options.h"
#include "cli/shell/console.h"
#include "formats/model/model.h"

namespace regroup {

/// Throws kBadInput if the source predicts the tokens in `data`, given with `option`, no better
/// than chance (TextChance), naming both losses and kAnyTextOption. Models that do not predict the
/// next token are not checked.
void check_is_predicted(const Model& source, const std::filesystem::path& data, const char* option,
                        const RefitOptions& compute, const Console& console);

/// Turns the check off.
inline constexpr const char* kAnyTextOption = "--allow-any-text";
inline constexpr const char* kAnyTextHelp =
    "use the text even if the model predicts it no better than chance";

}  // namespace regroup
