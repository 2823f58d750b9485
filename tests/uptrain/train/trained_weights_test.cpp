// The weights that `--train` changes and keeps.
#include "uptrain/train/trained_weights.h"

#include <algorithm>
#include <set>

#include <ATen/TensorOperators.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/checkpoint_builder.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/token_text.h"

namespace regroup {
namespace {

// The tensors whose bytes change in a run of a few steps.
std::set<std::string> changed_by(UptrainSettings settings) {
  run_to_end(settings);
  const Checkpoint before = open_checkpoint(settings.model);
  const Checkpoint after = open_checkpoint(settings.output);
  std::set<std::string> changed;
  for (const TensorInfo& tensor : before.tensors()) {
    if (bytes_of(after, tensor.name) != bytes_of(before, tensor.name)) {
      changed.insert(tensor.name);
    }
  }
  return changed;
}

}  // namespace

TEST_CASE("only the selected weights change", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 3);
  settings.trained = GENERATE(TrainedWeights::kKeysAndValues, TrainedWeights::kAttention);
  settings.precision = GENERATE(Precision::kFp32, Precision::kBf16);
  const bool all_of_attention = settings.trained == TrainedWeights::kAttention;
  std::set<std::string> expected;
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    expected.insert({layer + "self_attn.k_proj.weight", layer + "self_attn.v_proj.weight"});
    if (all_of_attention) {
      expected.insert({layer + "self_attn.q_proj.weight", layer + "self_attn.o_proj.weight"});
    }
  }
  CHECK(changed_by(settings) == expected);
}

TEST_CASE("queries fused with keys and values are unchanged", "[uptrain]") {
  const auto* name = GENERATE("gpt2", "bloom_12");  // q, k, v in columns, or in rows of each head
  CAPTURE(name);
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), name, 3);
  settings.trained = TrainedWeights::kKeysAndValues;
  settings.optimizer.weight_decay = 0.5;
  settings.optimizer.kind = GENERATE(OptimizerKind::kAdamW, OptimizerKind::kAdafactor);
  if (GENERATE(false, true)) {
    settings.precision = Precision::kBf16;
    settings.memory = MemoryMode::kCompact;
  }
  run_to_end(settings);
  const Model before = open_computable_model(settings.model);
  const Model after = open_computable_model(settings.output);
  const ModelSpec& spec = before.spec;
  const auto difference = [&](const std::string& tensor, bool input_major) {
    const auto load = [&](const Model& model) {
      return load_parameters(spec, model.checkpoint, at::kFloat, at::kCPU).at(tensor);
    };
    at::Tensor features = (load(after) - load(before)).abs();
    features = input_major ? features.t() : features;
    return features.dim() == 2 ? features.amax(1) : features;  // per feature
  };
  for (std::size_t layer = 0; layer < spec.layers.size(); ++layer) {
    const AttentionLayout& layout = spec.layers[layer].attention;
    const HeadFeatures heads =
        head_features(layout.packing, spec.query_heads, spec.kv_heads[layer], spec.head_dim);
    const at::Tensor weight = difference(layout.q.weight, layout.q.input_major);
    const at::Tensor bias = difference(layout.q.bias, false);
    const auto largest = [&](const at::Tensor& values, std::int64_t first) {
      return values.narrow(0, first, spec.head_dim).max().item<double>();
    };
    for (const std::int64_t q : heads.q) {
      CHECK(largest(weight, q) == 0.0);
      CHECK(largest(bias, q) == 0.0);
    }
    for (std::size_t group = 0; group < heads.k.size(); ++group) {
      CHECK(largest(weight, heads.k[group]) > 0.0);
      CHECK(largest(weight, heads.v[group]) > 0.0);
      CHECK(largest(bias, heads.v[group]) > 0.0);
    }
  }
}

TEST_CASE("keys and values of all three attentions of an encoder-decoder are trained",
          "[uptrain]") {
  const ModelSpec spec = load_golden_case("t5").source.spec;
  const auto names = trained_tensors(spec, TrainedWeights::kKeysAndValues);
  // 2 encoder layers, and 3 decoder layers with two attentions each.
  CHECK(names.size() == 2 * 2 + 3 * 2 * 2);
  const auto attention = trained_tensors(spec, TrainedWeights::kAttention);
  CHECK(attention.size() == 2 * names.size() + 2);  // and two relative biases
  CHECK(std::count(attention.begin(), attention.end(),
                   "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight") == 1);
}

TEST_CASE("buffers of transformers are not trained", "[uptrain]") {
  const auto trained = [](const char* fixture, const char* name) {
    const auto names = trained_tensors(load_golden_case(fixture).source.spec, TrainedWeights::kAll);
    return std::count(names.begin(), names.end(), name);
  };
  CHECK(trained("bart", "final_logits_bias") == 0);
  CHECK(trained("bart", "model.encoder.embed_positions.weight") == 1);
  CHECK(trained("pegasus", "model.encoder.embed_positions.weight") == 0);
  CHECK(trained("pegasus", "model.decoder.embed_positions.weight") == 0);
}

TEST_CASE("key norms are trained with the keys", "[uptrain]") {
  const auto names =
      trained_tensors(load_golden_case("qwen3").source.spec, TrainedWeights::kKeysAndValues);
  CHECK(std::count(names.begin(), names.end(), "model.layers.0.self_attn.k_norm.weight") == 1);
  CHECK(std::count(names.begin(), names.end(), "model.layers.0.self_attn.q_norm.weight") == 0);
}

TEST_CASE("trained weights are parsed from their names and others refused", "[uptrain]") {
  CHECK(parse_trained_weights("kv") == TrainedWeights::kKeysAndValues);
  CHECK(parse_trained_weights("attention") == TrainedWeights::kAttention);
  CHECK(parse_trained_weights("all") == TrainedWeights::kAll);
  CHECK_THAT(refusal_of([] { parse_trained_weights("mlp"); }), is_wrong_usage("mlp", "kv"));
}

}  // namespace regroup
