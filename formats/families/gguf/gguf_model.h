// Models as llama.cpp's GGUF files spell them: hyper-parameters in the metadata, tensor names of
// their own, and which graph computes which ModelSpec.
#pragma once

#include <string>
#include <vector>

#include "formats/checkpoint/checkpoint.h"
#include "formats/families/gguf/gguf_parts.h"
#include "formats/gguf/gguf_metadata.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// Whether general.architecture is one of a graph known here, without experts.
bool is_known_gguf_model(const GgufMetadata& metadata);

/// The model that `metadata` describes. Of the tensors only the names enter; the vocabulary's size
/// is the embedding's, in the form without tensors <arch>.vocab_size or the number of tokens.
/// Throws kBadInput for an unknown architecture and for missing or impossible values.
ModelSpec describe_gguf(const GgufMetadata& metadata, const Checkpoint& checkpoint);
ModelSpec describe_gguf(const GgufMetadata& metadata, const GgufParts& parts);

/// The hyper-parameters of `spec`, a model of any convention, for the graph of llama.cpp that
/// computes it: its family's own or another. Throws kUsage naming what stands in the way where none
/// does. describe_gguf(gguf_metadata_for(spec), gguf_parts_for(spec)) is `spec` but for:
/// - tensor names and packing (q‖k‖v wherever the graph wants it fused), rope.interleaved (rows of
///   queries and keys are to be reordered), norm_weight_offset (to be added to the weights);
/// - biases named there that `spec` lacks, to be written as zeros; output.weight where `spec` ties
///   its head, to be written as a copy of the embedding;
/// - what gguf_differences() says.
GgufMetadata gguf_metadata_for(const ModelSpec& spec);

/// The tensors that go with it. Where rope_factors is set, rope_freqs.weight must be written.
GgufParts gguf_parts_for(const ModelSpec& spec);

/// What llama.cpp will compute otherwise than `spec` says, a sentence each: GELU's tanh form for
/// erf's, a context cut to the sliding window, a context length for a model that has none.
std::vector<std::string> gguf_differences(const ModelSpec& spec);

/// rope_freqs.weight for RopeScaling::Kind::kLlama3: what each of the rotary_dim / 2 frequencies is
/// divided by.
std::vector<float> gguf_rope_factors(const RopeSpec& rope);

}  // namespace regroup
