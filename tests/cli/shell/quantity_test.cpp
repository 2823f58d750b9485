#include "cli/shell/quantity.h"

#include <catch2/catch_test_macros.hpp>

#include "formats/base/printable.h"
#include "tests/refusal.h"

namespace regroup {
namespace {

TEST_CASE("counts are whole numbers with k and M as powers of 1024", "[cli]") {
  CHECK(parse_count("--x", "1") == 1);
  CHECK(parse_count("--x", "128k") == 131072);
  CHECK(parse_count("--x", "2K") == 2048);
  CHECK(parse_count("--x", "3M") == 3145728);
  CHECK(parse_count("--x", "0", {0, 5}) == 0);
  CHECK(parse_count("--x", "18446744073709551615", {0, ~std::uint64_t{0}}) == ~std::uint64_t{0});
  CHECK(parse_counts("--x", "4k,8") == std::vector<std::uint64_t>{4096, 8});
  for (const char* text : {"6", "1k", "18446744073709551615k", "0"}) {
    CHECK_THAT(refusal_of([&] { parse_count("--x", text, {1, 5}); }),
               is_wrong_usage("--x", "from 1 to 5"));
  }
}

TEST_CASE("sizes need units and an incomplete unit is refused with the alternatives", "[cli]") {
  CHECK(parse_bytes("--x", "24GiB") == 24UL << 30);
  CHECK(parse_bytes("--x", "1.5kB") == 1500);
  CHECK(parse_rate("--x", "3.3 TB/s") == 3300000000000);
  CHECK_THAT(refusal_of([] { parse_bytes("--x", "3.3TB/s"); }), is_wrong_usage("--x", "80GB"));
  CHECK_THAT(refusal_of([] { parse_rate("--x", "24GiB"); }), is_wrong_usage("--x", "TB/s"));
  CHECK(parse_bytes("--x", "20000B") == 20000);
  CHECK_THAT(refusal_of([] { parse_bytes("--x", "24"); }), is_wrong_usage("--x", "24GiB"));
  CHECK_THAT(refusal_of([] { parse_bytes("--x", "24g"); }), is_wrong_usage("24GiB", "24GB"));
  CHECK_THAT(refusal_of([] { parse_bytes("--x", "0B"); }), is_wrong_usage("--x", "1B"));
  CHECK(parse_bytes_or_share("--x", "25%", 1000) == 250);
  CHECK(parse_bytes_or_share("--x", "25kB", 1000) == 25000);
}

TEST_CASE("numbers are finite and in their range", "[cli]") {
  CHECK(parse_number("--x", "3e-4", {0, 1}) == 3e-4);
  CHECK(parse_number("--x", "0", {0, 1}) == 0.0);
  CHECK_THAT(refusal_of([] { parse_number("--x", "0", {0, 1, false}); }),
             is_wrong_usage("--x", "more than 0, up to 1"));
  CHECK_THAT(refusal_of([] { parse_number("--x", "nan", {0, 1}); }),
             is_wrong_usage("--x", "0 to 1"));
}

TEST_CASE("a name that ends in gguf is a GGUF file's in any case", "[cli]") {
  for (const char* name : {"x.gguf", "a/x.GGUF", "x.y.Gguf"}) {
    CHECK(names_gguf_file(name));
    CHECK_THROWS_AS(check_directory_name(name), Error);
    CHECK_NOTHROW(check_output_name(name, "a GGUF file", {".gguf"}));
  }
  CHECK_FALSE(names_gguf_file("gguf"));
  CHECK_FALSE(names_gguf_file("x.gguf.bin"));
}

TEST_CASE("edit distance counts inserted and deleted and replaced and swapped letters", "[cli]") {
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("inpsect", "inspect") == 1);
  CHECK(edit_distance("kvheads", "kv-heads") == 1);
  CHECK(edit_distance("sitting", "kitten") == 3);
  CHECK(edit_distance("ca", "abc") == 3);
  CHECK(nearest_name("--kvheads", {"--pool", "--kv-heads", "--kv-budget"}) == "--kv-heads");
  CHECK(nearest_name("--max-shard", {"--max-tokens", "--max-shard-size"}) == "--max-shard-size");
  CHECK(nearest_name("frobnicate", {"inspect", "convert"}).empty());
}

}  // namespace
}  // namespace regroup
