// Models in GGUF files.
#pragma once

#include <string>
#include <vector>

#include "formats/families/gguf_parts.h"
#include "formats/spec/model_spec.h"
#include "formats/tensors/checkpoint.h"
#include "formats/tensors/gguf_metadata.h"

namespace regroup {

// Models in llama.cpp's GGUF convention: hyper-parameters in the metadata, llama.cpp's tensor
// names, and which graph computes which ModelSpec.

/// Whether general.architecture is a known graph without experts.
bool is_known_gguf_model(const GgufMetadata& metadata);

/// The model that `metadata` describes. Uses only the names of the tensors, except for the
/// vocabulary size, which is that of the embedding; the overload without a checkpoint takes it from
/// <arch>.vocab_size or the number of tokens. Throws kBadInput for an unknown architecture and for
/// missing or invalid values.
ModelSpec describe_gguf(const GgufMetadata& metadata, const Checkpoint& checkpoint);
ModelSpec describe_gguf(const GgufMetadata& metadata, const GgufParts& parts);

/// The hyper-parameters of `spec`, a model of any convention, for the llama.cpp graph that computes
/// it: its family's own or another. Throws kUsage naming the obstacle if there is none.
/// describe_gguf(gguf_metadata_for(spec), gguf_parts_for(spec)) equals `spec` except for:
/// - tensor names and packing (q‖k‖v if the graph needs it fused), rope.interleaved (the caller
///   reorders the rows of queries and keys), norm_weight_offset (the caller adds it to the
///   weights), lm_head_normalised (the caller divides the rows by their norms);
/// - biases that `spec` lacks, to be written as zeros; output.weight if `spec` ties its head, to be
///   written as a copy of the embedding;
/// - what gguf_differences() lists.
GgufMetadata gguf_metadata_for(const ModelSpec& spec);

/// The tensors that go with gguf_metadata_for(). If rope_factors is set, rope_freqs.weight must be
/// written.
GgufParts gguf_parts_for(const ModelSpec& spec);

/// What llama.cpp will compute differently from `spec`, one sentence each: tanh GELU instead of erf
/// GELU, a context cut to the sliding window, a context length for a model that has none.
std::vector<std::string> gguf_differences(const ModelSpec& spec);

/// rope_freqs.weight for RopeScaling::Kind::kLlama3, and for a kLongRope with the same divisors at
/// all lengths: the divisor of each of the rotary_dim / 2 frequencies.
std::vector<float> gguf_rope_factors(const RopeSpec& rope);

}  // namespace regroup
