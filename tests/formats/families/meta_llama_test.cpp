// Meta's format: the spec that params.json and the tensors describe.
#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include "formats/families/family.h"
#include "formats/model/model.h"
#include "formats/model/model_summary.h"
#include "tests/checkpoint_builder.h"
#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;
using Values = std::vector<double>;

// One layer: D 4, 2 heads of 2, 1 kv head, MLP of 6, vocabulary 5.
std::vector<BuiltTensor> small_tensors() {
  std::vector<BuiltTensor> tensors;
  for (const auto& [name, shape] :
       std::vector<std::pair<const char*, Shape>>{{"tok_embeddings", {5, 4}},
                                                  {"layers.0.attention_norm", {4}},
                                                  {"layers.0.attention.wq", {4, 4}},
                                                  {"layers.0.attention.wk", {2, 4}},
                                                  {"layers.0.attention.wv", {2, 4}},
                                                  {"layers.0.attention.wo", {4, 4}},
                                                  {"layers.0.ffn_norm", {4}},
                                                  {"layers.0.feed_forward.w1", {6, 4}},
                                                  {"layers.0.feed_forward.w2", {4, 6}},
                                                  {"layers.0.feed_forward.w3", {6, 4}},
                                                  {"norm", {4}},
                                                  {"output", {5, 4}}}) {
    tensors.push_back(varied_tensor(std::string(name) + ".weight", DType::kBF16, shape));
  }
  return tensors;
}

constexpr std::string_view kParams =
    R"({"dim": 4, "n_layers": 1, "n_heads": 2, "n_kv_heads": 1, "norm_eps": 1e-6,
        "multiple_of": 6, "ffn_dim_multiplier": 0.5, "vocab_size": -1})";

ModelSpec described(const Json& params, std::vector<BuiltTensor> tensors = small_tensors()) {
  const TemporaryDirectory directory;
  put_checkpoint(directory / "consolidated.safetensors", tensors);
  put_file(directory / "params.json", params.dump());
  const Model model = open_model(directory.path());
  check_all_shapes(model.spec, model.checkpoint);
  CHECK(model.convention == Convention::kMeta);
  return model.spec;
}

Json params_with(const std::string& key, const Json& value) {
  Json params = Json::parse(kParams);
  params[key] = value;
  return params;
}

TEST_CASE("params.json and tensor shapes describe the model", "[formats]") {
  const ModelSpec spec = described(Json::parse(kParams));
  CHECK(spec.family == "llama");
  CHECK(spec.hidden_size == 4);
  CHECK(spec.head_dim == 2);
  CHECK(spec.kv_heads == std::vector<std::int64_t>{1});
  CHECK(spec.intermediate_size == 6);
  CHECK(spec.vocab_size == 5);
  CHECK(spec.norm_epsilon == 1e-6);
  CHECK(spec.rope.interleaved);
  CHECK(spec.rope.theta == 10000.0);
  CHECK(spec.rope.scaling.kind == RopeScaling::Kind::kNone);
  CHECK(spec.lm_head == "output.weight");
  CHECK(spec.layers.front().gate.weight == "layers.0.feed_forward.w1.weight");
  CHECK(spec.layers.front().up.weight == "layers.0.feed_forward.w3.weight");
  CHECK(spec.not_computable.empty());
  CHECK(described(params_with("rope_theta", 500000.0)).rope.theta == 500000.0);
  CHECK(described(params_with("sliding_window", 3)).sliding_window == 3);
}

TEST_CASE("n_kv_heads defaults to the query heads", "[formats]") {
  Json params = Json::parse(kParams);
  params.erase("n_kv_heads");
  std::vector<BuiltTensor> tensors = small_tensors();
  tensors[3] = varied_tensor("layers.0.attention.wk.weight", DType::kBF16, {4, 4});
  tensors[4] = varied_tensor("layers.0.attention.wv.weight", DType::kBF16, {4, 4});
  CHECK(described(params, tensors).kv_heads == std::vector<std::int64_t>{2});
}

TEST_CASE("the embeddings are tied if there is no output matrix", "[formats]") {
  std::vector<BuiltTensor> tensors = small_tensors();
  tensors.pop_back();
  CHECK(described(Json::parse(kParams), tensors).lm_head.empty());
}

