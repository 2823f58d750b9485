// Which models and sequences can be computed.
#pragma once

#include <cstdint>

#include "formats/spec/model_spec.h"

namespace regroup {

/// Throws kBadInput for a model that Transformer cannot compute, with the reason.
void check_computable(const ModelSpec& spec);

/// Throws kUsage if the model's own code computes sequences of that length in another way.
void check_length(const ModelSpec& spec, std::int64_t length);

/// Throws kUsage for a model that cannot compute a part of a sequence, given the keys and values of
/// earlier parts.
void check_takes_parts(const ModelSpec& spec);

}  // namespace regroup
