// Which container a file is, told by its first bytes rather than by its name.
#pragma once

#include <filesystem>

#include "formats/checkpoint/checkpoint.h"

namespace regroup {

/// Opens one weight file of any container known: safetensors, torch of both formats, GGUF, llama2.c
/// (which has no magic number and is told by its size). Throws kBadInput for others and for files
/// with any fault in their headers.
Checkpoint::Part open_weight_file(const std::filesystem::path& path);

}  // namespace regroup
