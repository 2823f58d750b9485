// The trainable weights of one attention while it is refitted.
// Shapes: D hidden size, H query heads, G kv heads, d features per head.
#pragma once

#include <string>
#include <vector>

#include "converter/heads/attention_heads.h"
#include "uptrain/model/attention_layer.h"
#include "uptrain/model/parameters.h"

namespace regroup {

/// A linear map divided by its RMS, so that one learning rate suits all maps.
class ScaledLinear {
 public:
  ScaledLinear(const DenseLinear& linear, c10::Device device);

  /// The map with its own scale, for a forward pass with gradients.
  Linear linear() const;
  void add_parameters(const std::string& name, std::vector<Parameters::Entry>& entries) const;
  void write_to(DenseLinear& linear) const;

 private:
  at::Tensor leaf_of(const at::Tensor& wide, c10::Device device) const;
  void put(const at::Tensor& leaf, std::vector<double>& values) const;

  double scale_ = 1.0;
  at::Tensor weight_, bias_;
};

class AttentionFit {
 public:
  /// Parts that are not pooled, such as norms, are those of `source`, in the order of the queries.
  AttentionFit(const AttentionHeads& heads, const AttentionLayer& source,
               const at::Tensor& query_order, c10::Device device);

  AttentionLayer attention() const;
  Parameters parameters() const;
  void write_to(AttentionHeads& heads) const;

 private:
  ScaledLinear q_, k_, v_, o_;
  AttentionLayer rest_;
};

}  // namespace regroup
