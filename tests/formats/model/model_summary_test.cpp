// Summaries of headers and configs, compared with hand-computed values.
#include "formats/model/model_summary.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "formats/model/model_directory.h"
#include "formats/spec/alibi.h"
#include "tests/file_tree.h"
#include "tests/formats/model/summary_of.h"
#include "tests/gguf_builder.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

using Heads = std::vector<std::int64_t>;

TEST_CASE("the summary of a grouped Llama", "[formats]") {
  const TemporaryDirectory directory;
  const ModelSummary summary =
      summary_of(put_model(directory.path(), tiny_llama({.kv_heads = 4, .dtype = DType::kBF16})));
  CHECK(summary.family == "llama");
  CHECK(summary.layers == 2);
  CHECK(summary.hidden_size == 6);
  CHECK(summary.query_heads == 12);
  CHECK(summary.head_dim == 2);
  CHECK(summary.vocab_size == 5);
  CHECK(summary.kv_heads == Heads{4, 4});
  CHECK(summary.config_kv_heads == Heads{4, 4});
  CHECK(summary.attention == "gqa");
  CHECK(summary.positions == "rope");
  CHECK(summary.dtype == "BF16");
  // 5·6 twice; per layer 6 + 6, q and o 24·6 each, k and v 8·6 each, three of 4·6; 6 at the end.
  CHECK(summary.parameters == 2 * 30 + 2 * (12 + 2 * 144 + 2 * 48 + 3 * 24) + 6);
  CHECK(summary.bytes == 2 * summary.parameters);
  CHECK(summary.kv_bytes_per_token == 2 * 2 * 4 * 2 * 2);  // k and v · layers · heads · d · bytes
  CHECK(summary.files == 1);
  CHECK(summary.disagreements.empty());
}

TEST_CASE("the summary distinguishes mha and mqa and mixed attention", "[formats]") {
  const TemporaryDirectory directory;
  CHECK(summary_of(put_model(directory / "mha", tiny_gpt2())).attention == "mha");
  CHECK(summary_of(put_model(directory / "mqa", tiny_bloom({.kv_heads = 1}))).attention == "mqa");
  TinyModel mixed = tiny_llama({.kv_heads = 4});
  for (const std::string role : {"k", "v"}) {
    const std::string name = "model.layers.1.self_attn." + role + "_proj.weight";
    mixed.tensor(name) = varied_tensor(name, DType::kF32, {6, 6});
  }
  mixed.set("num_key_value_heads", "[4, 3]");
  const ModelSummary summary = summary_of(put_model(directory / "mixed", mixed));
  CHECK(summary.attention == "mixed");
  CHECK(summary.kv_heads == Heads{4, 3});
  CHECK(summary.kv_bytes_per_token == 2 * (4 + 3) * 2 * 4);
}

TEST_CASE("tensors of layers that the architecture does not have are reported", "[formats]") {
  const auto* name =
      GENERATE("model.layers.1.self_attn.q_norm.weight", "model.layers.0.self_attn.sinks",
               "model.layers.0.self_attn.o_proj.bias", "model.layers.1.mlp.up_proj.weight_scale",
               "model.layers.2.input_layernorm.weight");
  const TemporaryDirectory directory;
  TinyModel tiny = tiny_llama();
  tiny.tensors.push_back(varied_tensor(name, DType::kF32, {6}));
  const ModelSummary summary = summary_of(put_model(directory / "model", tiny));
  REQUIRE(summary.disagreements.size() == 1);
  CHECK(summary.disagreements[0] ==
        std::string("LlamaForCausalLM with these settings has no place for 1 of the layers' "
                    "tensors, which are left unused: ") +
            name);
}

TEST_CASE("saved buffers and other parts of a model are no news", "[formats]") {
  const TemporaryDirectory directory;
  TinyModel tiny = tiny_llama();
  for (const char* name :
       {"model.layers.1.self_attn.rotary_emb.inv_freq", "model.layers.0.self_attn.masked_bias",
        "model.layers_of_sight.0.weight", "model.mtp_layers.0.weight", "vision.layers.0.weight"}) {
    tiny.tensors.push_back(varied_tensor(name, DType::kF32, {6}));
  }
  CHECK(summary_of(put_model(directory / "model", tiny)).disagreements.empty());
}

TEST_CASE("the summary takes shapes over the config and reports the difference", "[formats]") {
  const TemporaryDirectory directory;
  const ModelSummary summary = summary_of(
      put_model(directory.path(), tiny_llama({.kv_heads = 4}).set("num_key_value_heads", "12")));
  CHECK(summary.kv_heads == Heads{4, 4});
  CHECK(summary.config_kv_heads == Heads{12, 12});
  REQUIRE(summary.disagreements.size() == 1);
  CHECK(summary.disagreements[0] == "every layer: the config says 12 kv heads, the tensors hold 4");
}

