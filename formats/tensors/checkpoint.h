// The tensors of a checkpoint: names, shapes, dtypes, and the place of their bytes in files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/base/file.h"
#include "formats/base/name_table.h"
#include "formats/tensors/dtype.h"

namespace regroup {

/// Dimensions, outermost first. A scalar has none.
using Shape = std::vector<std::int64_t>;

/// Text such as "[32, 4096]".
std::string text_of(const Shape& shape);

/// One tensor: little-endian elements in bytes [begin, end) of a file, row-major unless it has
/// strides. Tensors of one file may share bytes (tied weights in torch files). A tensor that is
/// split across files has pieces instead of its own bytes and strides.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::size_t file = 0;  ///< index into Checkpoint::files()
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::vector<std::int64_t> strides = {};  ///< in elements, one per dimension; empty: row-major
  std::vector<TensorInfo> pieces = {};     ///< the part in each file, in order; not nested
  std::size_t joint = 0;                   ///< the dimension along which pieces are concatenated

  /// Bytes of its elements when row-major.
  std::uint64_t bytes() const;
  /// Whether [begin, end) is the whole row-major tensor, so that it can be copied as bytes.
  bool contiguous() const { return strides.empty() && pieces.empty(); }
  std::int64_t elements() const;
};

/// Bytes of a tensor of that dtype and shape. Throws kBadInput if a dimension is negative, the
/// count overflows, sub-byte elements do not fill whole bytes, or rows (the innermost dimension) of
/// a block type are not whole blocks.
std::uint64_t tensor_bytes(DType dtype, const Shape& shape);

/// A range of bytes in one file.
struct ByteRange {
  std::size_t file = 0;  ///< index into Checkpoint::files()
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// The byte ranges whose concatenation is the row-major tensor. Empty if the elements must be
/// reordered first (strides, or pieces joined along an inner dimension).
std::vector<ByteRange> ranges_of(const TensorInfo& tensor);

/// An open set of tensors. Opening reads only headers and validates them completely; a file with
/// any error yields no tensors.
class Checkpoint {
 public:
  /// One container file: its handle, its tensors in byte order, its metadata.
  struct Part {
    File file;
    std::vector<TensorInfo> tensors;
    std::map<std::string, std::string> metadata;
  };

  /// Joins parts (shards). Throws kBadInput if a tensor is in two of them.
  explicit Checkpoint(std::vector<Part> parts);

  /// From tensors that already have file indices, such as joined ones. Throws like the other
  /// constructor.
  Checkpoint(std::vector<File> files, std::vector<TensorInfo> tensors);

  std::span<const File> files() const { return files_; }
  std::span<const TensorInfo> tensors() const { return tensors_; }

  /// String metadata of all parts. The first part wins on conflicts.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  /// The tensor of that name, or null.
  const TensorInfo* find(std::string_view name) const;

  /// The tensor of that name. Throws kBadInput if it is missing, with layers_found_in().
  const TensorInfo& at(std::string_view name) const;

  /// Reads a whole tensor, row-major. `out` must have exactly tensor.bytes() bytes.
  void read(const TensorInfo& tensor, std::span<std::byte> out) const;

  /// The file that holds the tensor, or its first piece.
  const File& file_of(const TensorInfo& tensor) const { return files_[tensor.file]; }

 private:
  void index_names();
  void read_pieces(const TensorInfo& tensor, std::span<std::byte> out) const;

  std::vector<File> files_;
  std::vector<TensorInfo> tensors_;
  NameTable by_name_;  // of tensors_
  std::map<std::string, std::string> metadata_;
};

/// How many elements a shape has: 1 for an empty one. Does not check for overflow, as
/// tensor_bytes() does.
inline std::int64_t element_count(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

// The names of weight files and shards in a model directory, and the text of their index.

inline constexpr std::string_view kIndexFile = "model.safetensors.index.json";
inline constexpr std::string_view kSingleFile = "model.safetensors";
inline constexpr std::string_view kTorchIndexFile = "pytorch_model.bin.index.json";
inline constexpr std::string_view kTorchSingleFile = "pytorch_model.bin";

/// File names used by a container format.
struct WeightNames {
  std::string_view stem, extension;
};
inline constexpr WeightNames kSafetensorsWeightNames{"model", ".safetensors"};
inline constexpr WeightNames kTorchWeightNames{"pytorch_model", ".bin"};

/// "model-00001-of-00003.safetensors" for shard 0 of 3; "model.safetensors" for a single shard.
std::string shard_name(std::size_t shard, std::size_t count,
                       const WeightNames& names = kSafetensorsWeightNames);

/// The JSON text of an index. `tensors` pairs each tensor name with its shard number.
std::string encode_index(std::span<const std::pair<std::string, std::size_t>> tensors,
                         std::size_t shard_count, std::uint64_t total_bytes,
                         const WeightNames& names = kSafetensorsWeightNames);

/// The path of the checkpoint's only file, or the directory of its files.
std::string place_of(const Checkpoint& checkpoint);

/// "model/model.safetensors: tensor lm_head.weight".
std::string place_of(const Checkpoint& checkpoint, const TensorInfo& tensor);

/// "; names of layers begin with decoder.block.; encoder.block.", for errors about tensors that are
/// missing: what stands before the layers' numbers. Empty if no name has a number.
std::string layers_found_in(const Checkpoint& checkpoint);

}  // namespace regroup
