// Positions of heads in each packing, by hand, and numbers of heads from shapes.
#include "formats/spec/model_spec.h"

#include <array>
#include <set>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "formats/families/family.h"
#include "formats/model/model_directory.h"
#include "formats/spec/alibi.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

using Features = std::vector<std::int64_t>;

TEST_CASE("separate tensors hold their heads in order", "[formats]") {
  const HeadFeatures at = head_features(Packing::kSeparate, 4, 2, 5);
  CHECK(at.q == Features{0, 5, 10, 15});
  CHECK(at.k == Features{0, 5});
  CHECK(at.v == Features{0, 5});
  CHECK(at.q_total == 20);
  CHECK(at.k_total == 10);
  CHECK(at.v_total == 10);
}

TEST_CASE("a query-key-value tensor holds all queries then all keys then all values", "[formats]") {
  const HeadFeatures at = head_features(Packing::kQueryKeyValue, 4, 2, 5);
  CHECK(at.q == Features{0, 5, 10, 15});
  CHECK(at.k == Features{20, 25});
  CHECK(at.v == Features{30, 35});
  CHECK(at.q_total == 40);
  CHECK(at.k_total == 40);
  CHECK(at.v_total == 40);
}

TEST_CASE("a tensor packed per group holds each group's queries and its key and value",
          "[formats]") {
  // 12 heads in 4 groups of 3, one feature each: q q q k v, four times.
  const HeadFeatures at = head_features(Packing::kPerGroup, 12, 4, 1);
  CHECK(at.q == Features{0, 1, 2, 5, 6, 7, 10, 11, 12, 15, 16, 17});
  CHECK(at.k == Features{3, 8, 13, 18});
  CHECK(at.v == Features{4, 9, 14, 19});
  CHECK(at.q_total == 20);
}

TEST_CASE("a tensor packed per group with one head per group is H x 3 x d", "[formats]") {
  const HeadFeatures at = head_features(Packing::kPerGroup, 6, 6, 4);
  for (std::int64_t h = 0; h < 6; ++h) {
    const auto i = static_cast<std::size_t>(h);
    CHECK(at.q[i] == (h * 3 + 0) * 4);
    CHECK(at.k[i] == (h * 3 + 1) * 4);
    CHECK(at.v[i] == (h * 3 + 2) * 4);
  }
}

TEST_CASE("a partitioned tensor holds queries, values and keys of each part", "[formats]") {
  // 8 heads in 4 parts of 2, in 4 groups: q q v k, four times. 2 groups make 2 parts of 4.
  const HeadFeatures four = head_features(Packing::kPartitioned, 8, 4, 1);
  CHECK(four.q == Features{0, 1, 4, 5, 8, 9, 12, 13});
  CHECK(four.v == Features{2, 6, 10, 14});
  CHECK(four.k == Features{3, 7, 11, 15});
  const HeadFeatures whole = head_features(Packing::kPartitioned, 8, 8, 1);
  CHECK(whole.v == Features{2, 3, 8, 9, 14, 15, 20, 21});
  CHECK(whole.k == Features{4, 5, 10, 11, 16, 17, 22, 23});
  const HeadFeatures two = head_features(Packing::kPartitioned, 8, 2, 1);
  CHECK(two.q == Features{0, 1, 2, 3, 6, 7, 8, 9});
  CHECK(two.v == Features{4, 10});
  CHECK(two.k == Features{5, 11});
}

