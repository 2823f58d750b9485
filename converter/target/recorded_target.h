// The Hugging Face config that regroup keeps inside the GGUF files it makes, so that the way back
// restores every byte.
#pragma once

#include <optional>
#include <string_view>

#include "converter/target/target.h"

namespace regroup {

/// Under which keys of the file's metadata they stand.
inline constexpr std::string_view kSourceConfigKey = "regroup.config";
inline constexpr std::string_view kSourceDtypesKey = "regroup.dtypes";

/// Notes config and dtypes of the source in `metadata`, the metadata of a GGUF file made of it.
void record_source(GgufMetadata& metadata, const Model& source, const std::string& config_text);

/// What was noted, with the kv heads of `grouped`; nothing where `source` is no such file. Throws
/// kBadInput where the note does not fit the file.
std::optional<Target> recorded_target(const Model& source, const ModelSpec& grouped);

/// Whether a tensor holds nothing but zeros, as biases do that a graph asks for and the model
/// lacks.
bool holds_only_zeros(const Checkpoint& checkpoint, const TensorInfo& tensor);

/// Whether it holds the bytes of tensor `other`, as outputs do that are tied to the embedding.
bool repeats(const Checkpoint& checkpoint, const TensorInfo& tensor, const std::string& other);

/// The dtype that a tensor had before it went into the file, by its Hugging Face name; nothing
/// where that was not noted.
std::optional<DType> recorded_dtype(const Model& source, const std::string& tensor);

}  // namespace regroup
