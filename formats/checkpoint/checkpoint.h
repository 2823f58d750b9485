// A checkpoint: named tensors somewhere in files, one view for every container.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/file.h"
#include "formats/base/name_table.h"
#include "formats/dtype/dtype.h"

namespace regroup {

/// Dimensions, outermost first. A scalar has none.
using Shape = std::vector<std::int64_t>;

/// Text such as "[32, 4096]".
std::string text_of(const Shape& shape);

/// Where one tensor lies: little-endian elements in bytes [begin, end) of a file, row-major unless
/// it has strides of its own. Tensors of one file may share bytes (tied weights in torch files).
/// A tensor that is spread over files has pieces instead, and neither bytes nor strides of its own.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::size_t file = 0;  ///< index into Checkpoint::files()
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::vector<std::int64_t> strides = {};  ///< in elements, one per dimension; empty: row-major
  std::vector<TensorInfo> pieces = {};     ///< what each file holds, in order; they have no pieces
  std::size_t joint = 0;                   ///< the dimension along which the pieces follow

  /// Bytes of its elements, row-major.
  std::uint64_t bytes() const;
  /// Whether [begin, end) holds the tensor as it is, to be copied without looking at it.
  bool contiguous() const { return strides.empty() && pieces.empty(); }
  std::int64_t elements() const;
};

/// Bytes of a tensor of that dtype and shape. Throws kBadInput when a dimension is negative, the
/// count overflows, sub-byte elements do not fill whole bytes, or the rows (innermost dimension) of
/// a block type are no whole blocks.
std::uint64_t tensor_bytes(DType dtype, const Shape& shape);

/// Bytes of one file.
struct ByteRange {
  std::size_t file = 0;  ///< index into Checkpoint::files()
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// The ranges that are, one after the other, the tensor's bytes; none where they have to be put in
/// order first (strides, or pieces that lie side by side).
std::vector<ByteRange> ranges_of(const TensorInfo& tensor);

/// An open set of tensors. Opening reads headers only and validates them completely; nothing is
/// handed out of a file with any fault.
class Checkpoint {
 public:
  /// One container file each: its handle, its tensors in the order of their bytes, its metadata.
  struct Part {
    File file;
    std::vector<TensorInfo> tensors;
    std::map<std::string, std::string> metadata;
  };

  /// Joins parts (shards). Throws kBadInput if a tensor stands in two of them.
  explicit Checkpoint(std::vector<Part> parts);

  /// Of tensors that name their files already, such as joined ones. Throws as the other does.
  Checkpoint(std::vector<File> files, std::vector<TensorInfo> tensors);

  std::span<const File> files() const { return files_; }
  std::span<const TensorInfo> tensors() const { return tensors_; }

  /// String metadata of all parts; the first part wins where they differ.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  /// The tensor of that name, or null.
  const TensorInfo* find(std::string_view name) const;

  /// The tensor of that name; throws kBadInput naming it when it is missing.
  const TensorInfo& at(std::string_view name) const;

  /// Reads a whole tensor, row-major; `out` must be exactly its bytes long.
  void read(const TensorInfo& tensor, std::span<std::byte> out) const;

  /// The file of the tensor, or of its first piece.
  const File& file_of(const TensorInfo& tensor) const { return files_[tensor.file]; }

 private:
  void index_names();
  void read_pieces(const TensorInfo& tensor, std::span<std::byte> out) const;

  std::vector<File> files_;
  std::vector<TensorInfo> tensors_;
  NameTable by_name_;  // of tensors_
  std::map<std::string, std::string> metadata_;
};

}  // namespace regroup