TEST_CASE("Llama 3.1's RoPE scaling needs a known factor", "[formats]") {
  Json params = params_with("use_scaled_rope", true);
  CHECK(described(params).not_computable.find("rope_scaling_factor") != std::string::npos);
  params["rope_scaling_factor"] = 32;
  const ModelSpec spec = described(params);
  CHECK(spec.not_computable.empty());
  CHECK(spec.rope.scaling.kind == RopeScaling::Kind::kLlama3);
  CHECK(spec.rope.scaling.factor == 32.0);
  CHECK(spec.rope.scaling.low_frequency_factor == 1.0);
  CHECK(spec.rope.scaling.high_frequency_factor == 4.0);
  CHECK(spec.rope.scaling.original_positions == 8192.0);
  CHECK(described(params_with("use_scaled_rope", false)).rope.scaling.kind ==
        RopeScaling::Kind::kNone);
}

// The scaling that a release of these sizes has.
RopeScaling scaling_of_release(std::int64_t dim, std::int64_t layers) {
  std::vector<TensorInfo> tensors;
  tensors.push_back({.name = "tok_embeddings.weight", .shape = {8, dim}});
  for (std::int64_t i = 0; i < layers; ++i) {
    tensors.push_back(
        {.name = fmt::format("layers.{}.feed_forward.w1.weight", i), .shape = {6, dim}});
  }
  const Checkpoint checkpoint(std::vector<File>{}, tensors);
  const Json params{
      {"dim", dim}, {"n_layers", layers}, {"n_heads", dim / 128}, {"use_scaled_rope", true}};
  return describe_meta(params, checkpoint, "params.json").rope.scaling;
}

TEST_CASE("the factor of Llama 3.1's RoPE scaling follows from the release's sizes", "[formats]") {
  CHECK(scaling_of_release(2048, 16).factor == 32.0);  // 3.2 1B
  CHECK(scaling_of_release(4096, 32).factor == 8.0);   // 3.1 8B
  CHECK(scaling_of_release(4096, 33).factor == 1.0);   // no release: not computed
}

TEST_CASE("tensors that determine sizes must be matrices and theta positive", "[formats]") {
  const auto refused = [](std::size_t number, const char* name, const Shape& shape) {
    std::vector<BuiltTensor> tensors = small_tensors();
    tensors[number] = varied_tensor(name, DType::kBF16, shape);
    Json params = Json::parse(kParams);
    params.erase("vocab_size");
    return refusal_of([&] { described(params, tensors); });
  };
  CHECK_THAT(refused(0, "tok_embeddings.weight", {20}),
             is_bad_input("consolidated.safetensors", "tok_embeddings.weight is [20]", "a matrix"));
  CHECK_THAT(refused(7, "layers.0.feed_forward.w1.weight", {0, 4}),
             is_bad_input("layers.0.feed_forward.w1.weight is [0, 4]", "a matrix"));
  for (const double theta : {0.0, -1.0}) {
    CHECK_THAT(refusal_of([&] { described(params_with("rope_theta", theta)); }),
               is_bad_input("params.json", "theta"));
  }
}

