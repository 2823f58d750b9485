// Names of tensors that wrappers of training have changed.
#include <filesystem>
#include <functional>

#include <catch2/catch_test_macros.hpp>

#include "formats/base/file.h"
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
