// How long well-known models were pretrained, as their makers published it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "formats/spec/model_spec.h"

namespace regroup {

struct PublishedPretraining {
  std::string_view model;  ///< "Llama 2 7B"
  std::int64_t tokens = 0;
  std::string_view source;  ///< where that stands
};

/// The pretraining of the model that has this shape, whatever its kv heads; none where no published
/// one has it, or where models that were pretrained for other lengths share it: LLaMA 7B's shape is
/// Amber's, T5's are those of T5-Efficient, and T5 1.1's those of Pile-T5. What was fine-tuned of a
/// model counts as that model.
std::optional<PublishedPretraining> published_pretraining(const ModelSpec& spec);

}  // namespace regroup
