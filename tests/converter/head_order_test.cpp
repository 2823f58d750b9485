// Orders of heads: what they mean, which are allowed, and what a converted model says of them.
#include "converter/head_order.h"

#include <catch2/catch_test_macros.hpp>

#include "formats/alibi.h"
#include "formats/json.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

using Heads = std::vector<std::int64_t>;

HeadOrder order_of(const Heads& kv_heads, AttentionRole role = AttentionRole::kSelf,
                   std::size_t layer = 0) {
  HeadOrder order;
  order.set(role, layer, kv_heads);
  return order;
}

TEST_CASE("query heads move with the kv head they read", "[converter]") {
  const HeadOrder order = order_of({2, 0, 1});
  CHECK(order.heads(AttentionRole::kSelf, 0, 3) == Heads{2, 0, 1});
  CHECK(order.heads(AttentionRole::kSelf, 0, 6) == Heads{4, 5, 0, 1, 2, 3});
  CHECK(order.heads(AttentionRole::kSelf, 1, 3) == Heads{0, 1, 2});
  CHECK(order.moves(AttentionRole::kSelf, 0));
  CHECK_FALSE(order.moves(AttentionRole::kCross, 0));
  CHECK(order_of({0, 1, 2}).empty());
}

TEST_CASE("an order that is no permutation of the layer's kv heads is refused", "[converter]") {
  const Model llama = open_model(golden("llama"));  // 12 query heads, 4 kv heads
  for (const Heads& wrong : {Heads{1, 0}, Heads{1, 1, 2, 3}, Heads{3, 2, 1, 4}}) {
    CHECK_THAT(refusal_of([&] { plan_conversion(llama, {.order = order_of(wrong)}); }),
               is_wrong_usage("layer 0", "4 kv heads"));
  }
}

TEST_CASE("heads that share a relative bias with other layers keep their places", "[converter]") {
  const Model t5 = open_model(golden("t5")), umt5 = open_model(golden("umt5"));
  Heads reversed{11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
  CHECK(heads_can_move(t5.spec, AttentionRole::kCross, 0));
  CHECK(heads_can_move(umt5.spec, AttentionRole::kSelf, 0));
  for (const AttentionRole role : {AttentionRole::kSelf, AttentionRole::kEncoder}) {
    for (const std::size_t layer : {0U, 1U}) {
      CHECK_FALSE(heads_can_move(t5.spec, role, layer));
      CHECK_THAT(
          refusal_of([&] { plan_conversion(t5, {.order = order_of(reversed, role, layer)}); }),
          is_wrong_usage(name_of(role), "relative bias"));
    }
  }
}

// Two groups of three become neighbours of other heads.
const Heads kMoved{4, 1, 5, 0, 3, 2};

TEST_CASE("rows of queries, keys and values and columns of the output move", "[converter]") {
  const TemporaryDirectory directory;
  put_model(directory / "source", tiny_llama({.query_heads = 6, .kv_heads = 6}));
  convert(directory / "source", directory / "result", {.order = order_of(kMoved)});
  const Checkpoint before = open_checkpoint(directory / "source");
  const Checkpoint after = open_checkpoint(directory / "result");
  const auto name = [](const char* part, int layer) {
    return "model.layers." + std::to_string(layer) + ".self_attn." + part + "_proj.weight";
  };
  for (const char* part : {"q", "k", "v"}) {  // [6 · 2, 6]
    const auto old = values_of(before, name(part, 0)), moved = values_of(after, name(part, 0));
    for (std::size_t i = 0; i < moved.size(); ++i) {
      const auto head = static_cast<std::size_t>(kMoved[i / 12]);
      CHECK(moved[i] == old[head * 12 + i % 12]);
    }
    CHECK((bytes_of(after, name(part, 1)) == bytes_of(before, name(part, 1))));
  }
  const auto old = values_of(before, name("o", 0)), moved = values_of(after, name("o", 0));
  for (std::size_t i = 0; i < moved.size(); ++i) {  // [6, 6 · 2]
    const std::size_t row = i / 12, column = i % 12;
    const auto head = static_cast<std::size_t>(kMoved[column / 2]);
    CHECK(moved[i] == old[row * 12 + head * 2 + column % 2]);
  }
}

TEST_CASE("config and metadata say which query head stands where", "[converter]") {
  const TemporaryDirectory directory;
  put_model(directory / "source", tiny_llama({.query_heads = 6, .kv_heads = 6}));
  convert(directory / "source", directory / "result",
          {.kv_heads = {2}, .grouping = "similar", .order = order_of(kMoved)});
  const Json block = Json::parse(tree_of(directory / "result").at("config.json")).at("regroup");
  CHECK(block.at("grouping") == "similar");
  CHECK(block.at("query_order") == Json{kMoved, {0, 1, 2, 3, 4, 5}});
  const auto metadata = open_checkpoint(directory / "result").metadata();
  CHECK(metadata.at("regroup.grouping") == "similar");
  CHECK(Json::parse(metadata.at("regroup.query_order")) == block.at("query_order"));
}

TEST_CASE("ALiBi's slopes move with their heads and are recorded", "[converter]") {
  const TemporaryDirectory directory;
  put_model(directory / "source", tiny_bloom({.query_heads = 6, .kv_heads = 6}));
  convert(directory / "source", directory / "result",
          {.kv_heads = {2}, .grouping = "similar", .order = order_of(kMoved)});
  const std::vector<double> formula = alibi_slopes(6);
  const auto slopes = alibi_slopes_per_layer(open_model(directory / "result").spec);
  REQUIRE(slopes.size() == 2);
  for (std::size_t h = 0; h < 6; ++h) {
    CHECK(slopes[0][h] == formula[static_cast<std::size_t>(kMoved[h])]);
    CHECK(slopes[1][h] == formula[h]);
  }
}

TEST_CASE("heads with slopes do not move where loaders compute slopes from places", "[converter]") {
  const Model bloom = open_model(golden("bloom"));  // 6 heads
  const auto refused = [&](ConversionRequest request) {
    request.order = order_of(kMoved);
    return refusal_of([&] { plan_conversion(bloom, request); });
  };
  CHECK_THAT(refused({}), is_wrong_usage("ALiBi", "contiguous"));  // as many: stock loaders read it
  CHECK_THAT(refused({.kv_heads = {2}, .target = "expanded"}), is_wrong_usage("ALiBi"));
  CHECK_THAT(refused({.kv_heads = {2}, .container = Container::kGguf}), is_wrong_usage("slopes"));
  const ConversionPlan plan = plan_conversion(bloom, {.kv_heads = {2}, .order = order_of(kMoved)});
  bool noted = false;
  for (const std::string& note : plan.notes) {
    noted = noted || note.find("ALiBi slopes") != std::string::npos;
  }
  CHECK(noted);
}

}  // namespace
}  // namespace regroup
