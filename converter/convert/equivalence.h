// Whether a family computes the same as another, and the target that a file records.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "converter/convert/target.h"
#include "formats/model/conversion_record.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// The differences that keep `target` from computing exactly what `source` computes with mapped
/// tensors, each as "<what>: <source's>, <target's>"; empty if there are none. These may differ:
/// names, packing, transposition, the pairing of RoPE's features, one norm for two in parallel
/// blocks, absent biases that the target stores as zeros, repeated kv heads.
std::vector<std::string> obstacles_between(const ModelSpec& source, const ModelSpec& target);

// The Hugging Face config that regroup stores in its GGUF files, so that the conversion back
// restores every byte.

/// Stores config and dtypes of the source in `metadata`, the metadata of a GGUF file made from it.
void record_source(GgufMetadata& metadata, const Model& source, const std::string& config_text);

/// The stored target with the kv heads of `grouped`; nothing if `source` is no such file. Throws
/// kBadInput if the record does not fit the file.
std::optional<Target> recorded_target(const Model& source, const ModelSpec& grouped);

/// Gives `spec` the sliding windows of `other`, a model with the same layers.
void use_windows_of(ModelSpec& spec, const ModelSpec& other);

/// Whether a tensor holds only zeros, as biases do that a graph requires and the model lacks.
bool holds_only_zeros(const Checkpoint& checkpoint, const TensorInfo& tensor);

/// Whether it holds the bytes of tensor `other`, as an output tied to the embedding does.
bool repeats(const Checkpoint& checkpoint, const TensorInfo& tensor, const std::string& other);

/// The original dtype of a tensor, by its Hugging Face name; nothing if it was not recorded.
std::optional<DType> recorded_dtype(const Model& source, const std::string& tensor);

}  // namespace regroup
