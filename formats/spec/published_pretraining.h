// Published pretraining lengths of well-known models.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "formats/spec/model_spec.h"

namespace regroup {

struct PublishedPretraining {
  std::string_view model;  ///< "Llama 2 7B"
  std::int64_t tokens = 0;
  std::string_view source;  ///< the publication
};

/// The pretraining of the model with this shape, ignoring kv heads. None if no published model has
/// it, or if models with different pretraining lengths share it: LLaMA 7B and Amber, T5 and
/// T5-Efficient, T5 1.1 and Pile-T5. A fine-tuned model counts as its base model.
std::optional<PublishedPretraining> published_pretraining(const ModelSpec& spec);

}  // namespace regroup
