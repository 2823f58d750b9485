// Weights in Meta's layout: params.json with consolidated.NN.pth, one per tensor-parallel rank, or
// with a single consolidated.safetensors.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "formats/tensors/checkpoint.h"

namespace regroup {

inline constexpr std::string_view kMetaParamsFile = "params.json";

/// Whether the directory has params.json and weights with Meta's file names, and no config.json.
bool is_meta_directory(const std::filesystem::path& directory);

/// Opens all weight files of such a directory as one checkpoint. Throws kBadInput if a rank is
/// missing or tensors cannot be joined.
Checkpoint open_meta_checkpoint(const std::filesystem::path& directory);

/// Joins the tensors of all ranks, in rank order: wo and w2 along columns; tok_embeddings along
/// rows (Llama 3) or columns (earlier), decided by the norms' width; all others along rows.
/// One-dimensional tensors such as norms are replicated and taken once. RoPE frequencies
/// ("rope.freqs") are dropped. Error messages begin with `where` (the directory).
Checkpoint join_meta_ranks(std::vector<Checkpoint::Part> ranks, const std::string& where);

}  // namespace regroup
