// llama2.c's files: no magic number, a fixed order, recognised by their exact size.
#include "formats/llama2c/llama2c.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "formats/families/family.h"
#include "formats/inspect/model_summary.h"
#include "formats/model/model.h"
#include "tests/checkpoint_builder.h"
#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"
#include "tests/torch_builder.h"

namespace regroup {
namespace {

constexpr std::string_view kLlama2cFile = "model.bin";

std::string header_bytes(const std::vector<std::int32_t>& numbers) {
  std::string bytes;
  for (const std::int32_t number : numbers) {
    bytes += little_endian(static_cast<std::uint32_t>(number), 4);
  }
  return bytes;
}

// dim 4, MLP 3, 2 layers, 2 heads of 2, 1 kv head, vocabulary 5 with its own classifier, 6
// positions. The float at index i (after the header) is i.
constexpr std::size_t kFloats = 5 * 4              // token_embedding
                                + 2 * 4            // rms_att
                                + 2 * (4 * 4)      // wq
                                + 2 * (2 * 4) * 2  // wk, wv
                                + 2 * (4 * 4)      // wo
                                + 2 * 4            // rms_ffn
                                + 2 * (3 * 4) * 3  // w1, w2, w3
                                + 4                // rms_final
                                + 6 * 1 * 2        // tables
                                + 5 * 4;           // wcls

std::string numbered_floats(std::size_t count) {
  std::string bytes(count * sizeof(float), '\0');
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(i);
    std::memcpy(bytes.data() + i * sizeof(float), &value, sizeof(float));
  }
  return bytes;
}

std::string small_file() { return header_bytes({4, 3, 2, 2, 1, -5, 6}) + numbered_floats(kFloats); }

Model opened_llama2c(std::string_view bytes) {
  const TemporaryDirectory directory;
  put_file(directory / kLlama2cFile, bytes);
  return open_model(directory / kLlama2cFile);
}

Error refusal_of_llama2c(std::string_view bytes) {
  return refusal_of([&] { opened_llama2c(bytes); });
}

TEST_CASE("a llama2.c file has one tensor per layer and kind in the documented order",
          "[formats]") {
  const Model model = opened_llama2c(small_file());
  CHECK(model.convention == Convention::kLlama2c);
  check_all_shapes(model.spec, model.checkpoint);
  const auto first_of = [&](const std::string& name) {
    return values_of(model.checkpoint, name).front();
  };
  CHECK(first_of("token_embedding") == 0);
  CHECK(first_of("layers.0.rms_att") == 20);
  CHECK(first_of("layers.1.rms_att") == 24);
  CHECK(first_of("layers.0.wq") == 28);
  CHECK(first_of("layers.1.wq") == 44);
  CHECK(first_of("layers.0.wk") == 60);
  CHECK(first_of("layers.1.wk") == 68);
  CHECK(first_of("layers.0.wv") == 76);
  CHECK(first_of("layers.0.wo") == 92);
  CHECK(first_of("layers.0.rms_ffn") == 124);
  CHECK(first_of("layers.0.w1") == 132);
  CHECK(first_of("layers.0.w2") == 156);
  CHECK(first_of("layers.0.w3") == 180);
  CHECK(first_of("rms_final") == 204);
  CHECK(first_of("wcls") == 204 + 4 + 12);
  CHECK(model.checkpoint.tensors().size() == 2 * 9 + 3);
}

TEST_CASE("the spec has the header's sizes and run.c's constants", "[formats]") {
  const ModelSpec spec = opened_llama2c(small_file()).spec;
  CHECK(spec.hidden_size == 4);
  CHECK(spec.intermediate_size == 3);
  CHECK(spec.query_heads == 2);
  CHECK(spec.head_dim == 2);
  CHECK(spec.kv_heads == std::vector<std::int64_t>{1, 1});
  CHECK(spec.vocab_size == 5);
  CHECK(spec.max_positions == 6);
  CHECK(spec.rope.interleaved);
  CHECK(spec.rope.theta == 10000.0);
  CHECK(spec.norm_epsilon == 1e-5);
  CHECK(spec.lm_head == "wcls");
  CHECK(llama2c_obstacles(spec).empty());
  // A positive vocabulary: the embeddings are tied and there is no classifier.
  const ModelSpec tied =
      opened_llama2c(header_bytes({4, 3, 2, 2, 1, 5, 6}) + numbered_floats(kFloats - 20)).spec;
  CHECK(tied.lm_head.empty());
}

TEST_CASE("a llama2.c file of another size is not recognised", "[formats]") {
  const std::string bytes = small_file();
  CHECK_THAT(refusal_of_llama2c(bytes + "x"), is_bad_input(kLlama2cFile));
  CHECK_THAT(refusal_of_llama2c(bytes.substr(0, bytes.size() - 1)), is_bad_input(kLlama2cFile));
  for (std::size_t size = 0; size < 64; ++size) {
    CHECK_THAT(refusal_of_llama2c(bytes.substr(0, size)), is_bad_input(kLlama2cFile));
  }
  const TemporaryDirectory directory;
  put_file(directory / kLlama2cFile, bytes + "x");
  CHECK_THAT(refusal_of([&] { open_llama2c(directory / kLlama2cFile); }),
             is_bad_input(kLlama2cFile, "llama2.c", "disagree"));
}

TEST_CASE("impossible or overflowing llama2.c headers are not recognised", "[formats]") {
  constexpr std::int32_t kMost = 0x7fffffff;
  const std::string rest = numbered_floats(kFloats);
  for (const std::vector<std::int32_t>& numbers :
       {std::vector<std::int32_t>{0, 3, 2, 2, 1, -5, 6},
        {4, -3, 2, 2, 1, -5, 6},
        {4, 3, 2, 0, 1, -5, 6},
        {4, 3, 2, 2, 0, -5, 6},
        {4, 3, 2, 3, 1, -5, 6},
        {4, 3, 2, 4, 1, -5, 6},
        {4, 3, 2, 2, 3, -5, 6},
        {12, 3, 2, 3, 2, -5, 6},
        {4, 3, 2, 2, 1, 0, 6},
        {4, 3, 2, 2, 1, -5, 0},
        {kMost - 3, kMost, 1, 2, 2, kMost, kMost},  // each tensor fits but their sum overflows
        {4, 3, 2, 2, 1, kMost + std::numeric_limits<std::int32_t>::min() + 1, 6},
        {kMost - 1, kMost, kMost, 1, 1, kMost, kMost},
        {1 << 30, 1 << 30, 1 << 15, 1, 1, 1 << 30, 1 << 30},
        {4, 3, 2, 2, 1, std::numeric_limits<std::int32_t>::min(), 6}}) {
    CAPTURE(numbers);
    CHECK_THAT(refusal_of_llama2c(header_bytes(numbers) + rest), is_bad_input(kLlama2cFile));
  }
}

TEST_CASE("later versions of llama2.c's format are refused by name", "[formats]") {
  CHECK_THAT(refusal_of_llama2c(header_bytes({0x616b3432, 2, 4, 3, 2, 2, 1, 5, 6})),
             is_bad_input(kLlama2cFile, "version 2 of llama2.c's format"));
}

TEST_CASE("a written llama2.c file reads back", "[formats]") {
  const TemporaryDirectory directory;
  const std::string bytes = small_file();
  const Model model = opened_llama2c(bytes);
  put_file(directory / kLlama2cFile, bytes);
  const Checkpoint source = open_checkpoint(directory / kLlama2cFile);
  Llama2cWriter writer(directory / "copy.bin", model.spec, 6);
  for (const TensorInfo& tensor : source.tensors()) {
    writer.copy(tensor.name, source, tensor);
  }
  writer.finish();
  const std::string copy = bytes_of_file(directory / "copy.bin");
  REQUIRE(copy.size() == bytes.size());
  const std::size_t tables = 28 + (204 + 4) * 4;
  const std::size_t classifier = tables + 12 * 4;
  CHECK((copy.substr(0, tables) == bytes.substr(0, tables)));
  CHECK((copy.substr(classifier) == bytes.substr(classifier)));
  // Heads of 2 dimensions have one frequency, 1, so that the angle is the position.
  for (std::size_t position = 0; position < 6; ++position) {
    float cosine = 0;
    float sine = 0;
    std::memcpy(&cosine, copy.data() + tables + 4 * position, 4);
    std::memcpy(&sine, copy.data() + tables + 4 * (6 + position), 4);
    CHECK_THAT(cosine, Catch::Matchers::WithinAbs(std::cos(static_cast<double>(position)), 1e-6));
    CHECK_THAT(sine, Catch::Matchers::WithinAbs(std::sin(static_cast<double>(position)), 1e-6));
  }
}

TEST_CASE(
    "a copied llama2.c file has the exporter's bytes except for the last digits of its tables",
    "[formats]") {
  const TemporaryDirectory directory;
  const std::filesystem::path file = golden("llama2c") / "model.bin";
  const Model source = open_model(file);
  Llama2cWriter writer(directory / "copy.bin", source.spec, *source.spec.max_positions);
  for (const TensorInfo& tensor : source.checkpoint.tensors()) {
    writer.copy(tensor.name, source.checkpoint, tensor);
  }
  writer.finish();
  const std::string copy = bytes_of_file(directory / "copy.bin");
  const std::string original = bytes_of_file(file);
  REQUIRE(copy.size() == original.size());
  float largest = 0;
  for (std::size_t at = 28; at < copy.size(); at += 4) {
    float one = 0;
    float other = 0;
    std::memcpy(&one, copy.data() + at, 4);
    std::memcpy(&other, original.data() + at, 4);
    largest = std::max(largest, std::abs(one - other));
  }
  CHECK(largest < 1e-6F);
}

TEST_CASE("the llama2.c writer refuses what the format cannot hold", "[formats]") {
  const TemporaryDirectory directory;
  ModelSpec spec = opened_llama2c(small_file()).spec;
  const auto refused = [&](std::int64_t seq_len) {
    return refusal_of([&] { Llama2cWriter(directory / kLlama2cFile, spec, seq_len); });
  };
  CHECK_THAT(refused(0), is_wrong_usage("positions, 0 given"));
  CHECK_THAT(refused(1LL << 31), is_wrong_usage("2^31 - 1"));
  ModelSpec small = spec;
  spec.hidden_size = 0x7ffffffc;
  spec.intermediate_size = 0x7fffffff;
  spec.head_dim = spec.rope.rotary_dim = spec.hidden_size / spec.query_heads;
  CHECK_THAT(refused(6), is_wrong_usage(kLlama2cFile, "too many bytes"));
  spec = small;
  spec.rope.theta = 500000.0;
  CHECK_THAT(refused(6), is_wrong_usage("llama2.c", "rope_theta is 500000"));
  CHECK(tree_of(directory.path()).empty());
}

TEST_CASE("everything that run.c does not compute is an obstacle", "[formats]") {
  const ModelSpec good = opened_llama2c(small_file()).spec;
  const auto obstacles = [&](auto change) {
    ModelSpec spec = good;
    change(spec);
    return llama2c_obstacles(spec);
  };
  const auto is_one = [&](auto change) { return obstacles(change).size() == 1; };
  CHECK(is_one([](ModelSpec& spec) { spec.rope.theta = 5e5; }));
  CHECK(is_one([](ModelSpec& spec) { spec.rope.scaling.kind = RopeScaling::Kind::kLinear; }));
  CHECK(is_one([](ModelSpec& spec) { spec.positions = PositionKind::kAlibi; }));
  CHECK(is_one([](ModelSpec& spec) { spec.norm_epsilon = 1e-6; }));
  CHECK(is_one([](ModelSpec& spec) { spec.norm = NormKind::kLayerNorm; }));
  CHECK(is_one([](ModelSpec& spec) { spec.norm_weight_offset = 1.0; }));
  CHECK(is_one([](ModelSpec& spec) { spec.qk_norm = QkNorm::kSharedAcrossHeads; }));
  CHECK(is_one([](ModelSpec& spec) { spec.hidden_size = 6; }));
  CHECK(is_one([](ModelSpec& spec) { spec.kv_heads.back() = 2; }));
  CHECK(is_one([](ModelSpec& spec) { spec.layers.back().attention.v.bias = "b"; }));
  CHECK(is_one([](ModelSpec& spec) { spec.layers.back().gate = {}; }));
  CHECK(is_one([](ModelSpec& spec) { spec.layers.back().intermediate_size = 7; }));
  CHECK(is_one([](ModelSpec& spec) { spec.layers.front().attention = {}; }));
  CHECK(is_one([](ModelSpec& spec) { spec.activation = Activation::kGeluTanh; }));
  CHECK(is_one([](ModelSpec& spec) { spec.sliding_window = 8; }));
  CHECK(is_one([](ModelSpec& spec) { spec.embedding_scale = 2.0; }));
  CHECK(is_one([](ModelSpec& spec) { spec.parallel_residual = true; }));
  CHECK(is_one([](ModelSpec& spec) { spec.lm_head_bias = "b"; }));
  CHECK(is_one([](ModelSpec& spec) { spec.not_computable = "reason"; }));
  // Interleaving of RoPE's pairs is only a matter of order.
  CHECK(obstacles([](ModelSpec& spec) { spec.rope.interleaved = false; }).empty());
  CHECK(obstacles([](ModelSpec& spec) {
          spec.rope.theta = 5e5;
          spec.norm_epsilon = 1e-6;
        }).size() == 2);
}

TEST_CASE("inspect describes llama2.c models", "[formats]") {
  const TemporaryDirectory directory;
  put_file(directory / kLlama2cFile, small_file());
  const Json report =
      run_program({"inspect", (directory / kLlama2cFile).string(), "--json"}).json();
  CHECK(report["kv_heads"] == 1);
  CHECK(report["query_heads"] == 2);
  CHECK(report["layers"] == 2);
  CHECK(report["parameters"] == kFloats - 12);
}

}  // namespace
}  // namespace regroup
