// Names of tensors that wrappers of training have changed.
#include <filesystem>
#include <functional>

#include <catch2/catch_test_macros.hpp>

#include "formats/base/file.h"
#include "formats/families/family.h"
#include "formats/model/model.h"
#include "formats/model/model_directory.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

TinyModel tiny_llama_named(const std::function<std::string(const std::string&)>& rename) {
  TinyModel model = tiny_llama();
  for (BuiltTensor& tensor : model.tensors) {
    tensor.name = rename(tensor.name);
  }
  return model;
}

std::string with_replaced(std::string name, std::string_view before, std::string_view after) {
  const std::size_t at = name.find(before);
  return at == std::string::npos ? name : name.replace(at, before.size(), after);
}

TEST_CASE("names of compiled and distributed models are those of the model", "[formats]") {
  const TemporaryDirectory directory;
  const auto plain = spec_of(tiny_llama());
  for (const std::string prefix :
       {"_orig_mod.", "module.", "module._orig_mod.", "_orig_mod.module.", "_fsdp_wrapped_module.",
        "module._fsdp_wrapped_module._orig_mod.", "_forward_module.", "model.", "module.model.",
        "base_model.model.", "model.base_model.model."}) {
    CAPTURE(prefix);
    const auto path = directory / prefix;
    put_model(path, tiny_llama_named([&](const std::string& name) { return prefix + name; }));
    const Model model = open_model(path);
    CHECK(model.spec.layers[1].attention.k.weight == plain.layers[1].attention.k.weight);
    CHECK(model.checkpoint.find("model.embed_tokens.weight") != nullptr);
  }
}

TEST_CASE("wrappers of single blocks are removed as well", "[formats]") {
  const TemporaryDirectory directory;
  put_model(directory / "model", tiny_llama_named([](const std::string& name) {
              const std::string compiled = with_replaced(name, "layers.0.", "layers.0._orig_mod.");
              return with_replaced(compiled, "layers.1.",
                                   "layers.1._fsdp_wrapped_module._checkpoint_wrapped_module.");
            }));
  CHECK(open_checkpoint(directory / "model").find("model.layers.1.mlp.up_proj.weight") != nullptr);
  CHECK(open_checkpoint(directory / "model").find("model.layers.0.mlp.up_proj.weight") != nullptr);
}

TEST_CASE("only whole parts of names and a prefix of all tensors are removed", "[formats]") {
  const TemporaryDirectory directory;
  TinyModel model = tiny_llama_named([](const std::string& name) { return "module." + name; });
  model.tensors.push_back(varied_tensor("my_orig_mod.weight", DType::kF32, {2}));
  put_model(directory / "model", model);
  const Checkpoint checkpoint = open_checkpoint(directory / "model");
  CHECK(checkpoint.find("my_orig_mod.weight") != nullptr);
  CHECK(checkpoint.find("module.model.embed_tokens.weight") != nullptr);
}

TEST_CASE("weights of a loss or of a value head beside a wrapped model keep their names",
          "[formats]") {
  const TemporaryDirectory directory;
  for (const auto& [prefix, other] :
       {std::pair{"model.", "criterion.weight"}, std::pair{"model.", "ema_model.model.norm.weight"},
        std::pair{"module.model.", "module.criterion.weight"},
        std::pair{"pretrained_model.", "v_head.summary.weight"}}) {
    CAPTURE(prefix, other);
    TinyModel model =
        tiny_llama_named([first = prefix](const std::string& name) { return first + name; });
    model.tensors.push_back(varied_tensor(other, DType::kF32, {6}));
    const Model opened = open_model(put_model(directory / other, model));
    check_all_shapes(opened.spec, opened.checkpoint);
    CHECK(opened.missing_head.empty());
    CHECK(opened.checkpoint.find(with_replaced(other, "module.", "")) != nullptr);
  }
}

