// Which tokenizer made a token file.
#include <catch2/catch_test_macros.hpp>

#include "formats/vocabulary/token_file.h"
#include "formats/vocabulary/token_writer.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

TokenizerDigest digest_of(const std::vector<std::string>& tokens) {
  TokenizerDigest digest;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    digest.add(static_cast<std::int64_t>(id), tokens[id]);
  }
  return digest;
}

std::vector<std::string> many_tokens(const std::string& prefix) {
  std::vector<std::string> tokens;
  for (int i = 0; i < 1000; ++i) {
    tokens.push_back(prefix + std::to_string(i));
  }
  return tokens;
}

}  // namespace

TEST_CASE("a digest is that of the texts of all ids", "[formats]") {
  std::vector<std::string> tokens = many_tokens("t");
  const TokenizerDigest digest = digest_of(tokens);
  TokenizerDigest backwards;
  for (std::int64_t id = 999; id >= 0; --id) {
    backwards.add(id, tokens[static_cast<std::size_t>(id)]);
  }
  CHECK(backwards == digest);
  CHECK(digest.equal_parts(digest_of(many_tokens("u"))) == 0);
  std::swap(tokens[3], tokens[70]);  // parts 3 and 6
  CHECK(digest.equal_parts(digest_of(tokens)) == TokenizerDigest::kParts - 2);
  tokens = many_tokens("t");
  tokens.emplace_back("<added>");
  CHECK(digest.equal_parts(digest_of(tokens)) == TokenizerDigest::kParts - 1);
  tokens.back() = "[PAD1000]";  // a row of the embedding without a token
  CHECK(digest_of(tokens) == digest);
  CHECK(digest_of({"\u2581a"}) == digest_of({" a"}));
}

TEST_CASE("token files keep the record of their tokenizer, and the same ids", "[formats]") {
  const TemporaryDirectory directory;
  const std::vector<std::uint32_t> ids{5, 6, 7, 300};
  const TokenOrigin origin{"some/tokenizer.json", digest_of(many_tokens("t"))};
  for (const auto& [name, layout] :
       {std::pair{"a.bin", TokenLayout::kMegatron}, std::pair{"a.npy", TokenLayout::kNumpy}}) {
    CAPTURE(name);
    TokenWriter writer(directory / name, layout, 1000);
    writer.set_origin(origin);
    writer.write(ids);
    writer.publish();
    const auto found = origin_of_tokens(directory / name);
    REQUIRE(found.has_value());
    CHECK(found->tokenizer == origin.tokenizer);
    CHECK(found->digest == origin.digest);
    const TokenFile file = TokenFile::open(directory / name);
    std::vector<std::int64_t> read(4);
    REQUIRE(file.size() == 4);
    file.read(0, read);
    CHECK(read == std::vector<std::int64_t>{5, 6, 7, 300});
  }
  CHECK(bytes_of_file(directory / "a.bin").size() == 8);  // nanoGPT reads all of it
  TokenWriter plain(directory / "b.bin", TokenLayout::kMegatron, 1000);
  plain.write(ids);
  plain.publish();
  CHECK_FALSE(origin_of_tokens(directory / "b.bin").has_value());
  std::filesystem::remove(directory / "b.idx");
  std::filesystem::create_symlink("none", directory / "b.idx");  // an index that is lost
  CHECK_THAT(refusal_of([&] { origin_of_tokens(directory / "b.bin"); }), is_bad_input("b.idx"));
  CHECK_THAT(refusal_of([&] { TokenFile::open(directory / "b.bin"); }), is_bad_input("b.idx"));
}

}  // namespace regroup
