// What stock loaders of a model compute otherwise than regroup, because they derive it from the
// config and from a head's place, where regroup has it recorded.
#pragma once

#include <string>
#include <vector>

#include "formats/json/json.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// Sentences about what a stock loader would derive otherwise than `spec` has it: ALiBi's slopes,
/// by the family's formula. Empty where it derives the same.
std::vector<std::string> derived_otherwise(const ModelSpec& spec);

/// The same, but empty where the names in `config` keep stock loaders from loading the model at
/// all. Of a result that regroup writes it is empty: the gate is keep_from_stock_loaders().
std::vector<std::string> misread_by_loaders(const ModelSpec& spec, const Json& config);

}  // namespace regroup