TEST_CASE("a model that another class holds under a name of its own keeps its names", "[formats]") {
  const auto held = [](TinyModel model, const std::string& holder, std::string_view removed) {
    for (BuiltTensor& tensor : model.tensors) {
      tensor.name = holder + with_replaced(tensor.name, removed, "");
    }
    model.tensors.push_back(varied_tensor("classifier.weight", DType::kF32, {2, 6}));
    return model;
  };
  TinyModel base = tiny_llama();
  base.remove("lm_head.weight");
  const TemporaryDirectory directory;
  std::size_t number = 0;
  for (const auto& [model, layer] :
       {std::pair{held(base, "transformer.", "model."), "transformer.layers.1.self_attn.k_proj"},
        std::pair{held(tiny_llama(), "student.", ""), "student.model.layers.1.self_attn.k_proj"},
        std::pair{held(golden_model("bert"), "model.", ""),
                  "model.bert.encoder.layer.1.attention.self.key"},
        std::pair{held(golden_model("t5"), "transformer.", ""),
                  "transformer.decoder.block.1.layer.0.SelfAttention.k"}}) {
    CAPTURE(layer);
    const Model opened = open_model(put_model(directory / std::to_string(number++), model));
    check_all_shapes(opened.spec, opened.checkpoint);
    CHECK(opened.spec.layers[1].attention.k.weight == std::string(layer) + ".weight");
  }
}

TEST_CASE("of two models side by side neither is chosen, and both are named", "[formats]") {
  const TemporaryDirectory directory;
  TinyModel both = tiny_llama_named([](const std::string& name) { return "student." + name; });
  for (const BuiltTensor& tensor : tiny_llama().tensors) {
    both.tensors.push_back(tensor);
    both.tensors.back().name.insert(0, "teacher.");
  }
  const Model opened = open_model(put_model(directory / "both", both));
  const auto named = is_bad_input("model.layers.0.self_attn.q_proj.weight is missing",
                                  "; names of layers begin with student.model.layers.; "
                                  "teacher.model.layers.");
  CHECK_THAT(refusal_of([&] { check_tensors(opened.spec, opened.checkpoint); }), named);
  CHECK_THAT(refusal_of([&] {
               static_cast<void>(opened.checkpoint.at("model.layers.0.self_attn.q_proj.weight"));
             }),
             named);
}

TEST_CASE("a model without a head keeps its names, which all begin as Lightning's do",
          "[formats]") {
  const TemporaryDirectory directory;
  TinyModel model = tiny_llama();
  model.remove("lm_head.weight");
  put_model(directory / "model", model);
  CHECK(open_checkpoint(directory / "model").find("model.norm.weight") != nullptr);
}

TEST_CASE("what training leaves in place of weights is called by its name", "[formats]") {
  const TemporaryDirectory directory;
  const auto refusal = [&] { return refusal_of([&] { open_checkpoint(directory.path()); }); };
  CHECK_THAT(refusal(), is_bad_input("not a model directory"));
  write_text(directory / "zero_to_fp32.py", "");
  CHECK_THAT(refusal(), is_bad_input("DeepSpeed", "python zero_to_fp32.py"));
  write_text(directory / ".metadata", "");
  CHECK_THAT(refusal(), is_bad_input("distributed checkpoint", "dcp_to_torch"));
}

TEST_CASE("names that become equal and flat parameters are refused", "[formats]") {
  const TemporaryDirectory directory;
  TinyModel model = tiny_llama();
  model.tensors.push_back(varied_tensor("_orig_mod.model.norm.weight", DType::kF32, {6}));
  put_model(directory / "twice", model);
  CHECK_THAT(refusal_of([&] { open_checkpoint(directory / "twice"); }),
             is_bad_input("model.norm.weight"));
  model.tensors.back().name = "_fsdp_wrapped_module._flat_param";
  put_model(directory / "flat", model);
  CHECK_THAT(refusal_of([&] { open_checkpoint(directory / "flat"); }),
             is_bad_input("_flat_param", "FULL_STATE_DICT"));
  for (const char* name : {"q_proj.lora_A.default.weight", "q_proj.base_layer.weight"}) {
    model.tensors.back().name = std::string("base_model.model.model.layers.0.self_attn.") + name;
    put_model(directory / "adapter", model);
    CHECK_THAT(refusal_of([&] { open_checkpoint(directory / "adapter"); }),
               is_bad_input("LoRA", "merge_and_unload"));
  }
}

TEST_CASE("a LoRA adapter has to be merged, with or without its base model", "[formats]") {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "adapter");
  put_model(directory / "both", tiny_llama());
  for (const char* name : {"adapter", "both"}) {
    write_text(directory / name / "adapter_config.json", "{}");
    CHECK_THAT(refusal_of([&] { open_model(directory / name); }),
               is_bad_input(name, "LoRA adapter", "merge_and_unload"));
    CHECK_THAT(refusal_of([&] { open_checkpoint(directory / name); }),
               is_bad_input(name, "LoRA adapter"));
  }
}

}  // namespace
}  // namespace regroup
