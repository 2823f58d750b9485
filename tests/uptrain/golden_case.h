// A fixture of tests/golden: a tiny model, tokens, and the logits that transformers computes for
// them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "formats/vocabulary/token_file.h"
#include "uptrain/model/language_model.h"
#include "uptrain/model/parameters.h"

namespace regroup {

struct GoldenCase {
  Model source;
  at::Tensor tokens;  ///< int64 [B, T]
  at::Tensor logits;  ///< fp32 [B, T, V], of an encoder-decoder [B, ⌈T/2⌉, V], see window_logits()
};

GoldenCase load_golden_case(const std::string& name);

/// The names of all cases, in alphabetical order.
std::vector<std::string> golden_cases();

/// Reads one tensor of a safetensors file unchanged.
at::Tensor read_tensor(const std::filesystem::path& file, const std::string& name);

/// Every attention of a model.
inline const std::vector<AttentionRole> kAllRoles{AttentionRole::kSelf, AttentionRole::kCross,
                                                  AttentionRole::kEncoder};

/// Writes a model with random weights in fp32: the config of tests/golden's llama with `changes`, a
/// JSON object. Returns `directory`.
std::filesystem::path put_random_llama(const std::filesystem::path& directory,
                                       const std::string& changes);

/// The logits of a transformer, see window_logits().
at::Tensor logits_of(const ModelSpec& spec, const Parameters& parameters, const at::Tensor& tokens);

/// Writes the case's tokens as a raw token file of 16-bit ids.
TokenFile put_tokens_of(const GoldenCase& golden, const std::filesystem::path& path);

/// The largest absolute difference of two tensors, compared in fp64.
double largest_difference(const at::Tensor& one, const at::Tensor& other);

}  // namespace regroup
