// Stored members of a zip archive, and where a writer puts them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/base/file.h"

namespace regroup {

// ZIP archives as torch.save writes them: uncompressed entries, each a byte range of the file.
// APPNOTE.TXT 6.3.10, sections 4.3 and 4.5

struct ZipEntry {
  std::string name;
  std::uint64_t header_at = 0;  ///< offset of its header in the file
  std::uint64_t data_at = 0;    ///< offset of its data in the file
  std::uint64_t size = 0;       ///< of its data, in bytes
  std::uint32_t crc32 = 0;
};

/// The layout of an archive to be written, the same as torch.save's. A padding field in each header
/// aligns the data. Sizes and CRC follow the data, so that headers can be written first. torch may
/// compute offsets instead of reading them (get_record_offset_no_read), so this layout must match
/// torch's exactly.
class ZipLayout {
 public:
  /// Alignment of every entry's data, in bytes.
  static constexpr std::uint64_t kAlignment = 64;

  /// Appends an entry; returns its number.
  std::size_t add(std::string name, std::uint64_t size);

  std::size_t entry_count() const { return entries_.size(); }
  const ZipEntry& entry(std::size_t number) const { return entries_[number]; }
  /// Call it before trailer() and directory().
  void set_crc32(std::size_t number, std::uint32_t crc32) { entries_[number].crc32 = crc32; }

  /// The bytes before the data, from header_at to data_at.
  std::string header(std::size_t number) const;
  /// The bytes after the data; empty for an entry without data.
  std::string trailer(std::size_t number) const;
  /// The bytes after the last entry, from directory_at() on.
  std::string directory() const;
  std::uint64_t directory_at() const { return end_; }

 private:
  std::vector<ZipEntry> entries_;
  std::uint64_t end_ = 0;
};

/// Lists the entries of an archive. Throws kBadInput for anything torch does not write: compressed
/// or encrypted entries, data that overlaps or exceeds the file, a local header that disagrees with
/// the directory, duplicate names, more than 100,000 entries or a directory over 8 MiB.
std::vector<ZipEntry> read_zip_directory(const File& file);

/// Reads an entry and checks its CRC. Throws kBadInput if it is larger than `max_bytes`.
std::string read_zip_entry(const File& file, const ZipEntry& entry, std::uint64_t max_bytes);

}  // namespace regroup
