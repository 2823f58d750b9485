// Stored ZIP archives: what torch writes is read, and all other features of ZIP are refused.
#include "formats/tensors/zip_archive.h"

#include <functional>
#include <initializer_list>

#include <catch2/catch_test_macros.hpp>

#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/torch_builder.h"

namespace regroup {
namespace {

constexpr std::string_view kZipFile = "weights.bin";

BuiltZip two_entries() { return {{{"w/one", "first"}, {"w/two", "second!"}}}; }

// Names and contents of all entries.
std::vector<std::pair<std::string, std::string>> contents(std::string_view bytes) {
  const TemporaryDirectory directory;
  put_file(directory / kZipFile, bytes);
  const File file = File::open(directory / kZipFile);
  std::vector<std::pair<std::string, std::string>> found;
  for (const ZipEntry& entry : read_zip_directory(file)) {
    found.emplace_back(entry.name, read_zip_entry(file, entry, 100));
  }
  return found;
}

const std::vector<std::pair<std::string, std::string>> kContents{{"w/one", "first"},
                                                                 {"w/two", "second!"}};

Error refusal_of_bytes(std::string_view bytes) {
  return refusal_of([&] { contents(bytes); });
}

Error refusal_of_zip(const std::function<void(BuiltZip&)>& damage) {
  BuiltZip zip = two_entries();
  damage(zip);
  return refusal_of_bytes(zip.bytes());
}

TEST_CASE("a stored archive is read with 32-bit and 64-bit fields", "[formats]") {
  BuiltZip zip = two_entries();
  CHECK(contents(zip.bytes()) == kContents);
  zip.entries[1].zip64 = true;
  CHECK(contents(zip.bytes()) == kContents);
  zip.zip64_end = true;
  CHECK(contents(zip.bytes()) == kContents);
  CHECK(contents(BuiltZip{}.bytes()).empty());
}

TEST_CASE("archives with a comment or with sizes after the data are read", "[formats]") {
  BuiltZip zip = two_entries();
  std::string bytes = zip.bytes();
  bytes.replace(bytes.size() - 2, 2, little_endian(7, 2) + "comment");
  CHECK(contents(bytes) == kContents);
  for (BuiltZipEntry& entry : zip.entries) {
    entry.flags = 0x0808;
    entry.local_size_error = 77;
    entry.local_crc_error = 1;
  }
  CHECK(contents(zip.bytes()) == kContents);
}

TEST_CASE("an archive truncated at any byte is refused", "[formats]") {
  for (const bool zip64 : {false, true}) {
    BuiltZip zip = two_entries();
    zip.zip64_end = zip64;
    const std::string bytes = zip.bytes();
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      CAPTURE(size);
      CHECK_THAT(refusal_of_bytes(bytes.substr(0, size)), is_bad_input(kZipFile, "ZIP"));
    }
  }
}

TEST_CASE("compressed and encrypted entries are refused by name", "[formats]") {
  CHECK_THAT(refusal_of_zip([](BuiltZip& zip) { zip.entries[1].method = 8; }),
             is_bad_input(kZipFile, "w/two", "compressed"));
  for (const std::uint16_t flag : std::initializer_list<std::uint16_t>{0x0001, 0x0040, 0x2000}) {
    CHECK_THAT(refusal_of_zip([&](BuiltZip& zip) { zip.entries[1].flags = flag; }),
               is_bad_input(kZipFile, "w/two", "encrypted"));
  }
}

TEST_CASE("two entries with one name are refused", "[formats]") {
  CHECK_THAT(refusal_of_zip([](BuiltZip& zip) { zip.entries[1].name = "w/one"; }),
             is_bad_input(kZipFile, "two ZIP entries are named w/one"));
}

TEST_CASE("entries that overlap or nest or extend into the directory are refused", "[formats]") {
  const auto stretch = [](BuiltZip& zip) {
    zip.entries[0].flags = 0x0008;  // otherwise the local header would differ first
    zip.entries[0].size_error = 5;  // into the header of the second entry
  };
  CHECK_THAT(refusal_of_zip(stretch), is_bad_input(kZipFile, "w/one", "w/two", "overlap"));
  const auto nest = [](BuiltZip& zip) {
    const BuiltZip inner{{{"w/two", "second!"}}};
    zip.entries[0].data = inner.bytes();
    zip.entries[1].offset_error = -static_cast<std::int64_t>(inner.bytes().size());
  };
  CHECK_THAT(refusal_of_zip(nest), is_bad_input(kZipFile, "w/one", "w/two", "overlap"));
  const auto overrun = [](BuiltZip& zip) {
    zip.entries[1].flags = 0x0008;
    zip.entries[1].size_error = 1;
  };
  CHECK_THAT(refusal_of_zip(overrun), is_bad_input(kZipFile, "w/two", "into the directory"));
}

TEST_CASE("a local header that disagrees with the directory is refused", "[formats]") {
  CHECK_THAT(refusal_of_zip([](BuiltZip& zip) { zip.entries[1].local_name = "w/TWO"; }),
             is_bad_input(kZipFile, "w/two", "disagrees"));
  CHECK_THAT(refusal_of_zip([](BuiltZip& zip) { zip.entries[1].local_flags = 0x0800; }),
             is_bad_input(kZipFile, "w/two", "disagrees"));
  CHECK_THAT(refusal_of_zip([](BuiltZip& zip) { zip.entries[1].local_crc_error = 1; }),
             is_bad_input(kZipFile, "w/two", "disagrees"));
  CHECK_THAT(refusal_of_zip([](BuiltZip& zip) { zip.entries[1].local_size_error = 1; }),
             is_bad_input(kZipFile, "w/two", "disagree on its size"));
  CHECK_THAT(refusal_of_zip([](BuiltZip& zip) { zip.entries[1].offset_error = -40; }),
             is_bad_input(kZipFile, "w/two", "disagrees"));
  CHECK_THAT(refusal_of_zip([](BuiltZip& zip) { zip.entries[1].offset_error = 1 << 20; }),
             is_bad_input(kZipFile, "local header lies outside the file"));
}

TEST_CASE("ZIP64 sizes and offsets beyond the file are refused even near overflow", "[formats]") {
  for (const std::int64_t error : {std::int64_t{1} << 40, std::int64_t{-8}}) {
    CAPTURE(error);
    const auto size = [&](BuiltZip& zip) {
      zip.entries[1].zip64 = true;
      zip.entries[1].flags = 0x0008;
      zip.entries[1].size_error = error;  // -8: 2^64 - 1
    };
    CHECK_THAT(refusal_of_zip(size), is_bad_input(kZipFile, "w/two", "into the directory"));
    const auto offset = [&](BuiltZip& zip) {
      zip.entries[0].zip64 = true;
      zip.entries[0].offset_error = error;
    };
    CHECK_THAT(refusal_of_zip(offset), is_bad_input(kZipFile, "lies outside the file"));
  }
}

TEST_CASE("an entry whose bytes were changed is refused", "[formats]") {
  CHECK_THAT(refusal_of_zip([](BuiltZip& zip) { zip.entries[1].crc_error = 1; }),
             is_bad_input(kZipFile, "w/two", "CRC"));
  std::string bytes = two_entries().bytes();
  bytes[bytes.find("second!")] = 'S';
  CHECK_THAT(refusal_of_bytes(bytes), is_bad_input(kZipFile, "w/two", "CRC"));
}

TEST_CASE("an entry larger than the caller's limit is refused", "[formats]") {
  CHECK_THAT(refusal_of_zip([](BuiltZip& zip) { zip.entries[1].data = std::string(101, 'x'); }),
             is_bad_input(kZipFile, "w/two", "101 bytes", "at most 100"));
}

TEST_CASE("a central directory of the wrong size is refused", "[formats]") {
  const auto claim = [](std::uint64_t entries) {
    return [entries](BuiltZip& zip) {
      zip.zip64_end = true;
      zip.claimed_entries = entries;
    };
  };
  CHECK_THAT(refusal_of_zip(claim(std::uint64_t{1} << 60)),
             is_bad_input(kZipFile, "at most 100000"));
  CHECK_THAT(refusal_of_zip(claim(3)), is_bad_input(kZipFile, "ends inside a record"));
  CHECK_THAT(refusal_of_zip(claim(1)), is_bad_input(kZipFile, "after the last record"));
  CHECK_THAT(refusal_of_zip([](BuiltZip& zip) { zip.after_directory = "x"; }),
             is_bad_input(kZipFile, "1 bytes after the last record"));
}

// The archive with other bytes at an offset in the last of its records that begin with `record`.
std::string changed(const BuiltZip& zip, std::string_view record, std::size_t offset,
                    const std::string& bytes) {
  std::string file = zip.bytes();
  return file.replace(file.rfind(record) + offset, bytes.size(), bytes);
}

constexpr std::string_view kLocal = "PK\x03\x04", kCentral = "PK\x01\x02", kEnd = "PK\x05\x06";

TEST_CASE("records with impossible values are refused", "[formats]") {
  const BuiltZip zip = two_entries();
  const auto refusal = [&](std::string_view record, std::size_t offset, const std::string& bytes) {
    return refusal_of_bytes(changed(zip, record, offset, bytes));
  };
  CHECK_THAT(refusal(kLocal, 8, little_endian(8, 2)), is_bad_input(kZipFile, "w/two", "disagrees"));
  CHECK_THAT(refusal(kLocal, 18, little_endian(8, 4)),
             is_bad_input(kZipFile, "w/two", "disagree on its size"));
  CHECK_THAT(refusal(kCentral, 0, "PK\x01\x03"), is_bad_input(kZipFile, "ends inside a record"));
  CHECK_THAT(refusal(kCentral, 28, little_endian(6, 2)), is_bad_input(kZipFile, "inside a record"));
  CHECK_THAT(refusal(kCentral, 20, little_endian(6, 4)),
             is_bad_input(kZipFile, "w/two", "compressed"));
  CHECK_THAT(refusal(kEnd, 12, little_endian(1000, 4)),
             is_bad_input(kZipFile, "directory lies outside"));
  CHECK_THAT(refusal(kEnd, 12, little_endian(0xffffffff, 4)),
             is_bad_input(kZipFile, "4294967295 bytes, at most"));
  CHECK_THAT(refusal_of_bytes(zip.bytes() + "x"), is_bad_input(kZipFile, "no ZIP end record"));
}

TEST_CASE("ZIP64 records without the required fields are refused", "[formats]") {
  BuiltZip zip = two_entries();
  zip.entries[1].zip64 = true;  // with 24 bytes: size, packed size, offset
  const std::size_t size_at = 46 + std::string_view("w/two").size() + 2;
  CHECK(contents(changed(zip, kCentral, size_at, little_endian(24, 2))) == kContents);
  for (const std::uint64_t size : {0U, 7U, 8U, 16U, 23U, 25U}) {
    CAPTURE(size);
    CHECK_THAT(refusal_of_bytes(changed(zip, kCentral, size_at, little_endian(size, 2))),
               is_bad_input(kZipFile, "w/two", "ZIP64 sizes are missing"));
  }
  zip.zip64_end = true;
  CHECK_THAT(refusal_of_bytes(changed(zip, "PK\x06\x06", 0, "PK\x06\x08")),
             is_bad_input(kZipFile, "locator points to no end record"));
}

TEST_CASE("control bytes in names of entries are escaped", "[formats]") {
  CHECK_THAT(refusal_of_zip([](BuiltZip& zip) {
               zip.entries[1].name = "\x1b[2J\n";
               zip.entries[1].method = 8;
             }),
             is_bad_input(kZipFile, R"(\x1b[2J\x0a)"));
}

}  // namespace
}  // namespace regroup
