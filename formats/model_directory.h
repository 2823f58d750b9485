// A model as Hugging Face lays it out: config.json, weights in one file or in indexed shards, and
// the tokenizer and other files that travel with it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "formats/checkpoint.h"
#include "formats/json.h"

namespace regroup {

struct ModelDirectory {
  std::filesystem::path path;  ///< the directory
  std::string config_text;     ///< config.json, byte for byte
  Json config;                 ///< the same, parsed
  Checkpoint checkpoint;
  std::vector<std::filesystem::path> companions;  ///< files to carry along, relative to `path`
};

/// Opens a directory that holds config.json and safetensors weights: headers only. Throws kBadInput
/// when it is not such a directory, a shard is missing, or index and shards disagree.
ModelDirectory open_model_directory(const std::filesystem::path& path);

/// Opens the weights of a directory, an index, or a single file; no config.json is needed.
Checkpoint open_checkpoint(const std::filesystem::path& path);

/// The directory's config.json; `path` may also name a weight file or index inside it.
std::filesystem::path directory_of_model(const std::filesystem::path& path);

}  // namespace regroup
