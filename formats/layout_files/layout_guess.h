// A layout file made from what a model of unknown architecture shows of itself.
#pragma once

#include <string_view>

#include "formats/checkpoint/checkpoint.h"
#include "formats/json/json.h"

namespace regroup {

/// What to write for a value that has to be chosen by hand. No command accepts it.
inline constexpr std::string_view kToBeChosen = "?";

/// A layout file for `checkpoint`, from the names and shapes of its tensors and the numbers in
/// `config`. Its "comments" say of each value whether it is certain or a guess. What neither shows
/// is kToBeChosen. Error messages begin with `where` (the config's file name). Throws kBadInput if
/// the tensors show no attention or several, or if the sizes cannot be told; kUsage if the
/// architecture needs no layout file.
Json guess_layout(const Json& config, const Checkpoint& checkpoint, std::string_view where);

}  // namespace regroup
