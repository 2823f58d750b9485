#include "formats/tensors/zip_archive.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "formats/base/checksum.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {

namespace {

constexpr std::uint64_t kMost32 = 0xffffffff;  // ZIP64 fields hold numbers from this one on
constexpr std::uint16_t kZip64Extra = 0x0001;
constexpr std::uint64_t kLocalBytes = 30;
constexpr std::uint64_t kExtraHeadBytes = 4;
constexpr std::uint16_t kSizesFollow = 0x0008;  // behind the data, with the CRC
constexpr std::uint16_t kUtf8Names = 0x0800;
constexpr std::uint16_t kVersion = 20;
constexpr std::uint16_t kVersion64 = 45;

void put16(std::string& bytes, std::uint64_t number) {
  append_number(bytes, static_cast<std::uint16_t>(number));
}
void put32(std::string& bytes, std::uint64_t number) {
  append_number(bytes, static_cast<std::uint32_t>(number));
}
void put64(std::string& bytes, std::uint64_t number) { append_number(bytes, number); }

// The ZIP64 extra field; empty where the plain fields suffice.
std::string zip64_field(const ZipEntry& entry) {
  std::string values;
  if (entry.size >= kMost32) {
    put64(values, entry.size);
    put64(values, entry.size);  // compressed: the same
  }
  if (entry.header_at >= kMost32) {
    put64(values, entry.header_at);
  }
  std::string field;
  if (!values.empty()) {
    put16(field, kZip64Extra);
    put16(field, values.size());
  }
  return field + values;
}

std::uint16_t flags_of(const ZipEntry& entry) {
  return entry.size > 0 ? kUtf8Names | kSizesFollow : kUtf8Names;
}

std::uint16_t version_of(const ZipEntry& entry) {
  return zip64_field(entry).empty() ? kVersion : kVersion64;
}

void put_central_record(std::string& bytes, const ZipEntry& entry) {
  const std::string zip64 = zip64_field(entry);
  bytes += "PK\x01\x02";
  put16(bytes, version_of(entry));  // made by
  put16(bytes, version_of(entry));  // needed
  put16(bytes, flags_of(entry));
  bytes.append(6, '\0');  // method, time and date
  put32(bytes, entry.crc32);
  put32(bytes, std::min(entry.size, kMost32));
  put32(bytes, std::min(entry.size, kMost32));
  put16(bytes, entry.name.size());
  put16(bytes, zip64.size());
  bytes.append(10, '\0');  // comment, disk, attributes
  put32(bytes, std::min(entry.header_at, kMost32));
  bytes += entry.name + zip64;
}

// The end records of a directory of `size` bytes at `begin`. torch writes the ZIP64 records even if
// they are not needed.
std::string end_records(std::uint64_t entries, std::uint64_t size, std::uint64_t begin) {
  std::string bytes = "PK\x06\x06";
  put64(bytes, 44);  // bytes of the record that follow
  put16(bytes, kVersion64);
  put16(bytes, kVersion64);
  put64(bytes, 0);  // disks
  put64(bytes, entries);
  put64(bytes, entries);
  put64(bytes, size);
  put64(bytes, begin);
  bytes += "PK\x06\x07";
  put32(bytes, 0);
  put64(bytes, begin + size);
  put32(bytes, 1);
  bytes += "PK\x05\x06";
  put32(bytes, 0);
  put16(bytes, std::min<std::uint64_t>(entries, 0xffff));
  put16(bytes, std::min<std::uint64_t>(entries, 0xffff));
  put32(bytes, std::min(size, kMost32));
  put32(bytes, std::min(begin, kMost32));
  put16(bytes, 0);  // comment
  return bytes;
}

}  // namespace

std::size_t ZipLayout::add(std::string name, std::uint64_t size) {
  ZipEntry entry{std::move(name), end_, 0, size, 0};
  const std::uint64_t unpadded =
      end_ + kLocalBytes + entry.name.size() + zip64_field(entry).size() + kExtraHeadBytes;
  entry.data_at = (unpadded + kAlignment - 1) / kAlignment * kAlignment;
  entries_.push_back(std::move(entry));
  end_ = entries_.back().data_at + size + trailer(entries_.size() - 1).size();
  return entries_.size() - 1;
}

