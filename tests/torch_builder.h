// Torch files spelled out: pickles opcode by opcode, stored ZIP archives field by field. Written
// without the project's own reader, so that every fault can be put in.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace regroup {

/// A little-endian number of that many bytes.
std::string little_endian(std::uint64_t number, std::size_t bytes);

/// Pieces of pickles, protocol 2. Each leaves one value on the stack.
namespace pickle {

std::string text(std::string_view value);
std::string integer(std::int64_t value);
std::string global(std::string_view module, std::string_view name);
std::string tuple(const std::vector<std::string>& items);
std::string call(const std::string& callable, const std::string& arguments);
/// Of keys and values in turn.
std::string dict(const std::vector<std::string>& items);
std::string storage(std::string_view type, std::string_view key, std::int64_t elements);

/// As files before torch 1.6 have it: with a sixth item, None unless it is given.
std::string legacy_storage(std::string_view type, std::string_view key, std::int64_t elements,
                           const std::string& view = "N");

struct Tensor {
  std::string storage;
  std::int64_t offset = 0;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
};

std::string tensor(const Tensor& tensor);
/// With a torch.dtype, on an UntypedStorage.
std::string tensor_of_dtype(const Tensor& tensor, std::string_view dtype);

/// The whole of a pickle that makes `value`.
std::string program(const std::string& value);

}  // namespace pickle

/// One entry of an archive, with what its headers say of it.
struct BuiltZipEntry {
  std::string name;
  std::string data;
  std::uint16_t flags = 0;
  std::uint16_t method = 0;
  std::uint32_t crc_error = 0;  ///< added to the CRC, in both headers
  bool zip64 = false;           ///< sizes and offset in ZIP64 extra fields
  // What the local header says instead, where a test lets it disagree.
  std::string local_name = {};
  std::uint16_t local_flags = 0;
  std::uint32_t local_size_error = 0;
  std::uint32_t local_crc_error = 0;
  // What the directory says instead.
  std::int64_t size_error = 0;
  std::int64_t offset_error = 0;
};

struct BuiltZip {
  std::vector<BuiltZipEntry> entries;
  bool zip64_end = false;
  std::string after_directory = {};   ///< counted to the directory
  std::uint64_t claimed_entries = 0;  ///< 0: as many as there are

  std::string bytes() const;
};

/// The archive that torch.save makes of that pickle and those storages ("0" is the first one's
/// key).
BuiltZip torch_archive(const std::string& pickle, const std::vector<std::string>& storages);

/// A storage behind the pickles of a file of torch before 1.6.
struct LegacyStorage {
  std::string key;
  std::uint64_t elements = 0;
  std::string bytes;
};

/// Such a file, piece by piece.
struct LegacyTorchFile {
  std::string object;  ///< the pickle of the state dict
  std::vector<LegacyStorage> storages;
  // The other pickles, where a test has them say something else.
  std::string magic = {};
  std::string version = {};
  std::string system = {};
  std::string keys = {};

  std::string bytes() const;
};

}  // namespace regroup
