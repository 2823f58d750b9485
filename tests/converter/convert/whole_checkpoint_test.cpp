// Every tensor that the config calls for is checked before anything is converted.
#include <algorithm>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "converter/convert/conversion_plan.h"
#include "formats/families/family.h"
#include "formats/model/model.h"
#include "tests/file_tree.h"
#include "tests/formats/model/summary_of.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

// Checks that a conversion is refused and inspect reports the tensor, in the same words.
void check_refused(const std::filesystem::path& model, const std::string& fault) {
  CAPTURE(fault);
  CHECK_THAT(refusal_of([&] { plan_conversion(open_model(model), {.target = "same"}); }),
             is_bad_input("do not fit the config", fault));
  const std::vector<std::string> told = summary_of(model).disagreements;
  CHECK(std::any_of(told.begin(), told.end(), [&](const std::string& line) {
    return line.find(fault) != std::string::npos;
  }));
}

}  // namespace

TEST_CASE("a missing, empty or misshapen tensor is refused and reported", "[converter]") {
  const auto* name = GENERATE("llama", "gpt2_base", "opt_350m", "olmoe", "mixtral_stacked", "bert",
                              "electra_small", "t5", "bart", "gemma3", "modernbert", "llava");
  CAPTURE(name);
  const TemporaryDirectory directory;
  const ModelSpec spec = open_model(golden(name)).spec;
  const auto attention = expected_attention_tensors(spec);
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    if (std::any_of(attention.begin(), attention.end(),
                    [&](const ExpectedTensor& each) { return each.name == tensor.name; })) {
      continue;
    }
    TinyModel model = golden_model(name);
    BuiltTensor& stored = model.tensor(tensor.name);
    stored.shape.front() = 0;
    stored.bytes.clear();
    check_refused(put_model(directory / "empty", model), tensor.name + " is [0");
    model = golden_model(name);
    model.tensor(tensor.name).shape.push_back(1);
    check_refused(put_model(directory / "wide", model), tensor.name + " is [");
    if (tensor.name != spec.token_embedding && spec.whole_model.empty()) {
      model.remove(tensor.name);
      const auto lost = put_model(directory / "lost", model);
      // A base model lacks its head, and BART's buffer counts as zeros where it is absent.
      if (open_model(lost).missing_head.empty() && tensor.name != "final_logits_bias") {
        // Where a tensor's name tells one of two layouts, those of the other one are missing.
        const bool tells = std::string_view(name) == "mixtral_stacked";
        check_refused(lost, (tells ? "" : tensor.name) + " is missing");
      }
    }
  }
}

TEST_CASE("tensors that the config does not mention are no fault", "[converter]") {
  const TemporaryDirectory directory;
  TinyModel model = tiny_llama();
  model.tensors.push_back(
      varied_tensor("model.layers.0.self_attn.rotary_emb.inv_freq", DType::kF32, {1}));
  model.tensors.push_back(varied_tensor("value_head.weight", DType::kF32, {0}));
  const auto source = put_model(directory / "model", model);
  plan_conversion(open_model(source), {.kv_heads = {4}});
  CHECK(summary_of(source).disagreements.empty());
}

}  // namespace regroup