std::string ZipLayout::header(std::size_t number) const {
  const ZipEntry& entry = entries_[number];
  const std::string zip64 = zip64_field(entry);
  const std::uint64_t extra = entry.data_at - entry.header_at - kLocalBytes - entry.name.size();
  const std::uint64_t padding = extra - zip64.size() - kExtraHeadBytes;
  std::string bytes = "PK\x03\x04";
  put16(bytes, version_of(entry));
  put16(bytes, flags_of(entry));
  bytes.append(6, '\0');   // method, time and date
  bytes.append(12, '\0');  // CRC and sizes follow the data
  put16(bytes, entry.name.size());
  put16(bytes, extra);
  bytes += entry.name + zip64 + "FB";
  put16(bytes, padding);
  bytes.append(padding, 'Z');
  return bytes;
}

std::string ZipLayout::trailer(std::size_t number) const {
  const ZipEntry& entry = entries_[number];
  if (entry.size == 0) {
    return "";
  }
  std::string bytes = "PK\x07\x08";
  put32(bytes, entry.crc32);
  for (int i = 0; i < 2; ++i) {
    zip64_field(entry).empty() ? put32(bytes, entry.size) : put64(bytes, entry.size);
  }
  return bytes;
}

std::string ZipLayout::directory() const {
  std::string bytes;
  for (const ZipEntry& entry : entries_) {
    put_central_record(bytes, entry);
  }
  return bytes + end_records(entries_.size(), bytes.size(), end_);
}

namespace {

constexpr std::uint32_t kLocalSignature = 0x04034b50;
constexpr std::uint32_t kCentralSignature = 0x02014b50;
constexpr std::uint32_t kEndSignature = 0x06054b50;
constexpr std::uint32_t kEnd64Signature = 0x06064b50;
constexpr std::uint32_t kEnd64LocatorSignature = 0x07064b50;
constexpr std::uint64_t kCentralBytes = 46;
constexpr std::uint64_t kEndBytes = 22;
constexpr std::uint64_t kEnd64Bytes = 56;
constexpr std::uint64_t kEnd64LocatorBytes = 20;
constexpr std::uint64_t kMaxComment = 0xffff;
constexpr std::uint64_t kMaxEntries = 100'000;
constexpr std::uint64_t kMaxDirectoryBytes = 8U << 20;

// Reads bytes [begin, begin + size) of the file. Errors name `what`.
std::string read_range(const File& file, std::uint64_t begin, std::uint64_t size,
                       std::string_view what) {
  if (begin > file.size() || size > file.size() - begin) {
    throw_bad_input("{}: the ZIP {} lies outside the file (truncated?)", file.where(), what);
  }
  return read_bytes(file, begin, size);
}

struct Directory {
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
  std::uint64_t entries = 0;
};

// The ZIP64 end record that the locator before the plain end record points to, if there is one.
std::optional<Directory> find_zip64_directory(const File& file, std::uint64_t end_at) {
  if (end_at < kEnd64LocatorBytes) {
    return std::nullopt;
  }
  const std::string locator =
      read_range(file, end_at - kEnd64LocatorBytes, kEnd64LocatorBytes, "ZIP64 locator");
  if (number_at<std::uint32_t>(locator, 0) != kEnd64LocatorSignature) {
    return std::nullopt;
  }
  const std::string end =
      read_range(file, number_at<std::uint64_t>(locator, 8), kEnd64Bytes, "ZIP64 end record");
  if (number_at<std::uint32_t>(end, 0) != kEnd64Signature) {
    throw_bad_input("{}: the ZIP64 locator points to no end record", file.where());
  }
  return Directory{number_at<std::uint64_t>(end, 48), number_at<std::uint64_t>(end, 40),
                   number_at<std::uint64_t>(end, 32)};
}

Directory find_directory(const File& file) {
  const std::uint64_t tail_size = std::min(file.size(), kEndBytes + kMaxComment);
  const std::uint64_t tail_begin = file.size() - tail_size;
  const std::string tail = read_range(file, tail_begin, tail_size, "end record");
  for (std::uint64_t back = kEndBytes; back <= tail_size; ++back) {
    const std::uint64_t at = tail_size - back;
    if (number_at<std::uint32_t>(tail, at) != kEndSignature ||
        number_at<std::uint16_t>(tail, at + 20) != back - kEndBytes) {
      continue;
    }
    const auto zip64 = find_zip64_directory(file, tail_begin + at);
    return zip64.value_or(Directory{number_at<std::uint32_t>(tail, at + 16),
                                    number_at<std::uint32_t>(tail, at + 12),
                                    number_at<std::uint16_t>(tail, at + 10)});
  }
  throw_bad_input("{}: no ZIP end record (truncated?)", file.where());
}

// The 64-bit values of a ZIP64 extra field. They replace the 32-bit values that the record marks,
// in the same order.
class Zip64Values {
 public:
  explicit Zip64Values(std::string_view extra) {
    while (extra.size() >= 4) {
      const std::uint64_t size = number_at<std::uint16_t>(extra, 2);
      if (size > extra.size() - 4) {
        return;
      }
      if (number_at<std::uint16_t>(extra, 0) == kZip64Extra) {
        values_ = extra.substr(4, size);
        return;
      }
      extra.remove_prefix(4 + size);
    }
  }

