// Sizes of a model's blocks.
#pragma once

#include "formats/spec/model_spec.h"

namespace regroup {

/// Numbers of elements.
struct BlockElements {
  double outside = 0.0;  ///< in no block: embeddings, head, last norms
  double inside = 0.0;   ///< in all blocks
  double largest = 0.0;  ///< in the largest block
  double last = 0.0;     ///< in the last block
};

/// Of the blocks of all stacks.
BlockElements block_elements(const ModelSpec& spec);

}  // namespace regroup
