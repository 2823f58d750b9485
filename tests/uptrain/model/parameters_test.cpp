#include "uptrain/model/parameters.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "formats/base/json.h"
#include "formats/families/family.h"
#include "tests/checkpoint_builder.h"
#include "tests/child_program.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"
#include "uptrain/model/language_model.h"

namespace regroup {

TEST_CASE("saving an unchanged model gives the same bytes", "[uptrain]") {
  const auto* name = GENERATE("llama", "llama_bf16", "llama_fp16", "gpt2_base", "bloom_base",
                              "t5_small", "mt5", "umt5", "bert_base", "roberta", "bart_copies",
                              "mbart", "marian_tables", "modernbert_biases", "nomic_bert", "mpnet",
                              "jina_bert", "mosaic_bert", "electra_small", "chatglm2");
  CAPTURE(name);
  const TemporaryDirectory directory;
  const Model source = open_computable_model(golden(name));
  const Parameters parameters =
      load_parameters(source.spec, source.checkpoint, at::kFloat, at::kCPU);
  save_model(source, in_place(parameters.entries()), source.config_text, directory / "saved");
  for (const char* file : {"config.json", "model.safetensors"}) {
    CHECK(bytes_of_file(directory / "saved" / file) == bytes_of_file(golden(name) / file));
  }
}

TEST_CASE("tensors that the computation does not use are saved byte for byte", "[uptrain]") {
  const TemporaryDirectory directory;
  const Model source = open_computable_model(golden("gpt2_base"));  // has attn.bias buffers
  const Parameters parameters =
      load_parameters(source.spec, source.checkpoint, at::kFloat, at::kCPU);
  for (const Parameters::Entry& entry : parameters.entries()) {
    entry.value.add_(1.0);
  }
  save_model(source, in_place(parameters.entries()), source.config_text, directory / "saved");
  const Checkpoint saved = open_checkpoint(directory / "saved");
  std::size_t unused = 0;
  for (const TensorInfo& tensor : source.checkpoint.tensors()) {
    const bool same = bytes_of(saved, tensor.name) == bytes_of(source.checkpoint, tensor.name);
    CHECK(same != parameters.contains(tensor.name));
    unused += same ? 1U : 0U;
  }
  CHECK(unused > 0);
}

TEST_CASE("a trained model has regroup's code as this version writes it", "[uptrain]") {
  const TemporaryDirectory directory;
  convert(golden("gpt2"), directory / "grouped", {.kv_heads = {2}});
  const std::string shared = bytes_of_file(directory / "grouped/regroup_heads.py");
  const std::string config = bytes_of_file(directory / "grouped/config.json");
  put_file(directory / "grouped/regroup_heads.py", "import os");
  put_file(directory / "grouped/evil.py", "import os");
  const Model source = open_computable_model(directory / "grouped");
  save_model(
      source,
      in_place(load_parameters(source.spec, source.checkpoint, at::kFloat, at::kCPU).entries()),
      source.config_text, directory / "saved");
  CHECK(bytes_of_file(directory / "saved/regroup_heads.py") == shared);
  // As values: saving writes auto_map's key where it was read, a conversion last.
  CHECK(nlohmann::json::parse(bytes_of_file(directory / "saved/config.json")) ==
        nlohmann::json::parse(config));
  const std::string card = bytes_of_file(directory / "saved/README.md");
  CHECK(card.find("runs Python files of this directory") != std::string::npos);
  CHECK(card.find("- `evil.py`") != std::string::npos);
}

TEST_CASE("a stored copy of the tied embedding is updated with it", "[uptrain]") {
  const TemporaryDirectory directory;
  TinyModel model = tiny_gpt2();
  BuiltTensor head = model.tensor("transformer.wte.weight");
  head.name = "lm_head.weight";
  model.tensors.push_back(head);
  const Model source = open_computable_model(put_model(directory / "model", model));
  const Parameters parameters =
      load_parameters(source.spec, source.checkpoint, at::kFloat, at::kCPU);
  parameters.at("transformer.wte.weight").add_(1.0);
  save_model(source, in_place(parameters.entries()), source.config_text, directory / "saved");
  const Checkpoint saved = open_checkpoint(directory / "saved");
  CHECK(bytes_of(saved, "lm_head.weight") == bytes_of(saved, "transformer.wte.weight"));
  CHECK(bytes_of(saved, "lm_head.weight") != head.bytes);
}

TEST_CASE("every stored copy of tied tensors is updated", "[uptrain]") {
  const TemporaryDirectory directory;
  const auto [name, original, copies] =
      GENERATE(table<const char*, const char*, std::vector<std::string>>(
          {{"t5_small",
            "shared.weight",
            {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"}},
           {"bert_base",
            "bert.embeddings.word_embeddings.weight",
            {"cls.predictions.decoder.weight"}},
           {"bert_base", "cls.predictions.decoder.bias", {"cls.predictions.bias"}}}));
  CAPTURE(name, original);
  const Model source = open_computable_model(golden(name));
  const Parameters parameters =
      load_parameters(source.spec, source.checkpoint, at::kFloat, at::kCPU);
  parameters.at(original).add_(1.0);
  save_model(source, in_place(parameters.entries()), source.config_text, directory / "saved");
  const Checkpoint saved = open_checkpoint(directory / "saved");
  CHECK(bytes_of(saved, original) != bytes_of(source.checkpoint, original));
  for (const std::string& copy : copies) {
    CHECK_FALSE(parameters.contains(copy));
    CHECK(bytes_of(saved, copy) == bytes_of(saved, original));
  }
}

TEST_CASE("weights that are no numbers are refused by the tensor's name", "[uptrain]") {
  const auto [dtype, bits] = GENERATE(table<const char*, std::string>(
      {{"llama", std::string("\x00\x00\xc0\x7f", 4)}, {"llama_bf16", std::string("\x80\xff", 2)}}));
  const TemporaryDirectory directory;
  for (const ExpectedTensor& tensor : expected_tensors(open_model(golden(dtype)).spec)) {
    CAPTURE(tensor.name);
    TinyModel model = golden_model(dtype);
    model.tensor(tensor.name).bytes.replace(0, bits.size(), bits);
    const Model source = open_computable_model(put_model(directory / "model", model));
    CHECK_THAT(
        refusal_of([&] { load_parameters(source.spec, source.checkpoint, at::kFloat, at::kCPU); }),
        is_bad_input(tensor.name, "NaN or infinities"));
  }
}

TEST_CASE("a conversion that is compared names the source's tensor with NaN", "[uptrain]") {
  const TemporaryDirectory directory;
  TinyModel model = golden_model("llama");
  model.tensor("model.norm.weight").bytes.replace(0, 4, std::string("\x00\x00\xc0\x7f", 4));
  const std::string source = put_model(directory / "model", model).string();
  const ProgramResult result =
      run_program({"convert", source, (directory / "model.gguf").string()});
  CHECK(result.exit_code == kExitBadInput);
  CHECK(result.err.find(source + "/model.safetensors: tensor model.norm.weight: holds NaN") !=
        std::string::npos);
  CHECK_FALSE(std::filesystem::exists(directory / "model.gguf"));
}

TEST_CASE("a fresh encoder-decoder has unit norms and zero biases and scaled-down outputs",
          "[uptrain]") {
  for (const char* name : {"t5_v1_1", "bert"}) {
    CAPTURE(name);
    const ModelSpec spec = open_computable_model(golden(name)).spec;
    const Parameters parameters = initialise_parameters(spec, 1);
    std::int64_t norms = 0;
    for (const auto& [tensor, value] : parameters.entries()) {
      CAPTURE(tensor);
      const bool norm = tensor.find("norm.weight") != std::string::npos ||
                        tensor.find("Norm.weight") != std::string::npos;
      CHECK(value.eq(1).all().item<bool>() == norm);
      CHECK(value.eq(0).all().item<bool>() == tensor.ends_with("bias"));
      norms += norm ? 1 : 0;
    }
    CHECK(norms == (spec.has_encoder() ? 2 * 2 + 2 * 3 + 2 : 1 + 2 * 2 + 1));
  }
}

TEST_CASE("companion files are saved with the model", "[uptrain]") {
  const TemporaryDirectory directory;
  const auto path = put_model(directory / "model", tiny_llama());
  put_file(path / "tokenizer.json", "{}");
  const Model source = open_computable_model(path);
  save_model(
      source,
      in_place(load_parameters(source.spec, source.checkpoint, at::kFloat, at::kCPU).entries()),
      source.config_text, directory / "saved");
  CHECK(bytes_of_file(directory / "saved" / "tokenizer.json") == "{}");
}

TEST_CASE("a tensor that cannot be trained is refused by name", "[uptrain]") {
  const TemporaryDirectory directory;
  TinyModel model = tiny_llama();
  BuiltTensor& norm = model.tensor("model.norm.weight");
  norm.dtype = DType::kI32;  // of the same size
  const Model source = open_computable_model(put_model(directory / "model", model));
  CHECK_THAT(
      refusal_of([&] { load_parameters(source.spec, source.checkpoint, at::kFloat, at::kCPU); }),
      is_bad_input("model.norm.weight", "I32", "BF16"));
}

TEST_CASE("fresh weights are normal with scaled-down residual projections", "[uptrain]") {
  const TemporaryDirectory directory;
  TinySizes sizes;
  sizes.head_dim = 16;
  write_new_model({.text = tiny_gpt2(sizes).config, .name = "config.json"}, 3, DType::kF32,
                  directory / "new");
  const Model source = open_computable_model(directory / "new");
  const Parameters parameters =
      load_parameters(source.spec, source.checkpoint, at::kFloat, at::kCPU);
  const LayerTensors& layer = source.spec.layers.front();
  const auto deviation = [&](const std::string& name) {
    return parameters.at(name).std().item<double>();
  };
  CHECK(std::abs(deviation(layer.attention.q.weight) - 0.02) < 0.001);
  CHECK(std::abs(deviation(layer.attention.o.weight) - 0.01) < 0.0005);  // 0.02 / √(2·2)
  CHECK(std::abs(deviation(layer.down.weight) - 0.01) < 0.0005);
  CHECK(parameters.at(layer.attention.q.bias).count_nonzero().item<std::int64_t>() == 0);
  CHECK(parameters.at(layer.attention_norm.weight).eq(1).all().item<bool>());
}

TEST_CASE("a config sets the standard deviation of a fresh model's weights", "[uptrain]") {
  const TemporaryDirectory directory;
  TinySizes sizes;
  sizes.head_dim = 16;
  TinyModel model = tiny_llama(sizes);
  model.set("initializer_range", "0.1");
  write_new_model({.text = model.config, .name = "config.json"}, 3, DType::kF32, directory / "new");
  const Model source = open_computable_model(directory / "new");
  const Parameters parameters =
      load_parameters(source.spec, source.checkpoint, at::kFloat, at::kCPU);
  const at::Tensor& queries = parameters.at(source.spec.layers.front().attention.q.weight);
  CHECK(std::abs(queries.std().item<double>() - 0.1) < 0.005);
  model.set("initializer_range", "0.0");
  CHECK_THAT(refusal_of([&] {
               write_new_model({.text = model.config, .name = "config.json"}, 3, DType::kF32,
                               directory / "flat");
             }),
             is_bad_input("config.json", "initializer_range", "0"));
}

TEST_CASE("a fresh model with unscaled scores has smaller queries", "[uptrain]") {
  const auto ratio_to_keys = [](const char* name) {
    const ModelSpec spec = open_computable_model(golden(name)).spec;
    const Parameters parameters = initialise_parameters(spec, 1);
    const AttentionLayout& attention = spec.layers.front().attention;
    return (parameters.at(attention.q.weight).std() / parameters.at(attention.k.weight).std())
        .item<double>();
  };
  CHECK(std::abs(ratio_to_keys("t5_v1_1") - 1 / std::sqrt(3.0)) < 0.05);  // heads of 3
  CHECK(std::abs(ratio_to_keys("llama_mha") - 1.0) < 0.05);
}

TEST_CASE("a fresh model is the same for the same seed", "[uptrain]") {
  const Model source = open_computable_model(golden("llama"));
  const auto first = initialise_parameters(source.spec, 1);
  const auto again = initialise_parameters(source.spec, 1);
  const auto other = initialise_parameters(source.spec, 2);
  const std::string name = source.spec.token_embedding;
  CHECK(first.at(name).equal(again.at(name)));
  CHECK_FALSE(first.at(name).equal(other.at(name)));
}

}  // namespace regroup
