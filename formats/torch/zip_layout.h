// Where everything lies in an archive that is still to be written, as torch.save lays it out.
// APPNOTE.TXT 6.3.10, sections 4.3 and 4.5
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace regroup {

/// Stored entries, their data aligned by a padding field in the header before it. Sizes and CRC
/// stand behind the data, so that headers can be written before the data is known. torch may work
/// out where an entry lies rather than look (get_record_offset_no_read): nothing here is free.
class ZipLayout {
 public:
  /// Of every entry's data.
  static constexpr std::uint64_t kAlignment = 64;

  struct Entry {
    std::string name;
    std::uint64_t header_at = 0;
    std::uint64_t data_at = 0;
    std::uint64_t size = 0;
    std::uint32_t crc32 = 0;  ///< to be set before trailer() and directory() are asked for
  };

  /// Adds an entry behind those added before; returns its number.
  std::size_t add(std::string name, std::uint64_t size);

  std::size_t entry_count() const { return entries_.size(); }
  const Entry& entry(std::size_t number) const { return entries_[number]; }
  void set_crc32(std::size_t number, std::uint32_t crc32) { entries_[number].crc32 = crc32; }

  /// The bytes before the data, from header_at to data_at.
  std::string header(std::size_t number) const;
  /// The bytes behind the data; none where there is no data.
  std::string trailer(std::size_t number) const;
  /// The bytes behind the last entry, from directory_at() on.
  std::string directory() const;
  std::uint64_t directory_at() const { return end_; }

 private:
  std::vector<Entry> entries_;
  std::uint64_t end_ = 0;
};

}  // namespace regroup
