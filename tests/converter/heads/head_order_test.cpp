// Head orders: their meaning, the valid ones, and their record in a converted model.
#include <numeric>

#include <catch2/catch_test_macros.hpp>

#include "converter/heads/heads.h"
#include "formats/base/json.h"
#include "formats/spec/alibi.h"
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

TEST_CASE("an order that is not a permutation of the layer's kv heads is refused", "[converter]") {
  const Model llama = open_model(golden("llama"));  // 12 query heads, 4 kv heads
  for (const Heads& wrong : {Heads{1, 0}, Heads{1, 1, 2, 3}, Heads{3, 2, 1, 4}}) {
    CHECK_THAT(refusal_of([&] { plan_conversion(llama, {.order = order_of(wrong)}); }),
               is_wrong_usage("layer 0", "4 kv heads"));
  }
}

using LayerNumbers = std::vector<std::size_t>;

TEST_CASE("layers that share a relative bias share one head order", "[converter]") {
  const Model t5 = open_model(golden("t5")), umt5 = open_model(golden("umt5"));
  for (const std::size_t layer : {0U, 1U}) {
    CHECK(layers_in_step(t5.spec, AttentionRole::kSelf, layer) == LayerNumbers{0, 1, 2});
    CHECK(layers_in_step(t5.spec, AttentionRole::kEncoder, layer) == LayerNumbers{0, 1});
    CHECK(layers_in_step(umt5.spec, AttentionRole::kEncoder, layer) == LayerNumbers{layer});
  }
  CHECK(layers_in_step(t5.spec, AttentionRole::kCross, 1) == LayerNumbers{1});
  CHECK(layers_in_step(open_model(golden("bloom")).spec, AttentionRole::kSelf, 1) ==
        LayerNumbers{1});
  ModelSpec two_tables = t5.spec;
  two_tables.layers.resize(5);
  two_tables.layers[3].relative_bias = "another";
  CHECK(layers_in_step(two_tables, AttentionRole::kSelf, 2) == LayerNumbers{0, 1, 2});
  CHECK(layers_in_step(two_tables, AttentionRole::kSelf, 4) == LayerNumbers{3, 4});
}

const Heads kReversed{11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0};

