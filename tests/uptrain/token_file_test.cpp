#include "uptrain/token_file.h"

#include <cstdint>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/token_text.h"

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

}  // namespace

TEST_CASE("token files are read in each of their formats", "[uptrain]") {
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

TEST_CASE("token files that cannot be what they say are refused", "[uptrain]") {
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

TEST_CASE("a token outside the vocabulary is found and its place named", "[uptrain]") {
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

TEST_CASE("a token file that has shrunk since is an error, not a crash", "[uptrain]") {
  const TemporaryDirectory directory;
  put_file(directory / "tokens", bytes_of_numbers(kNarrow));
  const TokenFile file = TokenFile::open(directory / "tokens");
  std::filesystem::resize_file(directory / "tokens", 4);
  CHECK_THAT(refusal_of([&] { ids_in(file); }), is_bad_input("tokens", "truncated"));
}

}  // namespace regroup
