// Conversions with heads grouped by similarity, layer by layer and stack by stack.
#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <tuple>

#include <catch2/catch_test_macros.hpp>

#include "formats/base/json.h"
#include "tests/checkpoint_builder.h"
#include "tests/converter/conversion.h"
#include "tests/converter/pooling/pooled_conversion.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

TEST_CASE("similar groups lose what was predicted and no more than contiguous ones",
          "[converter]") {
  for (const PoolMethod method : {PoolMethod::kMean, PoolMethod::kFirst, PoolMethod::kLowrank}) {
    const Model source = open_model(golden("llama_mha"));
    ConversionRequest request = request_of(method, 3);
    const SimilarGrouping found = similar_grouping(source, request);
    REQUIRE(found.layers.size() == 2);
    request.grouping = "similar";
    request.order = found.order;
    const std::atomic<bool> stop{false};
    const auto layers = measure_pooling(plan_conversion(source, request), source.checkpoint, stop);
    for (const std::size_t i : {0U, 1U}) {
      CAPTURE(name_of(method), i);
      CHECK(std::abs(loss_of(layers.at(i)) - found.layers[i].loss) < 1e-9);
      CHECK(found.layers[i].loss <= found.layers[i].contiguous_loss);
    }
    CHECK(found.layers[0].loss + found.layers[1].loss <
          found.layers[0].contiguous_loss + found.layers[1].contiguous_loss - 1e-3);
  }
}

TEST_CASE("each stack of a T5 has one grouping and loses what was predicted", "[converter]") {
  const Model source = open_model(golden("t5"));
  for (const PoolMethod method : {PoolMethod::kMean, PoolMethod::kLowrank}) {
    for (const std::int64_t groups : {6, 4}) {
      ConversionRequest request = request_of(method, groups);
      request.roles = source.spec.roles();
      const SimilarGrouping found = similar_grouping(source, request);
      CHECK(found.layers.size() == 8);  // encoder 2, decoder and cross-attention 3 each
      request.grouping = "similar";
      request.order = found.order;
      const ConversionPlan plan = plan_conversion(source, request);
      const std::atomic<bool> stop{false};
      const auto layers = measure_pooling(plan, source.checkpoint, stop);
      std::map<AttentionRole, double> gained;
      for (const LayerGrouping& grouping : found.layers) {
        const auto layer = std::find_if(layers.begin(), layers.end(), [&](const auto& other) {
          return other.role == grouping.role && other.layer == grouping.layer;
        });
        CAPTURE(name_of(method), groups, name_of(grouping.role), grouping.layer);
        REQUIRE(layer != layers.end());
        CHECK(std::abs(loss_of(*layer) - grouping.loss) < 1e-9);
        gained[grouping.role] += grouping.contiguous_loss - grouping.loss;
      }
      for (const AttentionRole role : source.spec.roles()) {
        CHECK(gained.at(role) > 1e-3);
      }
      CHECK(std::none_of(plan.notes.begin(), plan.notes.end(), [](const std::string& note) {
        return note.find("contiguous") != std::string::npos;
      }));
    }
  }
}

// Makes keys and values equal for each two consecutive heads in `pairs`.
void pair_heads(TinyModel& model, const std::string& attention,
                const std::vector<std::size_t>& pairs) {
  for (const char* part : {".k.weight", ".v.weight"}) {
    BuiltTensor& tensor = model.tensor(attention + part);
    std::vector<double> values = values_of(tensor);
    const std::size_t size = values.size() / 12;
    for (std::size_t i = 0; i < 12; i += 2) {
      std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(pairs[i] * size), size,
                  values.begin() + static_cast<std::ptrdiff_t>(pairs[i + 1] * size));
    }
    tensor = tensor_of(tensor.name, tensor.dtype, tensor.shape, values);
  }
}

TEST_CASE("equal heads are found for each stack separately", "[converter]") {
  TinyModel model = golden_model("t5");
  const std::vector<std::size_t> encoder{0, 7, 1, 4, 2, 11, 3, 9, 5, 8, 6, 10};
  const std::vector<std::size_t> decoder{0, 5, 1, 11, 2, 3, 4, 8, 6, 9, 7, 10};
  for (const char* block : {"encoder.block.0", "encoder.block.1"}) {
    pair_heads(model, std::string(block) + ".layer.0.SelfAttention", encoder);
  }
  for (const char* block : {"decoder.block.0", "decoder.block.1", "decoder.block.2"}) {
    pair_heads(model, std::string(block) + ".layer.0.SelfAttention", decoder);
  }
  const TemporaryDirectory directory;
  const Model source = open_model(put_model(directory / "source", model));
  ConversionRequest request = request_of(PoolMethod::kMean, 6);
  request.roles = {AttentionRole::kSelf, AttentionRole::kEncoder};
  const SimilarGrouping found = similar_grouping(source, request);
  using Heads = std::vector<std::int64_t>;
  for (const std::size_t layer : {0U, 1U}) {
    CHECK(found.order.heads(AttentionRole::kEncoder, layer, 12) ==
          Heads(encoder.begin(), encoder.end()));
    CHECK(found.order.heads(AttentionRole::kSelf, layer, 12) ==
          Heads(decoder.begin(), decoder.end()));
  }
  CHECK_FALSE(found.order.moves(AttentionRole::kCross, 0));
  for (const LayerGrouping& layer : found.layers) {
    CHECK(layer.loss < 1e-9);
    CHECK(layer.contiguous_loss > 1e-2);
  }
  // A layer that is not pooled follows the order but does not affect it.
  request.kv_heads = {12, 6, 12};
  request.roles = {AttentionRole::kSelf};
  const SimilarGrouping one = similar_grouping(source, request);
  CHECK(one.layers.size() == 1);
  for (const std::size_t layer : {0U, 1U, 2U}) {
    CHECK(one.order.heads(AttentionRole::kSelf, layer, 12) ==
          Heads(decoder.begin(), decoder.end()));
  }
}

TEST_CASE("no grouping is searched in layers with one kv head", "[converter]") {
  const Model source = open_model(golden("llama_mha"));
  const ConversionRequest one = request_of(PoolMethod::kLowrank, 1);
  CHECK(allows_one_grouping(plan_conversion(source, one)));
  const SimilarGrouping none = similar_grouping(source, one);
  CHECK(none.layers.empty());
  CHECK(none.order.empty());
  ConversionRequest mixed = request_of(PoolMethod::kLowrank, 3);
  mixed.kv_heads = {1, 3};
  CHECK_FALSE(allows_one_grouping(plan_conversion(source, mixed)));
  const SimilarGrouping second = similar_grouping(source, mixed);
  REQUIRE(second.layers.size() == 1);
  CHECK(second.layers[0].layer == 1);
}

TEST_CASE("a note says if layers sharing a bias keep their head order", "[converter]") {
  const TemporaryDirectory directory;
  convert(golden("t5"), directory / "mixed",
          {.kv_heads = {12, 6, 12}, .roles = {AttentionRole::kSelf}});
  const Model source = open_model(directory / "mixed");
  ConversionRequest request = request_of(PoolMethod::kMean, 3);
  const SimilarGrouping found = similar_grouping(source, request);
  CHECK(found.layers.size() == 3);  // of cross-attention
  CHECK_FALSE(found.order.moves(AttentionRole::kSelf, 0));
  request.grouping = "similar";
  request.order = found.order;
  const auto notes = plan_conversion(source, request).notes;
  CHECK(std::any_of(notes.begin(), notes.end(), [](const std::string& note) {
    return note.find("decoder layers that share a relative bias") != std::string::npos;
  }));
}

}  // namespace
}  // namespace regroup
