#include "formats/token_file.h"

#include <cstdint>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

const std::vector<std::uint16_t> kNarrow{5, 0, 65535, 7};
const std::vector<std::uint32_t> kWide{5, 0, 100000, 7};

std::vector<std::int64_t> ids_in(const TokenFile& file) {
  std::vector<std::int64_t> ids(file.size());
  file.read(0, ids);
  return ids;
}

std::string llmc_header(std::int32_t magic, std::int32_t version, std::int32_t count) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return bytes_of_numbers(header);
}

std::string numpy_header(const std::string& dict) {
  const std::string padded = dict + std::string(117 - dict.size(), ' ') + "\n";
  return std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(padded.size()) + '\0' + padded;
}

// An .idx as Megatron writes it: sequences of such lengths, one document each.
struct BuiltIndex {
  std::uint8_t type = 8;
  std::int64_t token_bytes = 2;
  std::vector<std::int32_t> lengths{1, 3};
  std::uint64_t version = 1;
  std::uint64_t sequences = 2, documents = 3;
  std::int64_t shift = 0;  // of the second sequence

  std::string bytes() const {
    std::vector<std::int64_t> pointers, starts;
    std::int64_t at = 0;
    for (const std::int32_t length : lengths) {
      pointers.push_back(at + (pointers.empty() ? 0 : shift));
      at += length * token_bytes;
    }
    for (std::uint64_t i = 0; i <= lengths.size(); ++i) {
      starts.push_back(static_cast<std::int64_t>(i));
    }
    return std::string("MMIDIDX\0\0", 9) + bytes_of_numbers(std::vector{version}) +
           static_cast<char>(type) + bytes_of_numbers(std::vector{sequences, documents}) +
           bytes_of_numbers(lengths) + bytes_of_numbers(pointers) + bytes_of_numbers(starts);
  }
};

}  // namespace

TEST_CASE("token files are read in each of their formats", "[formats]") {
  const TemporaryDirectory directory;
  const auto open = [&](const std::string& bytes) {
    put_file(directory / "tokens", bytes);
    return TokenFile::open(directory / "tokens");
  };
  const std::vector<std::int64_t> narrow{5, 0, 65535, 7};
  const std::vector<std::int64_t> wide{5, 0, 100000, 7};
  SECTION("raw") {
    const TokenFile file = open(bytes_of_numbers(kNarrow));
    CHECK(ids_in(file) == narrow);
    CHECK(file.format() == "raw u16");
  }
  SECTION("llm.c with 16 bits") {
    CHECK(ids_in(open(llmc_header(20240520, 1, 4) + bytes_of_numbers(kNarrow))) == narrow);
  }
  SECTION("llm.c with 32 bits") {
    CHECK(ids_in(open(llmc_header(20240801, 7, 4) + bytes_of_numbers(kWide))) == wide);
  }
  SECTION("numpy with 16 bits") {
    CHECK(ids_in(open(numpy_header("{'descr': '<u2', 'fortran_order': False, 'shape': (4,), }") +
                      bytes_of_numbers(kNarrow))) == narrow);
  }
  SECTION("numpy with 32 bits") {
    CHECK(ids_in(open(numpy_header("{'descr': '<u4', 'fortran_order': False, 'shape': (4,), }") +
                      bytes_of_numbers(kWide))) == wide);
  }
}

TEST_CASE("token files that cannot be what they say are refused", "[formats]") {
  const TemporaryDirectory directory;
  const auto refusal = [&](const std::string& bytes) {
    put_file(directory / "tokens", bytes);
    return refusal_of([&] { TokenFile::open(directory / "tokens"); });
  };
  const std::string ids = bytes_of_numbers(kNarrow);
  CHECK_THAT(refusal(""), is_bad_input("tokens", "no tokens"));
  CHECK_THAT(refusal("abc"), is_bad_input("tokens", "3 bytes", "multiple of 2"));
  CHECK_THAT(refusal(llmc_header(20240520, 1, 5) + ids), is_bad_input("5 tokens", "holds 4"));
  CHECK_THAT(refusal(llmc_header(20240520, 7, 4) + ids), is_bad_input("version 7", "allowed is 1"));
  CHECK_THAT(refusal(llmc_header(20240801, 7, 4) + ids + "x"), is_bad_input("multiple of 4"));
  CHECK_THAT(refusal(llmc_header(20240520, 1, 4).substr(0, 100)), is_bad_input("llm.c", "100"));
  CHECK_THAT(refusal(numpy_header("{'descr': '<i8', 'shape': (4,), }") + ids),
             is_bad_input("<i8", "<u2 or <u4"));
  CHECK_THAT(refusal(numpy_header("{'descr': '<u2', 'shape': (2, 2), }") + ids),
             is_bad_input("one dimension"));
  CHECK_THAT(refusal(numpy_header("{'descr': '<u2', 'shape': (9,), }") + ids),
             is_bad_input("9 tokens", "holds 4"));
  CHECK_THAT(refusal(std::string("\x93NUMPY\x01\x00\xff\xff", 10)), is_bad_input("does not fit"));
}

