// SentencePiece models whose normalisation rules would crash the library.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "tests/charsmap_builder.h"
#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tokens/sentencepiece_builder.h"
#include "tokens/tokenizer.h"

#if REGROUP_WITH_SENTENCEPIECE

namespace regroup {
namespace {

using Ids = std::vector<std::uint32_t>;

BuiltSentencePiece model_with(const std::string& charsmap) {
  BuiltSentencePiece model = llama_like({"a", "b", "\u2581"});  // 259, 260, 261
  model.adds_space_prefix = false;
  model.charsmap = charsmap;
  return model;
}

}  // namespace

TEST_CASE("the library applies rules that the check accepts", "[tokens]") {
  const TemporaryDirectory directory;
  BuiltCharsmap map;
  map.add_rule("x", 0);
  map.add_rule("\u00e4", 2);
  map.replacements = std::string("b\0ab\0", 5);
  put_file(directory / "tokenizer.model", model_with(map.bytes()).bytes());
  const auto tokenizer = open_tokenizer(directory / "tokenizer.model");
  Ids ids;
  tokenizer->encode("axa\u00e4", true, ids);
  CHECK(ids == Ids{259, 260, 259, 259, 260});
}

TEST_CASE("rules that lead out of their array are refused with one line", "[tokens]") {
  const TemporaryDirectory directory;
  put_file(directory / "text.txt", "abc \u00e4");
  const auto tokenize = [&](const BuiltCharsmap& map) {
    put_file(directory / "tokenizer.model", model_with(map.bytes()).bytes());
    return run_program({"tokenize", (directory / "text.txt").string(), "--output",
                        (directory / "out.bin").string(), "--tokenizer",
                        (directory / "tokenizer.model").string()});
  };
  BuiltCharsmap out;
  out.units[0] = BuiltCharsmap::child(0, 0x1fffffU << 8, false);
  BuiltCharsmap beyond;
  beyond.add_rule("a", 0x7fffff00);
  for (const BuiltCharsmap& map : {out, beyond}) {
    const ProgramResult run = tokenize(map);
    CAPTURE(run.err);
    CHECK(run.exit_code == 3);
    CHECK(run.one_line_of_error());
    CHECK(run.err.find("precompiled_charsmap") != std::string::npos);
    CHECK_FALSE(std::filesystem::exists(directory / "out.bin"));
  }
}

}  // namespace regroup

#endif