TEST_CASE("unknown and impossible params.json members are refused or not computed", "[formats]") {
  const auto refused = [](const Json& params) { return refusal_of([&] { described(params); }); };
  CHECK(described(params_with("use_moe", true)).not_computable == "params.json key use_moe");
  Json several = params_with("use_moe", true);
  several["use_other"] = true;
  CHECK(described(several).not_computable == "params.json key use_moe");
  CHECK(described(params_with("multiple_of", nullptr)).intermediate_size == 6);
  CHECK(described(params_with("\x1b[2J", 1)).not_computable == R"(params.json key \x1b[2J)");
  CHECK_THAT(refused(params_with("ffn_dim_multiplier", 0.0)),
             is_bad_input("params.json", "ffn_dim_multiplier is 0"));
  CHECK_THAT(refused(params_with("vocab_size", -2)), is_bad_input("params.json", "vocab_size"));
  const ModelSpec plain = described(params_with("quantization_args", Json::object()));
  CHECK(plain.not_computable.empty());
  REQUIRE(plain.contradictions.size() == 1);
  CHECK(plain.contradictions[0].find("params.json: quantization_args: ignored") !=
        std::string::npos);
  CHECK_THAT(refused(params_with("multiple_of", 4)),
             is_bad_input("params.json", "8 rows", "w1.weight has 6"));
  CHECK_THAT(refused(params_with("hidden_dim", 7)), is_bad_input("params.json", "7 rows"));
  CHECK_THAT(refused(params_with("ffn_dim_multiplier", 1e300)),
             is_bad_input("params.json", "ffn_dim_multiplier"));
  CHECK_THAT(refused(params_with("vocab_size", "5")), is_bad_input("params.json", "vocab_size"));
  CHECK_THAT(refused(params_with("vocab_size", 0)), is_bad_input("params.json", "vocab_size"));
  CHECK_THAT(refused(params_with("vocab_size", 6)), is_bad_input("tok_embeddings.weight"));
  CHECK_THAT(refused(params_with("n_layers", 1 << 30)), is_bad_input("params.json", "n_layers"));
  CHECK_THAT(refused(params_with("n_heads", 3)), is_bad_input("params.json"));
  CHECK_THAT(refused(params_with("n_heads", 4)), is_bad_input("params.json"));  // d 1 for RoPE
  Json params = Json::parse(kParams);
  params.erase("dim");
  CHECK_THAT(refused(params), is_bad_input("params.json", "dim"));
}

TEST_CASE("two ranks split by torch equal the golden llama with interleaved RoPE pairs",
          "[formats]") {
  const Model meta = open_model(golden("llama_meta"));
  const Model twin = open_model(golden("llama"));
  check_all_shapes(meta.spec, meta.checkpoint);
  CHECK(meta.checkpoint.files().size() == 2);
  const auto equal = [&](const std::string& name, const std::string& twin_name) {
    CAPTURE(name);
    CHECK((bytes_of(meta.checkpoint, name) == bytes_of(twin.checkpoint, twin_name)));
  };
  equal(meta.spec.token_embedding, twin.spec.token_embedding);
  equal(meta.spec.lm_head, twin.spec.lm_head);
  equal(meta.spec.final_norm.weight, twin.spec.final_norm.weight);
  for (std::size_t i = 0; i < twin.spec.layers.size(); ++i) {
    const LayerTensors& one = meta.spec.layers[i];
    const LayerTensors& other = twin.spec.layers[i];
    equal(one.attention.v.weight, other.attention.v.weight);
    equal(one.attention.o.weight, other.attention.o.weight);
    equal(one.gate.weight, other.gate.weight);
    equal(one.up.weight, other.up.weight);
    equal(one.down.weight, other.down.weight);
    equal(one.attention_norm.weight, other.attention_norm.weight);
    equal(one.mlp_norm.weight, other.mlp_norm.weight);
  }
  // Row 1 of Meta's k is row d/2 of transformers'.
  const Values pairs = values_of(meta.checkpoint, "layers.0.attention.wk.weight");
  const Values halves = values_of(twin.checkpoint, "model.layers.0.self_attn.k_proj.weight");
  const auto row = [&](const Values& values, std::int64_t number) {
    const auto begin = values.begin() + number * twin.spec.hidden_size;
    return Values(begin, begin + twin.spec.hidden_size);
  };
  CHECK(row(pairs, 0) == row(halves, 0));
  CHECK(row(pairs, 1) == row(halves, twin.spec.head_dim / 2));
}

TEST_CASE("inspect describes Meta's models", "[formats]") {
  const Json report =
      run_program({"inspect", golden("llama_meta").string(), "--json", "--tensors"}).json();
  CHECK(report["kv_heads"] == 4);
  CHECK(report["attention"] == "gqa");
  CHECK(report["positions"] == "rope");
  CHECK(report["tensors"][0]["pieces"][1]["file"] == "consolidated.01.pth");
}

TEST_CASE("Meta's companions are the files that are not weights or checksums", "[formats]") {
  const TemporaryDirectory directory;
  put_checkpoint(directory / "consolidated.safetensors", small_tensors());
  put_file(directory / "params.json", kParams);
  put_file(directory / "tokenizer.model", "t");
  put_file(directory / "checklist.chk", "sums");
  CHECK(open_model(directory.path()).companions == std::vector<fs::path>{"tokenizer.model"});
}

}  // namespace
}  // namespace regroup
