// Weights as Meta publishes them: params.json beside consolidated.NN.pth, one per tensor-parallel
// rank, or one consolidated.safetensors.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "formats/checkpoint/checkpoint.h"

namespace regroup {

inline constexpr std::string_view kMetaParamsFile = "params.json";

/// Whether the directory holds params.json and weights of Meta's naming, and no config.json.
bool is_meta_directory(const std::filesystem::path& directory);

/// Opens all weight files of such a directory as one checkpoint. Throws kBadInput when a rank is
/// missing and for tensors that cannot be joined.
Checkpoint open_meta_checkpoint(const std::filesystem::path& directory);

/// Joins what the ranks hold, in their order: wo and w2 along their columns, norms and others of
/// one dimension are every rank's, tok_embeddings along rows (Llama 3) or columns (before), as the
/// norms' width tells; all else along rows. RoPE's frequencies ("rope.freqs") are left out. `where`
/// (the directory) opens error messages.
Checkpoint join_meta_ranks(std::vector<Checkpoint::Part> ranks, const std::string& where);

}  // namespace regroup
