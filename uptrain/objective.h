// What a model is asked about a window of text, which depends on what it was trained for.
//
// Shapes: B windows of C tokens, N predictions, D hidden size, V vocabulary.
#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "formats/model_spec.h"
#include "uptrain/transformer.h"

namespace regroup {

enum class Objective {
  kNextToken,     ///< decoders: each token after those before it
  kMaskedTokens,  ///< encoders: 15 % of the tokens, from all others
  kContinuation,  ///< encoder-decoders: the second half of the window, the encoder reading the
                  ///< first
};

/// "next_token", "masked_tokens" or "continuation".
std::string_view name_of(Objective objective);

Objective objective_of(const ModelSpec& spec);

/// Tokens a window of context C must hold: C, or with the one that follows it C + 1.
std::int64_t window_width(Objective objective, std::int64_t context);

/// Tokens predicted in a window of context C: C; 15 % of it, at least one; or the larger half.
std::int64_t predictions_in(Objective objective, std::int64_t context);

/// How tokens are hidden: of those chosen 80 % become `token`, 10 % a random one and 10 % stay
/// (Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section 3.1). A pure function of the seed
/// and the window's number.
struct Masking {
  std::int64_t token = 0;
  std::uint64_t seed = 0;
};

/// A batch of windows with tokens hidden. `positions` are indices into the flattened batch.
struct MaskedTokens {
  at::Tensor ids;        ///< int64 [B, C]
  at::Tensor positions;  ///< int64 [N], those to predict
  at::Tensor targets;    ///< int64 [N]
};

/// ids: int64 [B, C] in host memory, windows number `first` and following.
MaskedTokens mask_tokens(const at::Tensor& ids, std::int64_t first, const Masking& masking,
                         std::int64_t vocab_size);

/// What the encoder and the decoder read and what the latter shall predict: [B, ⌊C/2⌋] and twice
/// [B, ⌈C/2⌉], where the decoder begins with its start token.
struct Halves {
  at::Tensor source, target, answers;
};
Halves split_halves(const at::Tensor& ids, std::int64_t start_token);

/// Hidden states [1, N, D] to predict from, and the right tokens, int64 [N], on the model's device.
struct Predictions {
  at::Tensor hidden;
  at::Tensor targets;
};

/// ids: int64 [B, window_width] in host memory, windows number `first` and following.
Predictions predict(const Transformer& model, const at::Tensor& ids, std::int64_t first,
                    const Masking& masking);

/// Logits of whole windows, nothing hidden: ids [B, C] -> [B, C, V], for encoder-decoders those of
/// the second half, [B, ⌈C/2⌉, V].
at::Tensor window_logits(const Transformer& model, const at::Tensor& ids);

}  // namespace regroup
