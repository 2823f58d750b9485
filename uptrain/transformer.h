// The one decoder-only transformer: every family is a ModelSpec for it.
//
// Shapes: B sequences, T positions, D hidden size, V vocabulary, H query heads, d head dimension.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "formats/model_spec.h"
#include "uptrain/attention.h"
#include "uptrain/parameters.h"

namespace regroup {

/// y = x Wᵀ + b on a stored linear map.
struct Linear {
  at::Tensor weight;  ///< [out, in], or [in, out] where input_major
  at::Tensor bias;    ///< [out], or undefined
  bool input_major = false;

  bool present() const { return weight.defined(); }
  at::Tensor operator()(const at::Tensor& x) const;
};

/// LayerNorm or RMSNorm over the last dimension, computed in fp32 at least.
struct Norm {
  at::Tensor weight;  ///< [D], or undefined: none is applied
  at::Tensor bias;    ///< [D], or undefined
  NormKind kind = NormKind::kRmsNorm;
  double epsilon = 1e-5;
  double weight_offset = 0.0;  ///< added to the weight

  at::Tensor operator()(const at::Tensor& x) const;
};

class Transformer {
 public:
  /// Computes with the tensors in `parameters` (shared, so training changes them in place), in
  /// their dtype and on their device. Throws kBadInput for what it cannot compute.
  Transformer(ModelSpec spec, const Parameters& parameters);

  /// The last hidden states, after the final norm. tokens: int64 [B, T] -> [B, T, D]. Throws kUsage
  /// when T is longer than a model with learned positions has positions.
  at::Tensor hidden_states(const at::Tensor& tokens) const;

  /// hidden: [..., D] -> [..., V].
  at::Tensor logits(const at::Tensor& hidden) const;

  /// The mean of -log p(target) over all tokens, see next_token_loss(). hidden: [B, T, D], targets:
  /// int64 [B·T].
  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& targets) const;

  /// The output projection [V, D]: the token embedding where the two are tied.
  const at::Tensor& head() const { return head_; }

  const ModelSpec& spec() const { return spec_; }
  at::Device device() const { return token_embedding_.device(); }
  at::ScalarType scalar_type() const { return token_embedding_.scalar_type(); }

  /// Another form of ALiBi than the device's own choice, to compare them.
  void set_alibi_form(AlibiForm form) { alibi_form_ = form; }

 private:
  struct Block {
    Norm attention_norm;
    std::optional<Norm> mlp_norm;  // none where the MLP reads what attention reads
    std::optional<Norm> q_norm, k_norm;
    Packing packing = Packing::kSeparate;
    Linear q, k, v, o;  // in fused packings q is the whole projection
    Linear gate, up, down;
    std::int64_t kv_heads = 0;
    std::optional<Alibi> alibi;
  };
  struct Positions;  // what depends on T only, made once per pass

  Block make_block(const LayerTensors& names, std::int64_t layer,
                   const Parameters& parameters) const;
  Norm make_norm(const NormTensors& names, const Parameters& parameters) const;
  std::optional<Norm> make_qk_norm(const std::vector<NormTensors>& names,
                                   const Parameters& parameters) const;
  double slope_scale() const;
  Positions make_positions(std::int64_t length) const;
  at::Tensor embed(const at::Tensor& tokens) const;
  at::Tensor attention(const Block& block, const at::Tensor& x, const Positions& positions) const;
  at::Tensor run_block(const Block& block, const at::Tensor& x, const Positions& positions) const;
  Heads project_heads(const Block& block, const at::Tensor& x) const;
  at::Tensor mlp(const Block& block, const at::Tensor& x) const;
  at::Tensor activate(const at::Tensor& x) const;

  ModelSpec spec_;
  at::Tensor token_embedding_;     // [V, D]
  at::Tensor position_embedding_;  // [positions, D], or undefined
  at::Tensor head_;                // [V, D]
  at::Tensor head_bias_;           // [V], or undefined
  Linear project_in_, project_out_;
  std::optional<Norm> embedding_norm_;
  std::optional<Norm> final_norm_;
  std::vector<Block> blocks_;
  AlibiForm alibi_form_;
};

}  // namespace regroup
