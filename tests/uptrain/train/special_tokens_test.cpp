#include <catch2/catch_test_macros.hpp>

#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/golden_case.h"
#include "uptrain/train/text_infilling.h"

namespace regroup {
namespace {

// The sentinels found in a directory with this one file.
std::optional<Sentinels> found_in(const char* name, const char* text) {
  const TemporaryDirectory directory;
  put_file(directory / name, text);
  return find_sentinels(directory.path());
}

}  // namespace

TEST_CASE("sentinels are found in every tokenizer file", "[uptrain]") {
  const auto check = [](const std::optional<Sentinels>& found) {
    REQUIRE(found);
    CHECK(found->first == 99);
    CHECK(found->count == 2);
  };
  check(found_in("tokenizer_config.json", R"({"added_tokens_decoder": {
    "0": {"content": "<pad>"}, "98": {"content": "<extra_id_1>"}, "99": {"content": "<extra_id_0>"}
  }})"));
  check(found_in("added_tokens.json", R"({"<extra_id_0>": 99, "<extra_id_1>": 98, "<x>": 7})"));
  check(found_in("tokenizer.json", R"({"model": {}, "added_tokens": [
    {"id": 98, "content": "<extra_id_1>"}, {"id": 99, "content": "<extra_id_0>"}, {"id": 3}]})"));
}

TEST_CASE("files without sentinels give none", "[uptrain]") {
  CHECK_FALSE(find_sentinels(golden("t5")));
  CHECK_FALSE(found_in("tokenizer_config.json", R"({"added_tokens_decoder": 3})"));
  CHECK_FALSE(found_in("tokenizer_config.json", R"({"added_tokens_decoder": {"99": 4, "x": {}}})"));
  CHECK_FALSE(found_in("tokenizer.json", R"({"added_tokens": [1, {"id": 4}]})"));
  CHECK_FALSE(found_in("added_tokens.json", R"({"<extra_id_>": 9, "<extra_id_0x>": 8})"));
}

TEST_CASE("sentinels whose ids do not count down are refused", "[uptrain]") {
  CHECK_THAT(refusal_of([] {
               found_in("added_tokens.json", R"({"<extra_id_0>": 99, "<extra_id_1>": 100})");
             }),
             is_bad_input("added_tokens.json", "<extra_id_1> is token 100", "allowed is 98"));
  CHECK_THAT(refusal_of([] {
               found_in("added_tokens.json", R"({"<extra_id_0>": 99, "<extra_id_2>": 97})");
             }),
             is_bad_input("<extra_id_2>"));
  CHECK_THAT(refusal_of([] { found_in("added_tokens.json", "[1]"); }),
             is_bad_input("added_tokens.json"));
}

TEST_CASE("the mask token is found in every tokenizer file", "[uptrain]") {
  const auto mask_in = [](const char* name, const char* text) {
    const TemporaryDirectory directory;
    put_file(directory / name, text);
    return find_mask_token(directory.path());
  };
  CHECK(mask_in("tokenizer_config.json",
                R"({"added_tokens_decoder": {"7": {"content": "<mask>"}, "8": {"content": 1}}})") ==
        7);
  CHECK(mask_in("added_tokens.json", R"({"<x>": 1, "<mask>": 9})") == 9);
  CHECK(mask_in("tokenizer.json", R"({"added_tokens": [{"id": 5, "content": "<mask>"}]})") == 5);
  CHECK_FALSE(mask_in("tokenizer.json", R"({"added_tokens": [{"id": 5, "content": "[MASK]"}]})"));
  CHECK_FALSE(mask_in("added_tokens.json", R"({"<mask>": "9"})"));
  CHECK_FALSE(find_mask_token(golden("bart")));
}

TEST_CASE("the end token is the config's only eos_token_id", "[uptrain]") {
  Model model = load_golden_case("t5").source;
  CHECK(end_token_of(model) == 1);
  model.config["eos_token_id"] = Json::array({1, 2});
  CHECK_FALSE(end_token_of(model));
  model.config.erase("eos_token_id");
  CHECK_FALSE(end_token_of(model));
}

}  // namespace regroup
