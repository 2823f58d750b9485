// Detects a file's container format from its first bytes, not its name.
#pragma once

#include <filesystem>

#include "formats/checkpoint/checkpoint.h"

namespace regroup {

/// Opens one weight file in any supported container: safetensors, both torch formats, GGUF.
/// Throws kBadInput for other files and for any error in a header.
Checkpoint::Part open_weight_file(const std::filesystem::path& path);

}  // namespace regroup
