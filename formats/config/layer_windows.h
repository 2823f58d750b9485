// Sliding windows in some of the layers: layer_types and sliding_window.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "formats/config/config_reader.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// Whether each layer has the sliding window, from layer_types ("sliding_attention" or
/// "full_attention"); nothing without the key. Throws kBadInput for another list.
std::optional<std::vector<bool>> listed_windows(const ConfigReader& config, std::size_t layers);

/// Gives the layers in `slides` a window of `width`, and the others none.
void set_windows(ModelSpec& spec, const std::vector<bool>& slides, std::int64_t width);

/// Reads layer_types (without the key, all layers slide but every `pattern`-th) and sliding_window
/// (4096 without the key). Throws kBadInput if layers slide in a window of null.
void read_layer_windows(ModelSpec& spec, const ConfigReader& config, std::int64_t pattern);

}  // namespace regroup