TEST_CASE("buffers count as bytes but not as parameters", "[formats]") {
  const ModelSummary with_masks = summary_of(golden("gpt2_base"));
  const ModelSummary without = summary_of(golden("gpt2"));
  CHECK(with_masks.parameters == without.parameters);
  CHECK(with_masks.bytes == without.bytes + 2 * 16 * 16 * 4);
}

TEST_CASE("the summary of an ALiBi model lists its slopes", "[formats]") {
  const ModelSummary summary = summary_of(golden("bloom_12"));
  CHECK(summary.positions == "alibi");
  CHECK(summary.alibi_slopes ==
        std::vector(static_cast<std::size_t>(summary.layers), alibi_slopes(12)));
}

TEST_CASE("one shard is not summarized as the whole model", "[formats]") {
  const ModelSummary shard =
      summary_of(golden("llama_sharded") / "model-00003-of-00008.safetensors");
  CHECK(shard.family == "unknown");
  CHECK(shard.kv_heads.empty());
  CHECK_FALSE(shard.query_heads);
  const ModelSummary index = summary_of(golden("llama_sharded") / "model.safetensors.index.json");
  CHECK(index.family == "llama");
  CHECK(index.files == 8);
}

TEST_CASE("a weight file without a config is described by its metadata", "[formats]") {
  const TemporaryDirectory directory;
  put_checkpoint(directory / "bare.safetensors", tiny_bloom({.kv_heads = 4}).tensors,
                 {{"format", "pt"},
                  {"regroup.architecture", "BloomForCausalLM"},
                  {"regroup.query_heads", "12"},
                  {"regroup.head_dim", "2"},
                  {"regroup.kv_heads", "4"},
                  {"regroup.alibi_slopes", "[0.5, 0.25, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]"}});
  const ModelSummary summary = summary_of(directory / "bare.safetensors");
  CHECK(summary.family == "bloom");
  CHECK(summary.layers == 2);
  CHECK(summary.query_heads == 12);
  CHECK(summary.kv_heads == Heads{4, 4});
  CHECK(summary.attention == "gqa");
  CHECK(summary.positions == "alibi");
  REQUIRE(summary.alibi_slopes.size() == 2);
  CHECK(summary.alibi_slopes[1] == std::vector<double>{0.5, 0.25, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
}

TEST_CASE("invalid metadata of a weight file without a config is ignored", "[formats]") {
  const TemporaryDirectory directory;
  for (const char* heads : {"", "many", "{}", "[", "[\"a\"]", "-1e9", "[[1]]", "null", "0", "-4",
                            "[4]", "[0, 4]", "18446744073709551615"}) {
    CAPTURE(heads);
    put_checkpoint(directory / "bare.safetensors", tiny_llama().tensors,
                   {{"regroup.kv_heads", heads},
                    {"regroup.query_heads", heads},
                    {"regroup.head_dim", "99999999999999999999"},
                    {"regroup.alibi_slopes", heads}});
    const ModelSummary summary = summary_of(directory / "bare.safetensors");
    CHECK(summary.layers == 2);
    CHECK(summary.kv_heads.empty());
    CHECK_FALSE(summary.head_dim);
    CHECK(summary.attention.empty());
    CHECK(summary.alibi_slopes.empty());
  }
}

TEST_CASE("a summary has the record unchanged", "[formats]") {
  const std::string checksums = R"({"a.weight":"0123456789abcdef","b.weight":"fedcba9876543210"})";
  const TemporaryDirectory directory;
  SECTION("of a config, which also records training, before that of the metadata") {
    const Json record = Json::parse(
        R"({"kv_heads": 2, "layers": [{"layer": 0}], "held_out": {"tokens": 5}, "checksums": )" +
        checksums + R"(, "uptrain": {"steps": 3}, "odd": "?"})");
    TinyModel model = tiny_llama();
    model.set("regroup", record.dump());
    CHECK(summary_of(put_model(directory.path(), model)).record.facts() == record);
  }
  SECTION("of a GGUF file, whose config is no part of it") {
    const GgufPieces file{.entries = {gguf_entry("general.architecture", 8, gguf_string("unknown")),
                                      gguf_entry("regroup.config", 8, gguf_string("{}")),
                                      gguf_entry("regroup.pool", 8, gguf_string("mean")),
                                      gguf_entry("regroup.checksums", 8, gguf_string(checksums))}};
    put_file(directory / "m.gguf", file.text());
    const Json facts = summary_of(directory / "m.gguf").record.facts();
    CHECK(facts == Json{{"checksums", Json::parse(checksums)}, {"pool", "mean"}});
  }
}

}  // namespace
}  // namespace regroup
