// The context length a model was trained for.
#pragma once

#include <cstdint>
#include <string>

#include "formats/model/model.h"

namespace regroup {

/// `wanted` tokens, limited by the positions in the config and by the sequence length of the
/// model's recorded uptraining.
std::int64_t usual_context(const Model& model, std::int64_t wanted);

/// A one-line warning if `length` tokens exceed the positions in the config, otherwise empty.
/// Dynamic RoPE scaling has no limit.
std::string warning_of_positions(const Model& model, std::int64_t length);

/// The same, and also warns if `length` exceeds the sequence length of the model's uptraining.
std::string warning_of_context(const Model& model, std::int64_t length);

}  // namespace regroup
