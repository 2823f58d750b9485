// Token files written document by document and read back.
#include "formats/vocabulary/token_writer.h"

#include <cstdint>
#include <utility>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "formats/vocabulary/token_file.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

using Ids = std::vector<std::uint32_t>;
using Documents = std::vector<std::pair<std::int64_t, std::int64_t>>;

void write_documents(const std::filesystem::path& path, TokenLayout layout, std::int64_t vocabulary,
                     const std::vector<Ids>& documents) {
  TokenWriter writer(path, layout, vocabulary);
  for (const Ids& ids : documents) {
    writer.write(ids);
    writer.end_document();
  }
  writer.publish();
}

std::vector<std::int64_t> ids_in(const std::filesystem::path& path) {
  const TokenFile file = TokenFile::open(path);
  std::vector<std::int64_t> ids(file.size());
  file.read(0, ids);
  return ids;
}

Documents documents_in(const std::filesystem::path& path,
                       const std::optional<DocumentMark>& mark = {}) {
  Documents documents;
  TokenFile::open(path).for_each_document(
      mark, [&](std::int64_t begin, std::int64_t end) { documents.emplace_back(begin, end); });
  return documents;
}

}  // namespace

TEST_CASE("Megatron's two files have the documented bytes", "[formats]") {
  const TemporaryDirectory directory;
  write_documents(directory / "text.bin", TokenLayout::kMegatron, 65536, {{5, 0, 65535}, {}, {7}});
  CHECK(bytes_of_file(directory / "text.bin") ==
        bytes_of_numbers(std::vector<std::uint16_t>{5, 0, 65535, 7}));
  CHECK(bytes_of_file(directory / "text.idx") ==
        std::string("MMIDIDX\0\0", 9) + bytes_of_numbers(std::vector<std::uint64_t>{1}) + '\x08' +
            bytes_of_numbers(std::vector<std::uint64_t>{2, 3}) +
            bytes_of_numbers(std::vector<std::int32_t>{3, 1}) +
            bytes_of_numbers(std::vector<std::int64_t>{0, 6}) +
            bytes_of_numbers(std::vector<std::int64_t>{0, 1, 2}));
  CHECK(tree_of(directory.path()).size() == 2);  // no other files are left
  CHECK(documents_in(directory / "text.bin") == Documents{{0, 3}, {3, 4}});
}

TEST_CASE("ids have 32 bits if the vocabulary needs them", "[formats]") {
  const TemporaryDirectory directory;
  const std::vector<Ids> documents{{5, 65536}, {1, 2, 3}};
  write_documents(directory / "text.bin", TokenLayout::kMegatron, 65537, documents);
  write_documents(directory / "text.npy", TokenLayout::kNumpy, 65537, documents);
  CHECK(TokenFile::open(directory / "text.bin").format() == "Megatron i32");
  CHECK(TokenFile::open(directory / "text.npy").format() == "numpy u32");
  for (const char* name : {"text.bin", "text.npy"}) {
    CHECK(ids_in(directory / name) == std::vector<std::int64_t>{5, 65536, 1, 2, 3});
  }
  CHECK(documents_in(directory / "text.bin") == Documents{{0, 2}, {2, 5}});
}

TEST_CASE("numpy and raw files hold the ids of all documents in sequence", "[formats]") {
  const TemporaryDirectory directory;
  write_documents(directory / "text.npy", TokenLayout::kNumpy, 300, {{5, 299}, {1}});
  write_documents(directory / "text", TokenLayout::kRaw, 300, {{5, 299}, {1}});
  const std::string ids = bytes_of_numbers(std::vector<std::uint16_t>{5, 299, 1});
  CHECK(bytes_of_file(directory / "text") == ids);
  const std::string dict = "{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }";
  CHECK(bytes_of_file(directory / "text.npy") == std::string("\x93NUMPY\x01\x00\x76\x00", 10) +
                                                     dict + std::string(117 - dict.size(), ' ') +
                                                     "\n" + ids);
}

