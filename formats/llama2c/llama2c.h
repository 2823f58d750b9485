// The one-file format of llama2.c that its run.c reads ("version 0"): seven numbers, then float32
// tensors grouped by kind. https://github.com/karpathy/llama2.c
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

/// What the file begins with, as seven little-endian i32.
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

/// The header of a file of that format, told by its size, which must be exactly what the header
/// implies: there is no magic number. Nothing for other files. Throws kBadInput for the later
/// versions of the format, which have one.
std::optional<Llama2cHeader> find_llama2c_header(const File& file);

/// Opens one file; each layer's slice of a kind is a tensor of its own, such as "layers.3.wq".
/// Throws kBadInput when it is none.
Checkpoint::Part open_llama2c(const std::filesystem::path& path);

/// The spec of a file with that header. run.c fixes the rest: RoPE on neighbouring pairs with theta
/// 10000, RMSNorm with 1e-5, SwiGLU.
ModelSpec describe_llama2c(const Llama2cHeader& header);

/// Why a model cannot be written in this format, a reason each; none when it can. Which pairs RoPE
/// rotates is no obstacle: reordering the rows of q and k changes it.
std::vector<std::string> llama2c_obstacles(const ModelSpec& spec);

/// The header of a file for `spec` with `seq_len` positions. Throws kUsage listing what
/// llama2c_obstacles() finds, and for a length that is no positive i32.
Llama2cHeader llama2c_header_for(const ModelSpec& spec, std::int64_t seq_len);

/// Writes one such file. The tensors, float32, have the names of describe_llama2c(), and q and k
/// their rows in pairs.
class Llama2cWriter : public CheckpointWriter {
 public:
  /// Lays the file out for the sizes of `spec` and `seq_len` positions; writes the header and the
  /// tables of RoPE's cosines and sines, which the exporter writes and run.c steps over. Throws
  /// kUsage naming the first obstacle, kEnvironment when the free space cannot suffice.
  Llama2cWriter(const std::filesystem::path& file, const ModelSpec& spec, std::int64_t seq_len);

 private:
  void write_frequencies(std::uint64_t at, const Llama2cHeader& header);
};

}  // namespace regroup
