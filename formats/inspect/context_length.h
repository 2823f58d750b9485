// How many tokens at a time a model was made for.
#pragma once

#include <cstdint>
#include <string>

#include "formats/model/model.h"

namespace regroup {

/// `wanted`, or fewer: the positions that the config declares, and the length of the sequences that
/// the model was uptrained on, as its record has it.
std::int64_t usual_context(const Model& model, std::int64_t wanted);

/// In one line that sequences of `length` tokens are longer than the positions that the config
/// declares; empty where they are not. RoPE that scales itself to any length (dynamic) has no
/// bound.
std::string warning_of_positions(const Model& model, std::int64_t length);

/// The same, or that they are longer than the sequences of the model's uptraining.
std::string warning_of_context(const Model& model, std::int64_t length);

}  // namespace regroup
