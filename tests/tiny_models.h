// Tiny models of every family, made in tests: a config and its tensors.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "formats/model/model_directory.h"
#include "formats/spec/model_spec.h"
#include "tests/checkpoint_builder.h"

namespace regroup {

struct TinyModel {
  std::string config;  ///< the text of config.json
  std::vector<BuiltTensor> tensors;

  BuiltTensor& tensor(std::string_view name);
  void remove(std::string_view name);
  /// Sets a member of the config to a JSON value.
  TinyModel& set(const std::string& key, std::string_view value);
};

/// The default is 12 heads in 4 groups because H/G ≠ G makes a transposed grouping visible.
struct TinySizes {
  std::int64_t layers = 2;
  std::int64_t query_heads = 12;
  std::int64_t kv_heads = 12;
  std::int64_t head_dim = 2;
  std::int64_t hidden_size = 6;        ///< Llama only: elsewhere it is query_heads · head_dim
  std::int64_t intermediate_size = 4;  ///< Llama only
  DType dtype = DType::kF32;
  bool attention_bias = false;  ///< Llama only: always present elsewhere
};

TinyModel tiny_llama(const TinySizes& sizes = {});
TinyModel tiny_gpt2(const TinySizes& sizes = {});
TinyModel tiny_bloom(const TinySizes& sizes = {});

/// The model of a fixture in tests/golden, for changes. Its weights must be safetensors.
TinyModel golden_model(std::string_view name);

/// Replaces tensors by those with the same names in a file.
void replace_tensors(TinyModel& model, const std::filesystem::path& file);

/// Writes config.json and model.safetensors; returns the directory.
std::filesystem::path put_model(const std::filesystem::path& directory, const TinyModel& model);

/// What the config and the headers of a model say.
ModelSpec spec_of(const TinyModel& tiny);

/// Writes config.json, one shard per `tensors_per_shard` tensors, and their index.
std::filesystem::path put_sharded_model(const std::filesystem::path& directory,
                                        const TinyModel& model, std::size_t tensors_per_shard);

}  // namespace regroup