TEST_CASE("a token outside the vocabulary is found and its place named", "[formats]") {
  const TemporaryDirectory directory;
  std::vector<std::uint16_t> ids(300'000, 9);
  ids[270'001] = 50;
  put_file(directory / "tokens", bytes_of_numbers(ids));
  const TokenFile file = TokenFile::open(directory / "tokens");
  CHECK_NOTHROW(file.check_vocabulary(51));
  CHECK_NOTHROW(file.check_vocabulary(1 << 20));
  CHECK_THAT(refusal_of([&] { file.check_vocabulary(50); }),
             is_bad_input("tokens", "token 270001 is 50", "ends at 49"));
}

TEST_CASE("a token file that has shrunk since is an error, not a crash", "[formats]") {
  const TemporaryDirectory directory;
  put_file(directory / "tokens", bytes_of_numbers(kNarrow));
  const TokenFile file = TokenFile::open(directory / "tokens");
  std::filesystem::resize_file(directory / "tokens", 4);
  CHECK_THAT(refusal_of([&] { ids_in(file); }), is_bad_input("tokens", "truncated"));
}

TEST_CASE("Megatron's token files are read by way of their index", "[formats]") {
  const TemporaryDirectory directory;
  const auto open = [&](const BuiltIndex& index, const std::string& data, const char* name) {
    put_file(directory / "text.idx", index.bytes());
    put_file(directory / "text.bin", data);
    return TokenFile::open(directory / name);
  };
  const std::vector<std::int64_t> narrow{5, 0, 65535, 7};
  for (const char* name : {"text.bin", "text.idx"}) {
    const TokenFile file = open({}, bytes_of_numbers(kNarrow), name);
    CHECK(ids_in(file) == narrow);
    CHECK(file.format() == "Megatron u16");
    CHECK(file.path() == directory / "text.bin");
  }
  CHECK(ids_in(open({.type = 4, .token_bytes = 4}, bytes_of_numbers(kWide), "text.bin")) ==
        std::vector<std::int64_t>{5, 0, 100000, 7});
  CHECK(ids_in(open({.type = 1, .token_bytes = 1}, "\x01\x02\x03\xff", "text.bin")) ==
        std::vector<std::int64_t>{1, 2, 3, 255});
  CHECK(open({.type = 4, .token_bytes = 4}, bytes_of_numbers(kWide), "text.bin").format() ==
        "Megatron i32");
  CHECK(open({.type = 1, .token_bytes = 1}, "\x01\x02\x03\xff", "text.bin").format() ==
        "Megatron u8");
  put_file(directory / "alone.bin", bytes_of_numbers(kNarrow));
  CHECK(TokenFile::open(directory / "alone.bin").format() == "raw u16");
  put_file(directory / "text.idx", "no index");
  CHECK(TokenFile::open(directory / "text.bin").format() == "raw u16");
}

TEST_CASE("a Megatron index that does not fit its tokens is refused", "[formats]") {
  const TemporaryDirectory directory;
  put_file(directory / "text.bin", bytes_of_numbers(kNarrow));
  const auto refusal = [&](const std::string& index) {
    put_file(directory / "text.idx", index);
    return refusal_of([&] { TokenFile::open(directory / "text.bin"); });
  };
  CHECK_THAT(refusal(BuiltIndex{}.bytes().substr(0, 20)),
             is_bad_input("text.idx", "20 bytes", "34"));
  CHECK_THAT(refusal(BuiltIndex{}.bytes().substr(0, 60)),
             is_bad_input("text.idx", "2 sequences", "do not fit"));
  CHECK_THAT(refusal(BuiltIndex{.version = 2}.bytes()), is_bad_input("version 2"));
  CHECK_THAT(refusal(BuiltIndex{.type = 6}.bytes()), is_bad_input("type 6", "u16"));
  CHECK_THAT(refusal(BuiltIndex{.sequences = ~std::uint64_t{0}}.bytes()),
             is_bad_input("do not fit"));
  CHECK_THAT(refusal(BuiltIndex{.documents = std::uint64_t{1} << 61}.bytes()),
             is_bad_input("do not fit"));
  CHECK_THAT(refusal(BuiltIndex{.shift = 2}.bytes()),
             is_bad_input("sequence 1", "byte 4", "byte 2"));
  CHECK_THAT(refusal(BuiltIndex{.lengths = {-1, 5}}.bytes()), is_bad_input("sequence 0", "-1"));
  CHECK_THAT(refusal(BuiltIndex{.lengths = {1, 2}}.bytes()),
             is_bad_input("text.bin", "4 tokens", "says 3"));
}

}  // namespace regroup