  std::optional<std::uint64_t> resolve(std::uint32_t value) {
    if (value != kMost32) {
      return value;
    }
    if (values_.size() < 8) {
      return std::nullopt;
    }
    const auto wide = number_at<std::uint64_t>(values_, 0);
    values_.remove_prefix(8);
    return wide;
  }

 private:
  std::string_view values_;
};

// One record of the central directory.
struct CentralRecord {
  ZipEntry entry;
  std::uint16_t flags = 0;
  std::uint16_t method = 0;
};

// Reads the numbers that the ZIP64 extra field may replace, and refuses what torch does not write.
void read_entry_sizes(CentralRecord& record, const File& file, std::string_view fields,
                      std::string_view extra) {
  Zip64Values wide(extra);
  const auto unpacked = wide.resolve(number_at<std::uint32_t>(fields, 24));
  const auto packed = wide.resolve(number_at<std::uint32_t>(fields, 20));
  const auto offset = wide.resolve(number_at<std::uint32_t>(fields, 42));
  const std::string name = printable(record.entry.name);
  if (!unpacked || !packed || !offset) {
    throw_bad_input("{}: ZIP entry {}: its ZIP64 sizes are missing", file.where(), name);
  }
  constexpr std::uint16_t kEncrypted = 0x0001 | 0x0040 | 0x2000;
  if (record.method != 0 || *unpacked != *packed) {
    throw_bad_input("{}: ZIP entry {} is compressed; torch stores entries uncompressed",
                    file.where(), name);
  }
  if ((record.flags & kEncrypted) != 0) {
    throw_bad_input("{}: ZIP entry {} is encrypted", file.where(), name);
  }
  record.entry.size = *unpacked;
  record.entry.header_at = *offset;
}

CentralRecord parse_central_record(const File& file, std::string_view directory,
                                   std::uint64_t& at) {
  const auto truncated = [&] {
    throw_bad_input("{}: the ZIP directory ends inside a record", file.where());
  };
  if (directory.size() - at < kCentralBytes ||
      number_at<std::uint32_t>(directory, at) != kCentralSignature) {
    truncated();
  }
  const std::uint64_t name_size = number_at<std::uint16_t>(directory, at + 28);
  const std::uint64_t extra_size = number_at<std::uint16_t>(directory, at + 30);
  const std::uint64_t comment_size = number_at<std::uint16_t>(directory, at + 32);
  if (directory.size() - at - kCentralBytes < name_size + extra_size + comment_size) {
    truncated();
  }
  CentralRecord record;
  record.entry.name = directory.substr(at + kCentralBytes, name_size);
  record.entry.crc32 = number_at<std::uint32_t>(directory, at + 16);
  record.flags = number_at<std::uint16_t>(directory, at + 8);
  record.method = number_at<std::uint16_t>(directory, at + 10);
  read_entry_sizes(record, file, directory.substr(at, kCentralBytes),
                   directory.substr(at + kCentralBytes + name_size, extra_size));
  at += kCentralBytes + name_size + extra_size + comment_size;
  return record;
}

// The beginning of the data, after the local header. The header must agree with the directory.
std::uint64_t data_begin_of(const File& file, const CentralRecord& record) {
  const std::string name = printable(record.entry.name);
  const std::string local = read_range(file, record.entry.header_at, kLocalBytes, "local header");
  const std::uint64_t name_size = number_at<std::uint16_t>(local, 26);
  const std::uint64_t extra_size = number_at<std::uint16_t>(local, 28);
  const std::string rest = read_range(file, record.entry.header_at + kLocalBytes,
                                      name_size + extra_size, "local header");
  // Without them only the directory's are used.
  const bool holds_sizes = (record.flags & kSizesFollow) == 0;
  if (number_at<std::uint32_t>(local, 0) != kLocalSignature ||
      number_at<std::uint16_t>(local, 6) != record.flags ||
      number_at<std::uint16_t>(local, 8) != record.method ||
      std::string_view(rest).substr(0, name_size) != record.entry.name ||
      (holds_sizes && number_at<std::uint32_t>(local, 14) != record.entry.crc32)) {
    throw_bad_input("{}: ZIP entry {}: its local header disagrees with the directory", file.where(),
                    name);
  }
  Zip64Values wide(std::string_view(rest).substr(name_size));
  if (holds_sizes && (wide.resolve(number_at<std::uint32_t>(local, 22)) != record.entry.size ||
                      wide.resolve(number_at<std::uint32_t>(local, 18)) != record.entry.size)) {
    throw_bad_input("{}: ZIP entry {}: its local header and the directory disagree on its size",
                    file.where(), name);
  }
  return record.entry.header_at + kLocalBytes + name_size + extra_size;
}

// Checks for duplicate names and for overlap with another entry's local header or data. Sorts the
// entries by offset.
void check_entries(const File& file, std::vector<ZipEntry>& entries) {
  std::unordered_set<std::string_view> names;
  for (const ZipEntry& entry : entries) {
    if (!names.insert(entry.name).second) {
      throw_bad_input("{}: two ZIP entries are named {}", file.where(), printable(entry.name));
    }
  }
  std::ranges::sort(entries, {}, &ZipEntry::header_at);
  for (std::size_t i = 1; i < entries.size(); ++i) {
    const ZipEntry& before = entries[i - 1];
    if (entries[i].header_at < before.data_at + before.size) {
      throw_bad_input("{}: ZIP entries {} and {} overlap", file.where(), printable(before.name),
                      printable(entries[i].name));
    }
  }
}

}  // namespace

