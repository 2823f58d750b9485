// Torch files assembled from pickle opcodes and fields of stored ZIP archives. Independent of the
// project's reader, so that tests can build any fault.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace regroup {

/// A little-endian number of `bytes` bytes.
std::string little_endian(std::uint64_t number, std::size_t bytes);

/// Pieces of pickles, protocol 2. Each leaves one value on the stack.
namespace pickle {

std::string text(std::string_view value);
std::string integer(std::int64_t value);
std::string global(std::string_view module, std::string_view name);
std::string tuple(const std::vector<std::string>& items);
std::string call(const std::string& callable, const std::string& arguments);
/// From alternating keys and values.
std::string dict(const std::vector<std::string>& items);
std::string storage(std::string_view type, std::string_view key, std::int64_t elements);

/// As in files from before torch 1.6: with a sixth item, by default None.
std::string legacy_storage(std::string_view type, std::string_view key, std::int64_t elements,
                           const std::string& view = "N");

struct Tensor {
  std::string storage;
  std::int64_t offset = 0;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
};

std::string tensor(const Tensor& tensor);
/// A tensor on an UntypedStorage with a torch.dtype.
std::string tensor_of_dtype(const Tensor& tensor, std::string_view dtype);

/// A whole pickle that gives `value`.
std::string program(const std::string& value);

}  // namespace pickle

/// An entry of an archive and the errors in its headers.
struct BuiltZipEntry {
  std::string name;
  std::string data;
  std::uint16_t flags = 0;
  std::uint16_t method = 0;
  std::uint32_t crc_error = 0;  ///< added to the CRC in both headers
  bool zip64 = false;           ///< sizes and offset in ZIP64 extra fields
  // Differences of the local header.
  std::string local_name = {};
  std::uint16_t local_flags = 0;
  std::uint32_t local_size_error = 0;
  std::uint32_t local_crc_error = 0;
  // Differences of the central directory.
  std::int64_t size_error = 0;
  std::int64_t offset_error = 0;
};

struct BuiltZip {
  std::vector<BuiltZipEntry> entries;
  bool zip64_end = false;
  std::string after_directory = {};   ///< counted as part of the directory
  std::uint64_t claimed_entries = 0;  ///< 0: the true number

  std::string bytes() const;
};

/// The archive that torch.save writes for this pickle and these storages. The first storage has key
/// "0".
BuiltZip torch_archive(const std::string& pickle, const std::vector<std::string>& storages);

/// A storage in a file from before torch 1.6.
struct LegacyStorage {
  std::string key;
  std::uint64_t elements = 0;
  std::string bytes;
};

/// A file from before torch 1.6.
struct LegacyTorchFile {
  std::string object;  ///< the pickle of the state dict
  std::vector<LegacyStorage> storages;
  // The other pickles. Empty: the usual ones.
  std::string magic = {};
  std::string version = {};
  std::string system = {};
  std::string keys = {};

  std::string bytes() const;
};

}  // namespace regroup