TEST_CASE("the heads of every packing cover their tensor exactly once", "[formats]") {
  // 64 heads in 8 groups would hide a transposed grouping (H/G = G). The others do not.
  constexpr std::array<std::array<std::int64_t, 2>, 6> kCounts{
      {{12, 4}, {12, 3}, {64, 8}, {71, 1}, {6, 6}, {32, 8}}};
  for (const Packing packing :
       {Packing::kQueryKeyValue, Packing::kPerGroup, Packing::kPartitioned}) {
    for (const auto& [heads, groups] : kCounts) {
      CAPTURE(heads, groups);
      const HeadFeatures at = head_features(packing, heads, groups, 3);
      CHECK(at.q.size() == static_cast<std::size_t>(heads));
      CHECK(at.k.size() == static_cast<std::size_t>(groups));
      CHECK(at.v.size() == static_cast<std::size_t>(groups));
      std::set<std::int64_t> features;
      for (const Features& role : {at.q, at.k, at.v}) {
        features.insert(role.begin(), role.end());
      }
      CHECK(features.size() == static_cast<std::size_t>(heads + 2 * groups));
      CHECK(*features.begin() == 0);
      CHECK(*features.rbegin() == (heads + 2 * groups - 1) * 3);
      CHECK(at.q_total == (heads + 2 * groups) * 3);
    }
  }
}

TEST_CASE("kv heads follow from the shapes in every packing", "[formats]") {
  for (const auto& make : {tiny_llama, tiny_gpt2, tiny_bloom}) {
    for (const std::int64_t kv_heads : {12, 6, 4, 3, 1}) {
      CAPTURE(kv_heads);
      const TemporaryDirectory directory;
      const ModelDirectory model =
          open_model_directory(put_model(directory.path(), make({.kv_heads = kv_heads})));
      const ModelSpec spec = describe_model(model.config, model.checkpoint, "config.json");
      CHECK(kv_heads_from_shapes(spec, model.checkpoint) == Features{kv_heads, kv_heads});
    }
  }
}

TEST_CASE("a shape without a whole number of kv heads is refused", "[formats]") {
  const TemporaryDirectory directory;
  TinyModel tiny = tiny_llama();
  const std::string k = "model.layers.1.self_attn.k_proj.weight";
  const auto refusal_with = [&](Shape shape) {
    tiny.tensor(k) = varied_tensor(k, DType::kF32, std::move(shape));
    const ModelDirectory model = open_model_directory(put_model(directory.path(), tiny));
    const ModelSpec spec = describe_model(model.config, model.checkpoint, "config.json");
    return refusal_of([&] { kv_heads_from_shapes(spec, model.checkpoint); });
  };
  CHECK_THAT(refusal_with({7, 6}), is_bad_input(k, "7 output features", "12 query heads"));
  CHECK_THAT(refusal_with({10, 6}), is_bad_input(k, "10 output features"));  // 5 does not divide 12
  CHECK_THAT(refusal_with({0, 6}), is_bad_input(k, "0 output features"));
  CHECK_THAT(refusal_with({24}), is_bad_input(k, "[24]", "two dimensions"));
}

TEST_CASE("recorded slopes apply to all layers or to each and default to the formula",
          "[formats]") {
  ModelSpec spec;
  spec.query_heads = 2;
  spec.layers.resize(3);
  CHECK(alibi_slopes_per_layer(spec) == std::vector(3, alibi_slopes(2)));
  spec.alibi.slopes = {{0.5, 0.25}};
  CHECK(alibi_slopes_per_layer(spec) == std::vector(3, std::vector{0.5, 0.25}));
  spec.alibi.slopes = {{1, 2}, {3, 4}, {5, 6}};
  CHECK(alibi_slopes_per_layer(spec) == spec.alibi.slopes);
  spec.alibi.slopes = {{1, 2}, {3, 4}};
  CHECK_THAT(refusal_of([&] { alibi_slopes_per_layer(spec); }), is_bad_input("2 layers", "has 3"));
  spec.alibi.slopes = {{1, 2, 3}};
  CHECK_THAT(refusal_of([&] { alibi_slopes_per_layer(spec); }),
             is_bad_input("3 recorded", "2 query heads"));
}

TEST_CASE("uniform is true if all layers have the same number", "[formats]") {
  CHECK(is_uniform({4}));
  CHECK(is_uniform({4, 4, 4}));
  CHECK(is_uniform({4, 0, 4}));  // 0: no attention
  CHECK_FALSE(is_uniform({4, 4, 2}));
}

}  // namespace
}  // namespace regroup
