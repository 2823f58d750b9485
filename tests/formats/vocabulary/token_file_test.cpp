#include "formats/vocabulary/token_file.h"

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

// An .idx as Megatron writes it: one document for each sequence of the given lengths.
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

TEST_CASE("token files are read in every format", "[formats]") {
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

TEST_CASE("malformed token files are refused", "[formats]") {
  const TemporaryDirectory directory;
  const auto refusal = [&](const std::string& bytes) {
    put_file(directory / "tokens", bytes);
    return refusal_of([&] { TokenFile::open(directory / "tokens"); });
  };
  const std::string ids = bytes_of_numbers(kNarrow);
  CHECK_THAT(refusal(""), is_bad_input("tokens", "no tokens"));
  CHECK_THAT(refusal(std::string("\1\0\2", 3)), is_bad_input("tokens", "3 bytes", "multiple of 2"));
  CHECK_THAT(refusal(llmc_header(20240520, 1, 5) + ids), is_bad_input("5 tokens", "holds 4"));
  CHECK_THAT(refusal(llmc_header(20240520, 7, 4) + ids), is_bad_input("version 7", "allowed is 1"));
  CHECK_THAT(refusal(llmc_header(20240801, 7, 4) + ids + "x"), is_bad_input("multiple of 4"));
  CHECK_THAT(refusal(llmc_header(20240520, 1, 4).substr(0, 100)), is_bad_input("llm.c", "100"));
  for (const char* dict : {"{'descr': '<f4', 'shape': (4,), }", "{'descr': '>u2', 'shape': (4,), }",
                           "{'descr': '<u2', 'fortran_order': True, 'shape': (2, 2), }",
                           "{'descr': '<u2', 'shape': (99999999999, 99999999999), }",
                           "{'descr': '<u2', 'shape': (), }"}) {
    CAPTURE(dict);
    CHECK_THAT(refusal(numpy_header(dict) + ids),
               is_bad_input("a numpy array of", "row after row"));
  }
  CHECK_THAT(refusal(numpy_header("{'descr': '<u2', 'shape': (9,), }") + ids),
             is_bad_input("9 tokens", "holds 4"));
  CHECK_THAT(refusal(std::string("\x93NUMPY\x01\x00\xff\xff", 10)), is_bad_input("does not fit"));
}

TEST_CASE("a token outside the vocabulary is reported with its position", "[formats]") {
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

TEST_CASE("a token file that has shrunk is an error", "[formats]") {
  const TemporaryDirectory directory;
  put_file(directory / "tokens", bytes_of_numbers(kNarrow));
  const TokenFile file = TokenFile::open(directory / "tokens");
  std::filesystem::resize_file(directory / "tokens", 4);
  CHECK_THAT(refusal_of([&] { ids_in(file); }), is_bad_input("tokens", "truncated"));
}

TEST_CASE("Megatron's token files are read through their index", "[formats]") {
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
}

TEST_CASE("an .idx that is not a Megatron index is refused", "[formats]") {
  const TemporaryDirectory directory;
  put_file(directory / "text.bin", bytes_of_numbers(kWide));
  const auto refusal = [&](const char* name) {
    return refusal_of([&] { TokenFile::open(directory / name); });
  };
  for (const char* name : {"text.bin", "text.idx"}) {
    put_file(directory / "text.idx", "");
    CHECK_THAT(refusal(name), is_bad_input("text.idx", "empty", "MMIDIDX"));
    put_file(directory / "text.idx", "no index");
    CHECK_THAT(refusal(name), is_bad_input("text.idx", "not a Megatron index", "move it away"));
  }
  std::string damaged = BuiltIndex{.type = 4, .token_bytes = 4}.bytes();
  damaged[3] = static_cast<char>(damaged[3] ^ 1);
  put_file(directory / "text.idx", damaged);
  CHECK_THAT(refusal("text.bin"), is_bad_input("text.idx", "not a Megatron index"));
  std::filesystem::remove(directory / "text.idx");
  std::filesystem::create_symlink(directory / "gone.idx", directory / "text.idx");
  CHECK_THAT(refusal("text.bin"), is_bad_input("text.idx"));
}

TEST_CASE("a Megatron index that does not match its tokens is refused", "[formats]") {
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
  CHECK_THAT(refusal(BuiltIndex{}.bytes() + "xyz"),
             is_bad_input("text.idx", "3 bytes after 2 sequences", "0 or 2"));
  put_file(directory / "text.idx", BuiltIndex{}.bytes() + "xy");  // one mode for each sequence
  CHECK(TokenFile::open(directory / "text.bin").size() == 4);
}

TEST_CASE("every flipped bit of a Megatron index is detected except in its document list",
          "[formats]") {
  const TemporaryDirectory directory;
  put_file(directory / "text.bin", bytes_of_numbers(kNarrow));
  const std::string index = BuiltIndex{}.bytes();
  const std::size_t documents = index.size() - 3 * sizeof(std::int64_t);
  for (std::size_t bit = 0; bit < 8 * documents; ++bit) {
    CAPTURE(bit);
    std::string damaged = index;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    put_file(directory / "text.idx", damaged);
    CHECK(refusal_of([&] { TokenFile::open(directory / "text.bin"); }).kind() ==
          ErrorKind::kBadInput);
  }
}

TEST_CASE("a file without a format is refused unless it resembles token ids", "[formats]") {
  const TemporaryDirectory directory;
  const auto refusal = [&](const std::string& bytes) {
    put_file(directory / "tokens", bytes);
    return refusal_of([&] { TokenFile::open(directory / "tokens"); });
  };
  const auto is_called_text = [] { return is_bad_input("tokens", "is text", "regroup tokenize"); };
  const std::string line = "To be, or not to be: that is the question\n";
  const std::string accents =
      "Als Gregor Samsa erwachte, fand er sich \xc3\xbc"
      "ber Nacht\n";
  const std::string japanese = "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e";
  std::string latin, gbk;
  for (int i = 0; i < 100; ++i) {
    latin += "\xe9t\xe9 \xe0 N\xeemes ";
    gbk += "\xc4\xe3\xba\xc3\xa3\xac\xca\xc0\xbd\xe7";
  }
  for (const std::string& text :
       {line, line + line, line + "odd", accents, japanese, latin, gbk, std::string("12 7 4095\n"),
        std::string(R"({"text": "a document"})")}) {
    CAPTURE(text);
    CHECK_THAT(refusal(text), is_called_text());
  }
  std::string big_endian;
  for (const char byte : line) {
    big_endian += {'\0', byte};
  }
  CHECK_THAT(refusal(big_endian), is_bad_input("tokens", "big-endian"));
  CHECK_THAT(refusal("GGUF" + std::string(100, '\3')), is_bad_input("tokens", "GGUF"));
  CHECK_THAT(refusal("\x1f\x8b\x08" + std::string(99, '\3')), is_bad_input("gzip"));
  CHECK_THAT(refusal(std::string("\x02\0\0\0\0\0\0\0{}", 10) + std::string(100, '\1')),
             is_bad_input("safetensors"));
}

TEST_CASE("raw ids of 32 and 64 bits are known by their zeros", "[formats]") {
  const TemporaryDirectory directory;
  for (const std::uint32_t factor : {1U, 1297U}) {
    std::vector<std::uint32_t> ids;
    for (std::uint32_t i = 0; i < 100; ++i) {
      ids.push_back(i % 50 * factor);
    }
    const std::vector<std::int64_t> wide(ids.begin(), ids.end());
    put_file(directory / "tokens.npy", bytes_of_numbers(ids));
    CHECK(TokenFile::open(directory / "tokens.npy").format() == "raw u32");
    CHECK(ids_in(TokenFile::open(directory / "tokens.npy")) == wide);
    put_file(directory / "tokens", bytes_of_numbers(wide));
    CHECK(TokenFile::open(directory / "tokens").format() == "raw u64");
    CHECK(ids_in(TokenFile::open(directory / "tokens")) == wide);
  }
}

TEST_CASE("numpy's other integers and rows of equal length are read", "[formats]") {
  const TemporaryDirectory directory;
  const auto open = [&](const std::string& dict, const std::string& bytes) {
    put_file(directory / "t.npy", numpy_header(dict) + bytes);
    return TokenFile::open(directory / "t.npy");
  };
  const std::vector<std::int64_t> ids{5, 0, 70'000, 9};
  const std::string of_rows = "'fortran_order': False, 'shape': (2, 2), }";
  CHECK(ids_in(open("{'descr': '<i8', " + of_rows, bytes_of_numbers(ids))) == ids);
  CHECK(ids_in(open("{'descr': '<i4', " + of_rows,
                    bytes_of_numbers(std::vector<std::int32_t>{5, 0, 70'000, 9}))) == ids);
  CHECK(ids_in(open("{'descr': '|u1', 'fortran_order': True, 'shape': (2,), }", "\x05\x09")) ==
        std::vector<std::int64_t>{5, 9});
  const TokenFile negative = open("{'descr': '<i8', 'fortran_order': False, 'shape': (2,), }",
                                  bytes_of_numbers(std::vector<std::int64_t>{1, -1}));
  CHECK_THAT(refusal_of([&] { negative.check_vocabulary(std::int64_t{1} << 40); }),
             is_bad_input("token 1 is -1"));
}

TEST_CASE("raw token ids of any vocabulary are accepted", "[formats]") {
  const TemporaryDirectory directory;
  for (const std::uint32_t vocabulary : {2U, 50U, 256U, 1000U, 32'000U, 50'257U, 65'536U}) {
    for (const std::size_t size : {1U, 2U, 5U, 40U, 70'000U}) {
      CAPTURE(vocabulary, size);
      std::vector<std::uint16_t> ids;
      std::uint32_t noise = 1;
      while (ids.size() < size) {
        noise = noise * 1664525U + 1013904223U;
        ids.push_back(static_cast<std::uint16_t>((noise >> 8) % vocabulary));
      }
      put_file(directory / "tokens", bytes_of_numbers(ids));
      CHECK(TokenFile::open(directory / "tokens").size() == std::ssize(ids));
    }
  }
  std::vector<std::uint16_t> bytes;  // a byte vocabulary as regroup tokenize writes it
  for (const char byte : std::string("To be, or not to be: that is the question\n")) {
    bytes.push_back(static_cast<std::uint8_t>(byte));
  }
  put_file(directory / "tokens", bytes_of_numbers(bytes));
  CHECK(TokenFile::open(directory / "tokens").size() == std::ssize(bytes));
  put_file(directory / "tokens", bytes_of_numbers(std::vector<std::uint16_t>(5000, 0)));
  CHECK(TokenFile::open(directory / "tokens").size() == 5000);
}

}  // namespace regroup