TEST_CASE("an order for one layer is refused if other layers share its bias", "[converter]") {
  const Model t5 = open_model(golden("t5"));
  const auto refused = [&](const HeadOrder& order) {
    return refusal_of([&] { plan_conversion(t5, {.order = order}); });
  };
  for (const std::size_t layer : {0U, 1U}) {
    HeadOrder order = order_of(kReversed, AttentionRole::kEncoder, layer);
    CHECK_THAT(refused(order), is_wrong_usage("encoder layers 0 and 1", "relative bias"));
    order.set(AttentionRole::kEncoder, 1 - layer, {1, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
    CHECK_THAT(refused(order), is_wrong_usage("encoder layers 0 and 1", "the same order"));
    order.set(AttentionRole::kEncoder, 1 - layer, kReversed);
    CHECK_NOTHROW(plan_conversion(t5, {.order = order}));
    CHECK_THAT(refused(order_of(kReversed, AttentionRole::kSelf, layer)),
               is_wrong_usage("decoder layers"));
  }
  Heads too_many(24);
  std::iota(too_many.rbegin(), too_many.rend(), 0);
  HeadOrder order = order_of(kReversed, AttentionRole::kEncoder, 0);
  order.set(AttentionRole::kEncoder, 1, too_many);
  CHECK_THAT(refused(order), is_wrong_usage("encoder layer 1", "12 kv heads"));
  CHECK_NOTHROW(plan_conversion(t5, {.order = order_of(kReversed, AttentionRole::kCross, 1)}));
}

TEST_CASE("layers with different kv heads can share one order of query heads", "[converter]") {
  ModelSpec spec = open_model(golden("t5")).spec;
  CHECK(heads_can_move(spec, AttentionRole::kSelf, 1));
  spec.kv_heads = {12, 4, 12};
  CHECK_FALSE(heads_can_move(spec, AttentionRole::kSelf, 0));
  CHECK(heads_can_move(spec, AttentionRole::kEncoder, 0));
  HeadOrder order = order_of({3, 4, 5, 0, 1, 2, 6, 7, 8, 9, 10, 11});
  order.set(AttentionRole::kSelf, 1, {1, 0, 2, 3});
  order.set(AttentionRole::kSelf, 2, {3, 4, 5, 0, 1, 2, 6, 7, 8, 9, 10, 11});
  CHECK_NOTHROW(check_order(order, spec));
  order.set(AttentionRole::kSelf, 1, {0, 2, 1, 3});
  CHECK_THAT(refusal_of([&] { check_order(order, spec); }), is_wrong_usage("the same order"));
}

// t5 with the decoder's heads in another order; its second layer of three keeps 6 kv heads.
class MovedDecoder {
 public:
  const Checkpoint& before() const { return before_; }
  const Checkpoint& after() const { return after_; }
  std::size_t head(std::size_t place) const { return static_cast<std::size_t>(moved_[place]); }

  // Compares rows of a tensor with `expected(values before, head, rows per head, row)`.
  void check_rows(const std::string& name, std::size_t heads, const auto& expected) const {
    const auto from = values_of(before_, name), to = values_of(after_, name);
    const std::size_t size = from.size() / 12;
    REQUIRE(to.size() == heads * size);
    for (std::size_t i = 0; i < to.size(); ++i) {
      CHECK(to[i] == expected(from, i / size, size, i % size));
    }
  }

 private:
  Checkpoint converted() const {
    HeadOrder order;
    for (const std::size_t layer : {0U, 1U, 2U}) {
      order.set(AttentionRole::kSelf, layer, moved_);
    }
    convert(golden("t5"), directory_ / "result",
            {.kv_heads = {12, 6, 12}, .roles = {AttentionRole::kSelf}, .order = order});
    return open_checkpoint(directory_ / "result");
  }

  const Heads moved_{2, 7, 0, 1, 3, 4, 5, 6, 8, 9, 10, 11};
  const TemporaryDirectory directory_;
  const Checkpoint before_ = open_checkpoint(golden("t5"));
  const Checkpoint after_ = converted();
};

std::string decoder_attention(int block) {
  return "decoder.block." + std::to_string(block) + ".layer.0.SelfAttention.";
}

TEST_CASE("columns of a shared bias move with the heads of all its layers", "[converter]") {
  const MovedDecoder moved;
  const std::string table = decoder_attention(0) + "relative_attention_bias.weight";
  const auto old = values_of(moved.before(), table), now = values_of(moved.after(), table);
  REQUIRE(now.size() == old.size());
  for (std::size_t i = 0; i < now.size(); ++i) {  // [buckets, 12]
    CHECK(now[i] == old[i / 12 * 12 + moved.head(i % 12)]);
  }
}

TEST_CASE("heads of a stack move in every layer, pooled or not", "[converter]") {
  const MovedDecoder moved;
  const auto moves = [&](const auto& from, std::size_t place, std::size_t size, std::size_t i) {
    return from[moved.head(place) * size + i];
  };
  const auto pools = [&](const auto& from, std::size_t place, std::size_t size, std::size_t i) {
    const double sum =
        from[moved.head(2 * place) * size + i] + from[moved.head(2 * place + 1) * size + i];
    return static_cast<double>(static_cast<float>(sum / 2));
  };
  for (const char* part : {"q.weight", "k.weight", "v.weight"}) {
    moved.check_rows(decoder_attention(0) + part, 12, moves);
  }
  moved.check_rows(decoder_attention(1) + "q.weight", 12, moves);
  moved.check_rows(decoder_attention(1) + "k.weight", 6, pools);
  moved.check_rows(decoder_attention(1) + "v.weight", 6, pools);
}

TEST_CASE("a stack whose heads do not move keeps its bytes", "[converter]") {
  const MovedDecoder moved;
  for (const TensorInfo& tensor : moved.before().tensors()) {
    if (tensor.name.starts_with("encoder.")) {
      CHECK((bytes_of(moved.after(), tensor.name) == bytes_of(moved.before(), tensor.name)));
    }
  }
}

// Moves heads so that two groups of three become contiguous.
const Heads kMoved{4, 1, 5, 0, 3, 2};

TEST_CASE("rows of queries and keys and values and columns of the output move", "[converter]") {
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

TEST_CASE("config and metadata record the order of query heads", "[converter]") {
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

TEST_CASE("ALiBi slopes move with their heads and are recorded", "[converter]") {
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

}  // namespace
}  // namespace regroup
