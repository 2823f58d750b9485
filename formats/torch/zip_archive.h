// Reads the ZIP archives that torch.save writes: uncompressed entries, each a byte range of the
// file. APPNOTE.TXT 6.3.10, sections 4.3 and 4.5
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/base/file.h"

namespace regroup {

struct ZipEntry {
  std::string name;
  std::uint64_t begin = 0;  ///< offset of its data in the file
  std::uint64_t size = 0;   ///< bytes
  std::uint32_t crc32 = 0;
};

/// Lists the entries of an archive. Throws kBadInput for anything torch does not write: compressed
/// or encrypted entries, data that overlaps or exceeds the file, a local header that disagrees with
/// the directory, duplicate names, more than 100,000 entries or a directory over 8 MiB.
std::vector<ZipEntry> read_zip_directory(const File& file);

/// Reads an entry and checks its CRC. Throws kBadInput if it is larger than `max_bytes`.
std::string read_zip_entry(const File& file, const ZipEntry& entry, std::uint64_t max_bytes);

}  // namespace regroup