std::vector<ZipEntry> read_zip_directory(const File& file) {
  const Directory directory = find_directory(file);
  if (directory.entries > kMaxEntries || directory.size > kMaxDirectoryBytes) {
    throw_bad_input("{}: a ZIP directory of {} entries and {} bytes, at most {} and {} allowed",
                    file.where(), directory.entries, directory.size, kMaxEntries,
                    kMaxDirectoryBytes);
  }
  const std::string bytes = read_range(file, directory.begin, directory.size, "directory");
  std::vector<ZipEntry> entries;
  std::uint64_t at = 0;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    CentralRecord record = parse_central_record(file, bytes, at);
    ZipEntry& entry = record.entry;
    entry.data_at = data_begin_of(file, record);
    if (entry.data_at > directory.begin || entry.size > directory.begin - entry.data_at) {
      throw_bad_input("{}: ZIP entry {} reaches into the directory (truncated?)", file.where(),
                      printable(entry.name));
    }
    entries.push_back(std::move(entry));
  }
  if (at != bytes.size()) {
    throw_bad_input("{}: {} bytes after the last record of the ZIP directory", file.where(),
                    bytes.size() - at);
  }
  check_entries(file, entries);
  return entries;
}

std::string read_zip_entry(const File& file, const ZipEntry& entry, std::uint64_t max_bytes) {
  if (entry.size > max_bytes) {
    throw_bad_input("{}: ZIP entry {} has {} bytes, at most {} allowed", file.where(),
                    printable(entry.name), entry.size, max_bytes);
  }
  std::string bytes = read_range(file, entry.data_at, entry.size, "entry");
  if (crc32_of(std::as_bytes(std::span(bytes))) != entry.crc32) {
    throw_bad_input("{}: ZIP entry {}: its CRC is wrong (damaged?)", file.where(),
                    printable(entry.name));
  }
  return bytes;
}

}  // namespace regroup