TEST_CASE("tokens keep their order across buffers", "[formats]") {
  const TemporaryDirectory directory;
  TokenWriter writer(directory / "text.bin", TokenLayout::kMegatron, 70'000);
  std::vector<std::int64_t> expected;
  std::uint32_t next = 0;
  for (int document = 0; document < 90'000; ++document) {
    Ids ids(static_cast<std::size_t>(document % 17) + (document == 500 ? 400'000U : 0U));
    for (std::uint32_t& id : ids) {
      id = next++ % 70'000;
    }
    expected.insert(expected.end(), ids.begin(), ids.end());
    writer.write(ids);
    writer.end_document();
  }
  writer.publish();
  CHECK(writer.tokens() == std::ssize(expected));
  CHECK(ids_in(directory / "text.bin") == expected);
  const Documents documents = documents_in(directory / "text.bin");
  CHECK(std::ssize(documents) == writer.documents());
  CHECK(documents.size() == 90'000 - (90'000 + 16) / 17);
  CHECK(documents.back() ==
        std::pair<std::int64_t, std::int64_t>(std::ssize(expected) - 1, std::ssize(expected)));
}

TEST_CASE("an unpublished token file leaves no files and publishing replaces none", "[formats]") {
  const TemporaryDirectory directory;
  {
    TokenWriter writer(directory / "made/text.bin", TokenLayout::kMegatron, 300);
    writer.write(Ids{1, 2});
  }
  CHECK(tree_of(directory.path()).empty());
  const auto refusal = [&](const std::string& name, TokenLayout layout, std::int64_t vocabulary) {
    return refusal_of([&] { TokenWriter(directory / name, layout, vocabulary); });
  };
  put_file(directory / "text.idx", "mine");
  CHECK_THAT(refusal("text.bin", TokenLayout::kMegatron, 300),
             is_wrong_usage("text.idx", "exists already"));
  CHECK_THAT(refusal("text.idx", TokenLayout::kRaw, 300), is_wrong_usage("exists already"));
  CHECK_THAT(refusal("text", TokenLayout::kMegatron, 300), is_wrong_usage("text", ".bin"));
  CHECK_THAT(refusal("text", TokenLayout::kRaw, 65537), is_wrong_usage("65537", "16-bit ids"));
  CHECK_THAT(refusal("text", TokenLayout::kRaw, 0), is_wrong_usage("0 tokens"));
  CHECK(tree_of(directory.path()) == std::map<std::string, std::string>{{"text.idx", "mine"}});
}

TEST_CASE("publishing a pair does not replace an existing file", "[formats]") {
  const TemporaryDirectory directory;
  TokenWriter writer(directory / "text.bin", TokenLayout::kMegatron, 300);
  writer.write(Ids{1, 2});
  put_file(directory / "text.bin", "mine");
  CHECK_THAT(refusal_of([&] { writer.publish(); }), is_environment_failure("text.bin", "publish"));
  CHECK(bytes_of_file(directory / "text.bin") == "mine");
}

TEST_CASE("a token outside the vocabulary is not written", "[formats]") {
  const TemporaryDirectory directory;
  TokenWriter writer(directory / "text", TokenLayout::kRaw, 300);
  CHECK_THAT(refusal_of([&] { writer.write(Ids{299, 300}); }), is_wrong_usage("token 300", "300"));
}

TEST_CASE("a separator token divides a flat file into documents", "[formats]") {
  const TemporaryDirectory directory;
  const auto path = directory / "text";
  put_file(path, bytes_of_numbers(std::vector<std::uint16_t>{9, 5, 9, 9, 6, 7, 9, 8}));
  CHECK(documents_in(path, DocumentMark{.token = 9, .ends = true}) ==
        Documents{{0, 1}, {1, 3}, {3, 4}, {4, 7}, {7, 8}});
  CHECK(documents_in(path, DocumentMark{.token = 9, .ends = false}) ==
        Documents{{0, 2}, {2, 3}, {3, 6}, {6, 8}});
  CHECK(documents_in(path, DocumentMark{.token = 4, .ends = true}) == Documents{{0, 8}});
  CHECK_THAT(refusal_of([&] { documents_in(path); }), is_wrong_usage("text", "unknown"));
}

TEST_CASE("a Megatron index with impossible documents is refused", "[formats]") {
  const TemporaryDirectory directory;
  const auto documents = [&](const std::vector<std::int64_t>& firsts) {
    put_file(directory / "text.bin", bytes_of_numbers(std::vector<std::uint16_t>{5, 0, 7}));
    put_file(directory / "text.idx",
             std::string("MMIDIDX\0\0", 9) + bytes_of_numbers(std::vector<std::uint64_t>{1}) +
                 '\x08' + bytes_of_numbers(std::vector<std::uint64_t>{3, firsts.size()}) +
                 bytes_of_numbers(std::vector<std::int32_t>{1, 1, 1}) +
                 bytes_of_numbers(std::vector<std::int64_t>{0, 2, 4}) + bytes_of_numbers(firsts));
    return documents_in(directory / "text.bin");
  };
  CHECK(documents({0, 2, 3}) == Documents{{0, 2}, {2, 3}});
  CHECK(documents({0, 2, 2, 3}) == Documents{{0, 2}, {2, 3}});  // one document has no tokens
  CHECK(documents({}) == Documents{{0, 3}});
  CHECK_THAT(refusal_of([&] { documents({0, 2, 1, 3}); }),
             is_bad_input("text.idx", "document 2", "sequence 1", "2 to 3"));
  CHECK_THAT(refusal_of([&] { documents({0, 4}); }), is_bad_input("document 1", "sequence 4"));
  CHECK_THAT(refusal_of([&] { documents({-1, 3}); }), is_bad_input("document 0", "sequence -1"));
}

}  // namespace regroup
