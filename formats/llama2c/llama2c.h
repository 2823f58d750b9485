// The llama2.c file format that run.c reads ("version 0"): seven integers, then float32 tensors
// grouped by kind. https://github.com/karpathy/llama2.c
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "formats/checkpoint/checkpoint.h"
#include "formats/checkpoint/checkpoint_writer.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// The file header: seven little-endian i32.
struct Llama2cHeader {
  std::int32_t dim = 0;
  std::int32_t hidden_dim = 0;
  std::int32_t layers = 0;
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t vocab_size = 0;
  std::int32_t seq_len = 0;
  bool own_classifier = false;  ///< stored as a negative vocab_size
};

/// Reads the header. The format has no magic number, so a file is recognised by having exactly the
/// size its header implies. Returns nothing for other files. Throws kBadInput for later versions of
/// the format, which have a magic number.
std::optional<Llama2cHeader> find_llama2c_header(const File& file);

/// Opens one file. Each layer's slice is a separate tensor, such as "layers.3.wq". Throws kBadInput
/// if the file has another format.
Checkpoint::Part open_llama2c(const std::filesystem::path& path);

/// The spec of a file with that header. run.c fixes the rest: RoPE on adjacent pairs with theta
/// 10000, RMSNorm with epsilon 1e-5, SwiGLU.
ModelSpec describe_llama2c(const Llama2cHeader& header);

/// The reasons why a model cannot be written in this format; empty if it can. The pairs that RoPE
/// rotates are no obstacle: reordering the rows of q and k changes them.
std::vector<std::string> llama2c_obstacles(const ModelSpec& spec);

/// The header of a file for `spec` with `seq_len` positions. Throws kUsage listing what
/// llama2c_obstacles() returns, and for a length that is not a positive i32.
Llama2cHeader llama2c_header_for(const ModelSpec& spec, std::int64_t seq_len);

/// Writes one such file. Tensors are float32 with the names in describe_llama2c(); rows of q and k
/// are in adjacent-pair order.
class Llama2cWriter : public CheckpointWriter {
 public:
  /// Lays the file out for the sizes of `spec` and `seq_len` positions. Writes the header and the
  /// tables of RoPE cosines and sines, which the original exporter writes and run.c skips. Throws
  /// kUsage naming the first obstacle, kEnvironment if there is not enough free space.
  Llama2cWriter(const std::filesystem::path& file, const ModelSpec& spec, std::int64_t seq_len);

 private:
  void write_frequencies(std::uint64_t at, const Llama2cHeader& header);
};

}  // namespace regroup
