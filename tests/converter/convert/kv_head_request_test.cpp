#include "converter/convert/kv_head_request.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "tests/refusal.h"

namespace regroup {
namespace {

using Heads = std::vector<std::int64_t>;

ModelSpec spec_with(std::int64_t query_heads, Heads kv_heads) {
  ModelSpec spec;
  spec.query_heads = query_heads;
  spec.layers.resize(kv_heads.size());
  spec.kv_heads = std::move(kv_heads);
  for (LayerTensors& layer : spec.layers) {
    layer.attention.o.weight = "o";
  }
  return spec;
}

TEST_CASE("a request is one number or one per layer", "[converter]") {
  CHECK(parse_kv_heads("8") == Heads{8});
  CHECK(parse_kv_heads("8,8,4") == Heads{8, 8, 4});
}

TEST_CASE("a request that is not a positive whole number is refused", "[converter]") {
  for (const std::string_view text :
       {"", "0", "-1", "+1", "1.5", "1e1", "eight", " 8", "8 ", "8,", ",8", "8,,4", "8, 4", "0x8",
        "8;4", "9223372036854775808", "8,0"}) {
    CAPTURE(text);
    CHECK_THAT(refusal_of([&] { parse_kv_heads(text); }), is_wrong_usage("--kv-heads", text));
  }
}

TEST_CASE("a layer without attention keeps zero kv heads", "[converter]") {
  ModelSpec spec = spec_with(12, {12, 0, 12});
  spec.layers[1].attention = {};
  CHECK(resolve_kv_heads({3}, spec) == Heads{3, 0, 3});
}

TEST_CASE("one number applies to every layer and a list to one layer each", "[converter]") {
  const ModelSpec spec = spec_with(12, {12, 12, 6});
  CHECK(resolve_kv_heads({3}, spec) == Heads{3, 3, 3});
  CHECK(resolve_kv_heads({12, 4, 6}, spec) == Heads{12, 4, 6});
}

TEST_CASE("a request that does not divide the kv heads is refused with the divisors",
          "[converter]") {
  CHECK_THAT(refusal_of([] { resolve_kv_heads({5}, spec_with(12, {12, 12})); }),
             is_wrong_usage("5", "12 kv heads", "layer 0", "1, 2, 3, 4, 6, 12"));
  CHECK_THAT(refusal_of([] { resolve_kv_heads({4, 4}, spec_with(12, {12, 6})); }),
             is_wrong_usage("4", "6 kv heads", "layer 1", "1, 2, 3, 6"));
}

TEST_CASE("a request for more kv heads than present is refused", "[converter]") {
  CHECK_THAT(refusal_of([] { resolve_kv_heads({24}, spec_with(12, {12})); }),
             is_wrong_usage("24", "layer 0", "12 kv heads"));
  CHECK_THAT(refusal_of([] { resolve_kv_heads({6}, spec_with(12, {12, 4})); }),
             is_wrong_usage("6", "layer 1", "4 kv heads"));
}

TEST_CASE("a list of the wrong length is refused", "[converter]") {
  CHECK_THAT(refusal_of([] { resolve_kv_heads({4, 4}, spec_with(12, {12, 12, 12})); }),
             is_wrong_usage("2 layers", "has 3"));
}

}  // namespace
}  // namespace regroup
