// Where stock loaders would compute something different from regroup, because they derive it from
// the config and the head index while regroup uses recorded values.
#pragma once

#include <string>
#include <vector>

#include "formats/json/json.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// Sentences about what a stock loader would derive differently from `spec`: ALiBi slopes, from the
/// family's formula. Empty if there is no difference.
std::vector<std::string> derived_otherwise(const ModelSpec& spec);

/// The same, but also empty if the names in `config` prevent stock loaders from loading the model.
/// Always empty for results that regroup writes, because of keep_from_stock_loaders().
std::vector<std::string> misread_by_loaders(const ModelSpec& spec, const Json& config);

}  // namespace regroup
