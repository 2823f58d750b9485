#include "formats/torch/zip_layout.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace regroup {
namespace {

constexpr std::uint64_t kMost32 = 0xffffffff;  // ZIP64 fields hold numbers from this one on
constexpr std::uint64_t kLocalHeaderBytes = 30;
constexpr std::uint64_t kExtraHeadBytes = 4;
constexpr std::uint16_t kSizesFollow = 0x0008;
constexpr std::uint16_t kUtf8Names = 0x0800;
constexpr std::uint16_t kVersion = 20;
constexpr std::uint16_t kVersion64 = 45;

template <typename T>
void put(std::string& bytes, std::uint64_t number) {
  const T narrow = static_cast<T>(number);
  std::array<char, sizeof(T)> stored{};
  std::memcpy(stored.data(), &narrow, sizeof(T));
  bytes.append(stored.data(), stored.size());
}

void put16(std::string& bytes, std::uint64_t number) { put<std::uint16_t>(bytes, number); }
void put32(std::string& bytes, std::uint64_t number) { put<std::uint32_t>(bytes, number); }
void put64(std::string& bytes, std::uint64_t number) { put<std::uint64_t>(bytes, number); }

// The ZIP64 extra field; empty where the plain fields suffice.
std::string zip64_field(const ZipLayout::Entry& entry) {
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
    put16(field, 0x0001);
    put16(field, values.size());
  }
  return field + values;
}

std::uint16_t flags_of(const ZipLayout::Entry& entry) {
  return entry.size > 0 ? kUtf8Names | kSizesFollow : kUtf8Names;
}

std::uint16_t version_of(const ZipLayout::Entry& entry) {
  return zip64_field(entry).empty() ? kVersion : kVersion64;
}

void put_central_record(std::string& bytes, const ZipLayout::Entry& entry) {
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
  Entry entry{std::move(name), end_, 0, size, 0};
  const std::uint64_t unpadded =
      end_ + kLocalHeaderBytes + entry.name.size() + zip64_field(entry).size() + kExtraHeadBytes;
  entry.data_at = (unpadded + kAlignment - 1) / kAlignment * kAlignment;
  entries_.push_back(std::move(entry));
  end_ = entries_.back().data_at + size + trailer(entries_.size() - 1).size();
  return entries_.size() - 1;
}

std::string ZipLayout::header(std::size_t number) const {
  const Entry& entry = entries_[number];
  const std::string zip64 = zip64_field(entry);
  const std::uint64_t extra =
      entry.data_at - entry.header_at - kLocalHeaderBytes - entry.name.size();
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
  const Entry& entry = entries_[number];
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
  for (const Entry& entry : entries_) {
    put_central_record(bytes, entry);
  }
  return bytes + end_records(entries_.size(), bytes.size(), end_);
}

}  // namespace regroup
