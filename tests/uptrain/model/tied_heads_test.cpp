// Models whose config and tensors disagree on whether the output projection is the embedding: what
// transformers computes, by the logits of fixtures that say the same without a contradiction.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"
#include "tests/uptrain/golden_case.h"

namespace regroup {
namespace {

constexpr double kTiedTolerance = 1e-4;
constexpr double kTiedClearlyWrong = 1e-2;

// The logits of a changed fixture for the fixture's tokens, and what it says about itself.
struct Changed {
  Changed(const TinyModel& model, const GoldenCase& golden)
      : source(open_computable_model(put_model(directory / "model", model))),
        logits(logits_of(source.spec,
                         load_parameters(source.spec, source.checkpoint, at::kFloat, at::kCPU),
                         golden.tokens)) {}

  TemporaryDirectory directory;
  Model source;
  at::Tensor logits;
};

BuiltTensor copy_as(TinyModel& model, const std::string& name, const std::string& other) {
  BuiltTensor copy = model.tensor(name);
  copy.name = other;
  return copy;
}

// Reverses the rows of the tensor.
void reverse(BuiltTensor& tensor) {
  const std::size_t row = tensor.bytes.size() / static_cast<std::size_t>(tensor.shape[0]);
  std::string reversed;
  for (std::size_t at = tensor.bytes.size(); at > 0; at -= row) {
    reversed += tensor.bytes.substr(at - row, row);
  }
  tensor.bytes = reversed;
}

}  // namespace

TEST_CASE("a stored output projection counts, although the config ties it", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto* name = GENERATE("llama", "llama_bf16", "gpt_neox", "gptj", "codegen", "phi", "phi3",
                              "stablelm", "persimmon", "internlm2", "qwen", "chatglm2", "olmo",
                              "granite", "mixtral", "minicpm", "baichuan2_7b");
  CAPTURE(name);
  const GoldenCase golden = load_golden_case(name);
  const Changed tied(golden_model(name).set("tie_word_embeddings", "true"), golden);
  CHECK(largest_difference(tied.logits, golden.logits) <= kTiedTolerance);
  REQUIRE(tied.source.spec.contradictions.size() == 1);
  CHECK(tied.source.spec.contradictions[0].find(golden.source.spec.lm_head) != std::string::npos);
}

TEST_CASE("one of the tied names is enough", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto* name =
      GENERATE("llama_mha", "gpt2", "bloom", "opt", "mpt", "falcon_rw", "gpt_bigcode", "gpt_neo",
               "biogpt", "xglm", "gemma", "cohere", "smollm3", "t5", "bart", "marian", "m2m_100",
               "bert", "roberta", "electra", "distilbert", "modernbert", "mpnet", "nomic_bert");
  CAPTURE(name);
  const GoldenCase golden = load_golden_case(name);
  const ModelSpec& spec = golden.source.spec;
  std::vector<std::string> others = spec.tied_lookups;
  others.push_back(spec.tied_head);
  for (const std::string& other : others) {
    CAPTURE(other);
    TinyModel model = golden_model(name);
    model.tensor(spec.token_embedding).name = other;
    const Changed renamed(model, golden);
    CHECK(largest_difference(renamed.logits, golden.logits) <= kTiedTolerance);
    CHECK(renamed.source.spec.contradictions.empty());
  }
}

TEST_CASE("of two biases of the output projection, that of the layer itself counts", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto [name, output, other] = GENERATE(table<const char*, std::string, std::string>(
      {{"bert", "cls.predictions.decoder", "cls.predictions.bias"},
       {"roberta", "lm_head.decoder", "lm_head.bias"},
       {"camembert", "lm_head.decoder", "lm_head.bias"},
       {"mpnet", "lm_head.decoder", "lm_head.bias"},
       {"nomic_bert", "cls.predictions.decoder", "cls.predictions.bias"}}));
  CAPTURE(name);
  const GoldenCase golden = load_golden_case(name);
  const at::Tensor bias =
      load_parameters(golden.source.spec, golden.source.checkpoint, at::kFloat, at::kCPU)
          .at(golden.source.spec.lm_head_bias);
  TinyModel model = golden_model(name);
  std::erase_if(model.tensors, [&, &own = output](const BuiltTensor& tensor) {
    return tensor.name == own + ".bias" && golden.source.spec.lm_head_bias != tensor.name;
  });
  if (golden.source.spec.lm_head_bias == other) {
    model.tensors.push_back(copy_as(model, other, output + ".bias"));
    reverse(model.tensor(other));
  }
  CHECK(largest_difference(Changed(model, golden).logits, golden.logits) <= kTiedTolerance);
  model.tensors.push_back(copy_as(model, golden.source.spec.token_embedding, output + ".weight"));
  model.set("tie_word_embeddings", "false");
  CHECK(largest_difference(Changed(model, golden).logits, golden.logits) <= kTiedTolerance);
  model.remove(output + ".bias");
  const Changed zeros(model, golden);
  CHECK(largest_difference(zeros.logits, golden.logits - bias) <= kTiedTolerance);
  CHECK(bias.abs().max().item<double>() >= kTiedClearlyWrong);
  CHECK(zeros.source.spec.contradictions.size() == 1);
}

TEST_CASE("an encoder with an embedding of its own is not computed", "[uptrain]") {
  for (const char* name : {"t5_small", "bart_copies"}) {
    CAPTURE(name);
    const TemporaryDirectory directory;
    TinyModel model = golden_model(name);
    const ModelSpec spec = spec_of(model);
    BuiltTensor& lookup = model.tensor(spec.tied_lookups[0]);
    reverse(lookup);
    const Model source = open_model(put_model(directory / "model", model));
    CHECK(source.spec.not_computable.find(lookup.name) != std::string::npos);
    CHECK(source.spec.contradictions.size() == 1);
  }
}

}  // namespace regroup
