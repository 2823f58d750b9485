// Finds the attention of a model of unknown architecture by the names of its tensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "formats/checkpoint/checkpoint.h"

namespace regroup {

/// One attention in each of the layers 0 to `layers` - 1.
struct AttentionStack {
  std::string layer;   ///< what the layer's names begin with, "model.layers.{layer}."
  std::string module;  ///< the attention's module in it, such as "self_attn."; may be empty
  std::int64_t layers = 0;
  /// Names of weights by their role in a layout file ("q", "k", "v", or "qkv"; "o"; "q_bias", …;
  /// "q_norm", …), with the placeholder for the layer's number.
  std::map<std::string, std::string> names;
  /// The shape of each, which is the same in all layers.
  std::map<std::string, Shape> shapes;

  bool fused() const { return names.contains("qkv"); }
};

/// The attentions whose q, k and v (or one tensor of all) have names that such tensors usually
/// have, in every layer, as matrices. Those with more than one output projection have none.
std::vector<AttentionStack> find_attention_stacks(const Checkpoint& checkpoint);

}  // namespace regroup
