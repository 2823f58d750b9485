// Conversions between containers: every byte of every tensor is kept, or the conversion is refused.
#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <fmt/format.h>

#include "formats/tensors/checkpoint_writer.h"
#include "formats/tensors/dtype.h"
#include "formats/tensors/gguf.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;
using Heads = std::vector<std::int64_t>;

// Names of the tensors of `before` that `after` lacks or has with other bytes, dtype or shape.
std::vector<std::string> differing(const fs::path& before, const fs::path& after,
                                   const std::vector<std::string>& dropped = {}) {
  const Checkpoint old_tensors = open_checkpoint(before);
  const Checkpoint new_tensors = open_checkpoint(after);
  std::vector<std::string> names;
  for (const TensorInfo& tensor : old_tensors.tensors()) {
    const TensorInfo* found = new_tensors.find(tensor.name);
    const bool same = found != nullptr && found->dtype == tensor.dtype &&
                      found->shape == tensor.shape &&
                      bytes_of(old_tensors, tensor.name) == bytes_of(new_tensors, tensor.name);
    if (!same && std::find(dropped.begin(), dropped.end(), tensor.name) == dropped.end()) {
      names.push_back(tensor.name);
    }
  }
  return names;
}

// Names of the tensors that a round trip through `container` changes. Tensors that the conversion
// drops on purpose are left out.
std::vector<std::string> lost_by(const fs::path& source, Container container,
                                 const fs::path& scratch) {
  const auto dropped = plan_conversion(open_model(source), {.container = container}).dropped;
  convert(source, scratch / "there", {.container = container});
  convert(scratch / "there", scratch / "back", {.container = Container::kSafetensors});
  return differing(source, scratch / "back", dropped);
}

constexpr const char* kInGguf[] = {"llama",     "llama_bf16", "llama_fp16",  "llama_rope_llama3",
                                   "qwen2",     "qwen3",      "gemma",       "olmo2",
                                   "phi",       "stablelm",   "starcoder2",  "gpt2",
                                   "bloom",     "mpt",        "gpt_neox",    "gpt_neox_sequential",
                                   "falcon_7b", "falcon_40b", "falcon_11b",  "gpt_bigcode",
                                   "phi3",      "cohere",     "granite",     "smollm3",
                                   "qwen",      "internlm2",  "baichuan_7b", "qwen2_windows",
                                   "minicpm",   "mixtral",    "granitemoe",  "deepseek"};

TEST_CASE("safetensors to GGUF and back keeps every byte of every tensor", "[converter]") {
  for (const char* name : kInGguf) {
    CAPTURE(name);
    const TemporaryDirectory directory;
    CHECK(lost_by(golden(name), Container::kGguf, directory.path()) == std::vector<std::string>{});
    const Model source = open_model(golden(name));
    const Model back = open_model(directory / "back");
    CHECK(back.spec.architecture == source.spec.architecture);
    CHECK(back.spec.kv_heads == source.spec.kv_heads);
  }
}

// A GGUF file of a fixture as another program writes it: without regroup's keys.
fs::path put_foreign_gguf(const fs::path& directory, const char* fixture) {
  convert(golden(fixture), directory / "own.gguf", {.container = Container::kGguf});
  const Model own = open_model(directory / "own.gguf");
  GgufMetadata metadata = own.gguf.value();
  metadata.remove_if([](std::string_view key) { return key.starts_with("regroup."); });
  std::vector<OutputTensor> outputs;
  for (const TensorInfo& tensor : own.checkpoint.tensors()) {
    outputs.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  GgufWriter writer(directory / "foreign.gguf", metadata, outputs);
  for (const TensorInfo& tensor : own.checkpoint.tensors()) {
    writer.copy(tensor.name, own.checkpoint, tensor);
  }
  writer.finish();
  return directory / "foreign.gguf";
}

TEST_CASE("a GGUF file of another program is written as its architecture", "[converter]") {
  for (const char* name : {"qwen3", "olmo", "olmo2", "stablelm"}) {
    CAPTURE(name);
    const TemporaryDirectory directory;
    const fs::path file = put_foreign_gguf(directory.path(), name);
    const DType dtype = open_checkpoint(golden(name)).tensors().front().dtype;  // GGUF widens
    convert(file, directory / "back", {.container = Container::kSafetensors, .dtype = dtype});
    CHECK(differing(golden(name), directory / "back") == std::vector<std::string>{});
    CHECK(open_model(directory / "back").spec.architecture ==
          open_model(golden(name)).spec.architecture);
  }
}

TEST_CASE("an architecture that is not written from GGUF is refused in a short line",
          "[converter]") {
  const TemporaryDirectory directory;
  const fs::path file = put_foreign_gguf(directory.path(), "granitemoe");
  const Error fault = refusal_of(
      [&] { convert(file, directory / "back", {.container = Container::kSafetensors}); });
  CHECK_THAT(fault, is_wrong_usage("granitemoe", "with experts", "original repository"));
  CHECK(std::string_view(fault.what()).size() < 200 + file.string().size());
}

// One layer of a fixture, which has experts, as a model of its own.
TinyModel layer_of(const char* fixture, const std::string& layer) {
  TinyModel model = golden_model(fixture).set("num_hidden_layers", "1");
  std::erase_if(model.tensors, [&](const BuiltTensor& tensor) {
    return tensor.name.find(".layers.") != std::string::npos &&
           tensor.name.find(".layers." + layer + ".") == std::string::npos;
  });
  for (BuiltTensor& tensor : model.tensors) {
    if (const std::size_t at = tensor.name.find(".layers."); at != std::string::npos) {
      tensor.name.replace(at, 10, ".layers.0.");
    }
  }
  return model;
}

TEST_CASE("experts are stacked for GGUF and separated again", "[converter]") {
  const TemporaryDirectory directory;
  const fs::path qwen2 = put_model(directory / "2", layer_of("qwen2_moe", "2"));
  TinyModel qwen3_layer = layer_of("qwen3_moe", "1");
  qwen3_layer.set("decoder_sparse_step", "1");
  const fs::path qwen3 = put_model(directory / "3", qwen3_layer);
  TinyModel olmoe_model = golden_model("olmoe");
  const fs::path olmoe = put_model(directory / "olmoe", olmoe_model.set("clip_qkv", "null"));
  for (const auto& [source, architecture] :
       {std::pair{qwen2, "qwen2moe"}, std::pair{qwen3, "qwen3moe"}, std::pair{olmoe, "olmoe"}}) {
    CAPTURE(architecture);
    const TemporaryDirectory scratch;
    CHECK(lost_by(source, Container::kGguf, scratch.path()) == std::vector<std::string>{});
    const Model file = open_model(scratch / "there");
    CHECK(file.gguf->text("general.architecture") == architecture);
    CHECK(file.spec.layers[0].experts.stacked);
  }
  CHECK_THAT(refusal_of([&] {
               convert(olmoe, directory / "x.gguf",
                       {.kv_heads = {2}, .container = Container::kGguf});
             }),
             is_wrong_usage("olmoe", "fewer kv heads"));
  convert(olmoe, directory / "whole.gguf", {.container = Container::kGguf});
  CHECK_THAT(
      refusal_of([&] { convert(directory / "whole.gguf", directory / "y", {.kv_heads = {2}}); }),
      is_wrong_usage("as many kv heads as query heads"));
  // Expert 1 of layer 0 is the second part of each stack.
  const Model mixtral = open_model(golden("mixtral"));
  convert(golden("mixtral"), directory / "mixtral.gguf", {.container = Container::kGguf});
  const Checkpoint file = open_checkpoint(directory / "mixtral.gguf");
  for (const auto& [stack, map] : {std::pair{"ffn_gate_exps", "w1"}, std::pair{"ffn_up_exps", "w3"},
                                   std::pair{"ffn_down_exps", "w2"}}) {
    const auto all = bytes_of(file, fmt::format("blk.0.{}.weight", stack));
    const auto one =
        bytes_of(mixtral.checkpoint,
                 fmt::format("model.layers.0.block_sparse_moe.experts.1.{}.weight", map));
    CHECK(all.size() == 4 * one.size());
    CHECK(
        std::equal(one.begin(), one.end(), all.begin() + static_cast<std::ptrdiff_t>(one.size())));
  }
}

// A tied Falcon with biases and one norm per layer. llama.cpp's phi2 graph computes it.
TinyModel biased_falcon() {
  TinyModel model = golden_model("falcon_7b").set("bias", "true");
  const std::vector<BuiltTensor> weights = model.tensors;
  for (const BuiltTensor& weight : weights) {
    const bool linear = weight.name.ends_with(".weight") && weight.shape.size() == 2 &&
                        weight.name.find("word_embeddings") == std::string::npos;
    if (linear) {
      const std::string bias = weight.name.substr(0, weight.name.rfind('.')) + ".bias";
      model.tensors.push_back(varied_tensor(bias, DType::kF32, {weight.shape[0]}));
    }
  }
  return model;
}

TEST_CASE("a model written as another architecture's GGUF comes back unchanged", "[converter]") {
  const TemporaryDirectory directory;
  const fs::path falcon = put_model(directory / "falcon", biased_falcon());
  for (const fs::path& source : {golden("gptj"), golden("codegen"), falcon}) {
    CAPTURE(source);
    const TemporaryDirectory scratch;
    CHECK(lost_by(source, Container::kGguf, scratch.path()) == std::vector<std::string>{});
    CHECK(open_gguf(scratch / "there").metadata.text("general.architecture") == "phi2");
    const Model back = open_model(scratch / "back");
    CHECK(back.checkpoint.tensors().size() +
              plan_conversion(open_model(source), {.container = Container::kGguf}).dropped.size() ==
          open_checkpoint(source).tensors().size());
    CHECK(back.spec.architecture == open_model(source).spec.architecture);
  }
  // The same when it is pooled on the way.
  const TemporaryDirectory scratch;
  convert(golden("gptj"), scratch / "plain", {.kv_heads = {2}});
  convert(golden("gptj"), scratch / "pooled.gguf",
          {.kv_heads = {2}, .container = Container::kGguf});
  convert(scratch / "pooled.gguf", scratch / "back", {.container = Container::kSafetensors});
  const auto dropped =
      plan_conversion(open_model(scratch / "plain"), {.container = Container::kGguf}).dropped;
  CHECK(differing(scratch / "plain", scratch / "back", dropped) == std::vector<std::string>{});
}

TEST_CASE("another dtype is not that of single numbers nor of 8 bits, which is noted",
          "[converter]") {
  const TemporaryDirectory directory;
  TinyModel model = tiny_llama();
  const double out_of_range = -1e9;  // GPT-Neo's masked_bias
  model.tensors.push_back(
      tensor_of("model.masked_bias", DType::kF32, {}, std::span(&out_of_range, 1)));
  model.tensors.push_back({"vision.weight", DType::kF8E4M3, {4, 4}, std::string(16, '\x38')});
  const Model source = open_model(put_model(directory / "source", model));
  const ConversionPlan plan = plan_conversion(source, {.dtype = DType::kF16});
  CHECK(std::ranges::any_of(plan.notes, [](const std::string& note) {
    return note.starts_with("1 tensors of F8_E4M3 stay as they are");
  }));
  convert(directory / "source", directory / "half", {.dtype = DType::kF16});
  const Model half = open_model(directory / "half");
  CHECK(half.checkpoint.at("model.masked_bias").dtype == DType::kF32);
  CHECK(half.checkpoint.at("vision.weight").dtype == DType::kF8E4M3);
  CHECK(half.checkpoint.at("lm_head.weight").dtype == DType::kF16);
}

TEST_CASE("the config of a result names the dtype that it is stored in", "[converter]") {
  const TemporaryDirectory directory;
  const auto dtype_of = [&](const std::filesystem::path& model) {
    const Model result = open_model(model);
    const std::string key = result.config.contains("dtype") ? "dtype" : "torch_dtype";
    const std::string name = result.config.value(key, "none");
    for (const TensorInfo& tensor : result.checkpoint.tensors()) {
      if (tensor.shape.size() == 2) {  // a GGUF file has norms in F32
        CHECK(tensor.dtype == (name == "float32"   ? DType::kF32
                               : name == "float16" ? DType::kF16
                                                   : DType::kBF16));
      }
    }
    return name;
  };
  const std::filesystem::path source = golden("llama_mha");
  CHECK(dtype_of(source) == "float32");
  convert(source, directory / "half", {.kv_heads = {2}, .dtype = DType::kF16});
  CHECK(dtype_of(directory / "half") == "float16");
  convert(directory / "half", directory / "whole", {.dtype = DType::kF32});
  CHECK(dtype_of(directory / "whole") == "float32");
  // A GGUF file restores what it was made from, but not a precision that it no longer has.
  using Row = std::tuple<const char*, std::optional<DType>, const char*>;
  for (const auto& [made_from, stored, restored] :
       {Row{"llama_mha", {}, "float32"}, Row{"llama_mha", DType::kBF16, "bfloat16"},
        Row{"llama_mha", DType::kQ8_0, "float32"}, Row{"llama_bf16", {}, "bfloat16"},
        Row{"llama_bf16", DType::kF16, "float16"}, Row{"llama_bf16", DType::kF32, "float32"}}) {
    CAPTURE(made_from, restored);
    const TemporaryDirectory place;
    convert(golden(made_from), place / "a.gguf", {.container = Container::kGguf, .dtype = stored});
    convert(place / "a.gguf", place / "back", {.container = Container::kSafetensors});
    CHECK(dtype_of(place / "back") == restored);
    convert(golden(made_from), place / "whole.gguf", {.container = Container::kGguf});
    convert(place / "whole.gguf", place / "b.gguf", {.dtype = stored});
    convert(place / "b.gguf", place / "again", {.container = Container::kSafetensors});
    CHECK(dtype_of(place / "again") == restored);
  }
  // One that others made: most of its matrices decide.
  put_file(directory / "plain" / "config.json",
           without_member(open_model(source).config_text, "torch_dtype"));
  std::filesystem::copy(source / "model.safetensors", directory / "plain");
  convert(directory / "plain", directory / "named", {.dtype = DType::kBF16});
  CHECK(dtype_of(directory / "named") == "bfloat16");
}

TEST_CASE("dropping biases that are not zero is refused", "[converter]") {
  const TemporaryDirectory directory;
  convert(golden("gptj"), directory / "model.gguf", {.container = Container::kGguf});
  const Checkpoint file = open_checkpoint(directory / "model.gguf");
  const TensorInfo& bias = file.at("blk.0.attn_output.bias");
  std::string bytes = bytes_of_file(directory / "model.gguf");
  bytes[bias.begin + 2] = 'x';
  put_file(directory / "changed.gguf", bytes);
  CHECK_THAT(refusal_of([&] {
               plan_conversion(open_model(directory / "changed.gguf"),
                               {.container = Container::kSafetensors});
             }),
             is_bad_input("changed.gguf", "biases"));
}

TEST_CASE("safetensors to torch and back keeps every byte of every tensor", "[converter]") {
  for (const char* name : {"llama_bf16", "llama_fp16", "gpt2_base", "bloom", "t5_v1_1", "bert"}) {
    CAPTURE(name);
    const TemporaryDirectory directory;
    convert(golden(name), directory / "there", {.container = Container::kTorch});
    CHECK(fs::exists(directory / "there" / "pytorch_model.bin"));
    convert(directory / "there", directory / "back", {.container = Container::kSafetensors});
    CHECK(differing(golden(name), directory / "back") == std::vector<std::string>{});
  }
}

TEST_CASE("pooling before or after a round trip through GGUF gives the same model", "[converter]") {
  for (const char* name : {"llama_mha", "gpt2", "bloom", "gpt_neox", "mpt"}) {
    CAPTURE(name);
    const TemporaryDirectory directory;
    convert(golden(name), directory / "plain", {.kv_heads = {2}});
    convert(golden(name), directory / "pooled.gguf",
            {.kv_heads = {2}, .container = Container::kGguf});
    convert(directory / "pooled.gguf", directory / "from pooled",
            {.container = Container::kSafetensors});
    convert(golden(name), directory / "whole.gguf", {.container = Container::kGguf});
    convert(directory / "whole.gguf", directory / "later.gguf", {.kv_heads = {2}});
    convert(directory / "later.gguf", directory / "from whole",
            {.container = Container::kSafetensors});
    CHECK(differing(directory / "from pooled", directory / "plain") == std::vector<std::string>{});
    CHECK(differing(directory / "from whole", directory / "plain") == std::vector<std::string>{});
    CHECK(open_model(directory / "later.gguf").spec.kv_heads ==
          open_model(directory / "plain").spec.kv_heads);
    CHECK(open_model(directory / "from whole").spec.kv_heads ==
          open_model(directory / "plain").spec.kv_heads);
  }
}

TEST_CASE("Meta's directories become Hugging Face models", "[converter]") {
  const TemporaryDirectory directory;
  convert(golden("llama_meta"), directory / "from meta", {.kv_heads = {2}});
  const Model model = open_model(directory / "from meta");
  CHECK(model.spec.architecture == "LlamaForCausalLM");
  CHECK(model.spec.kv_heads == Heads(model.spec.kv_heads.size(), 2));
  CHECK_FALSE(model.spec.rope.interleaved);
}

// Meta's code has the special tokens and contexts, its files have not.
TEST_CASE("a Llama 3 of Meta's keeps its special tokens and context", "[converter]") {
  const TemporaryDirectory directory;
  const fs::path source = directory / "llama";
  fs::copy(golden("llama_meta"), source);
  const std::int64_t ranks = open_model(source).spec.vocab_size - 10;
  std::string lines;
  for (std::int64_t byte = 0; byte < ranks; ++byte) {
    lines += fmt::format("{} {}\n", base64_of(std::string(1, static_cast<char>(byte))), byte);
  }
  put_file(source / "tokenizer.model", lines);
  const auto converted = [&](const std::string& name) {
    convert(source, directory / name, {.kv_heads = {2}});
    return Json::parse(bytes_of_file(directory / name / "config.json"));
  };
  const Json of_llama_2 = converted("llama 2");
  CHECK_FALSE(of_llama_2.contains("max_position_embeddings"));
  CHECK(of_llama_2["bos_token_id"] == ranks);
  CHECK(of_llama_2["eos_token_id"] == ranks + 1);
  Json params = Json::parse(bytes_of_file(source / "params.json"));
  params["rope_theta"] = 500000.0;
  put_file(source / "params.json", params.dump());
  CHECK(converted("llama 3")["max_position_embeddings"] == 8192);
  params["use_scaled_rope"] = true;
  params["rope_scaling_factor"] = 8;
  put_file(source / "params.json", params.dump());
  CHECK(converted("llama 3.1")["max_position_embeddings"] == 131072);
  const Json generation =
      Json::parse(bytes_of_file(directory / "llama 3.1" / "generation_config.json"));
  CHECK(generation["eos_token_id"] == Json::array({ranks + 1, ranks + 9}));
  const Json tokenizer = Json::parse(bytes_of_file(directory / "llama 3.1" / "tokenizer.json"));
  CHECK(tokenizer["model"]["vocab"]["<|eot_id|>"] == ranks + 9);
  CHECK(tokenizer["post_processor"]["single"].size() == 2);   // begins a text, and ends none
  put_file(source / "tokenizer.model", lines + "damaged\n");  // costs the tokenizer, not the model
  CHECK_FALSE(converted("damaged").contains("eos_token_id"));
  CHECK_FALSE(fs::exists(directory / "damaged" / "tokenizer.json"));
}

TEST_CASE("pooling a GGUF file keeps all other tensors byte for byte", "[converter]") {
  const TemporaryDirectory directory;
  const fs::path source = golden("gguf") / "llama.gguf";
  convert(source, directory / "out.gguf", {.kv_heads = {1}});
  std::set<std::string> changed;
  for (const std::string& name : differing(source, directory / "out.gguf")) {
    changed.insert(name.substr(name.find('.', 4) + 1));
  }
  CHECK(changed == std::set<std::string>{"attn_k.weight", "attn_v.weight"});
  const GgufMetadata before = open_gguf(source).metadata;
  const GgufMetadata after = open_gguf(directory / "out.gguf").metadata;
  CHECK(after.count("llama.attention.head_count_kv") == 1);
  CHECK(after.text("regroup.kv_heads") == "1");
  for (const GgufMetadata::Entry& entry : before.entries()) {
    if (entry.key != "llama.attention.head_count_kv") {
      CAPTURE(entry.key);
      CHECK(after.find(entry.key)->bytes == entry.bytes);
    }
  }
}

std::vector<double> numbers_of(const Checkpoint& checkpoint, const TensorInfo& tensor) {
  std::vector<std::byte> bytes(tensor.bytes());
  checkpoint.read(tensor, bytes);
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  decode_numbers(tensor.dtype, bytes, values);
  return values;
}

TEST_CASE("quantised K and V are averaged as numbers and stored as Q8_0", "[converter]") {
  const TemporaryDirectory directory;
  const fs::path source = golden("gguf") / "llama.gguf";
  convert(source, directory / "out.gguf", {.kv_heads = {1}});
  const Model before = open_model(source);
  const Checkpoint after = open_checkpoint(directory / "out.gguf");
  int quantised = 0;
  for (const LayerTensors& layer : before.spec.layers) {
    for (const std::string& name : {layer.attention.k.weight, layer.attention.v.weight}) {
      const TensorInfo& old_tensor = before.checkpoint.at(name);
      const TensorInfo& new_tensor = after.at(name);
      if (!is_block_type(old_tensor.dtype)) {
        continue;
      }
      ++quantised;
      CHECK(new_tensor.dtype == DType::kQ8_0);
      const std::vector<double> heads = numbers_of(before.checkpoint, old_tensor);
      const std::vector<double> pooled = numbers_of(after, new_tensor);
      const std::size_t groups = heads.size() / pooled.size();
      double largest = 0.0;
      for (const double value : heads) {
        largest = std::max(largest, std::abs(value));
      }
      for (std::size_t i = 0; i < pooled.size(); ++i) {
        double mean = 0.0;
        for (std::size_t h = 0; h < groups; ++h) {
          mean += heads[h * pooled.size() + i] / static_cast<double>(groups);
        }
        REQUIRE(std::abs(pooled[i] - mean) <= largest / 127.0 * 0.51);  // half a step of Q8_0
      }
    }
  }
  CHECK(quantised > 0);
}

// Copies a GGUF file, where one tensor has another type and only zeros.
void put_with_type(const fs::path& source, const fs::path& target, const std::string& name,
                   DType dtype) {
  const Checkpoint before = open_checkpoint(source);
  std::vector<OutputTensor> outputs;
  for (const TensorInfo& tensor : before.tensors()) {
    outputs.push_back({tensor.name, tensor.name == name ? dtype : tensor.dtype, tensor.shape});
  }
  GgufWriter writer(target, open_gguf(source).metadata, outputs);
  for (const TensorInfo& tensor : before.tensors()) {
    if (tensor.name == name) {
      writer.write(name, std::vector<std::byte>(writer.bytes_of(name)));
    } else {
      writer.copy(tensor.name, before, tensor);
    }
  }
  writer.finish();
}

TEST_CASE("tensors of a type whose numbers are not read are listed and copied, and never computed",
          "[converter]") {
  const TemporaryDirectory directory;
  const fs::path source = golden("gguf") / "llama.gguf";
  const auto refusal = [&](const ConversionRequest& request) {
    return refusal_of([&] { convert(directory / "in.gguf", directory / "out", request); });
  };
  put_with_type(source, directory / "in.gguf", "blk.1.ffn_down.weight", DType::kIq2Xs);
  const Checkpoint listed = open_checkpoint(directory / "in.gguf");
  CHECK(name_of(listed.at("blk.1.ffn_down.weight").dtype) == "IQ2_XS");
  CHECK(listed.at("blk.1.ffn_down.weight").bytes() == 32 * 74);
  CHECK_THAT(refusal({.container = Container::kSafetensors, .dtype = DType::kF32}),
             is_wrong_usage("blk.1.ffn_down.weight", "IQ2_XS", "another quantisation"));
  convert(directory / "in.gguf", directory / "out.gguf", {.kv_heads = {1}});
  CHECK(bytes_of(open_checkpoint(directory / "out.gguf"), "blk.1.ffn_down.weight") ==
        std::string(32 * 74, '\0'));

  fs::remove(directory / "in.gguf");
  put_with_type(source, directory / "in.gguf", "blk.0.attn_k.weight", DType::kIq4Nl);
  CHECK_THAT(refusal({.kv_heads = {1}}),
             is_bad_input("blk.0.attn_k.weight", "IQ4_NL", "another quantisation"));
}

TEST_CASE("what a container cannot hold is refused with the reason", "[converter]") {
  const TemporaryDirectory directory;
  const auto refusal = [&](const fs::path& source, ConversionRequest request) {
    return refusal_of([&] { convert(source, directory / "out", request); });
  };
  CHECK_THAT(refusal(golden("t5"), {.container = Container::kGguf}), is_wrong_usage("t5"));
  CHECK_THAT(refusal(golden("gguf") / "llama.gguf", {.container = Container::kSafetensors}),
             is_wrong_usage("which only GGUF holds", "--dtype fp32"));
  CHECK_THAT(refusal(golden("bloom_12"), {.container = Container::kGguf}),
             is_wrong_usage("norms in other places"));
  CHECK_THAT(refusal(golden("nemotron_nas"), {.container = Container::kGguf}),
             is_wrong_usage("attention and no MLP"));
  CHECK_THAT(refusal(golden("gpt2"), {.target = "phi", .container = Container::kGguf}),
             is_wrong_usage("--target phi"));
  CHECK(tree_of(directory.path()).empty());
}

TEST_CASE("values of quantised tensors are exact in fp32", "[converter]") {
  const TemporaryDirectory directory;
  const fs::path source = golden("gguf") / "llama.gguf";
  convert(source, directory / "hf", {.container = Container::kSafetensors, .dtype = DType::kF32});
  const Checkpoint before = open_checkpoint(source);
  const Checkpoint after = open_checkpoint(directory / "hf");
  CHECK(numbers_of(before, before.at("blk.0.ffn_up.weight")) ==
        numbers_of(after, after.at("model.layers.0.mlp.up_proj.weight")));
}

// The golden Llama as a GGUF file with special tokens and with K and V in Q4_0.
fs::path put_changed_gguf(const fs::path& path) {
  const Checkpoint checkpoint = open_checkpoint(golden("gguf") / "llama.gguf");
  GgufMetadata metadata = open_gguf(golden("gguf") / "llama.gguf").metadata;
  metadata.set_u32("tokenizer.ggml.bos_token_id", 5);
  metadata.set_u32("tokenizer.ggml.eos_token_id", 7);
  metadata.set_u32("tokenizer.ggml.padding_token_id", 1 << 20);  // beyond the vocabulary
  const auto becomes_small = [](const std::string& name) {
    return name.ends_with("attn_k.weight") || name.ends_with("attn_v.weight");
  };
  std::vector<OutputTensor> outputs;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    outputs.push_back(
        {tensor.name, becomes_small(tensor.name) ? DType::kQ4_0 : tensor.dtype, tensor.shape});
  }
  GgufWriter writer(path, metadata, outputs);
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    if (becomes_small(tensor.name)) {
      writer.write(tensor.name, std::vector<std::byte>(writer.bytes_of(tensor.name)));
    } else {
      writer.copy(tensor.name, checkpoint, tensor);
    }
  }
  writer.finish();
  return path;
}

TEST_CASE(
    "special tokens of a GGUF file go to config.json, and a note says why no tokenizer is written",
    "[converter]") {
  const TemporaryDirectory directory;
  const Model source = open_model(put_changed_gguf(directory / "in.gguf"));
  const ConversionPlan plan =
      plan_conversion(source, {.container = Container::kSafetensors, .dtype = DType::kF32});
  const Json config = Json::parse(plan.config_text);
  CHECK(config.at("bos_token_id") == 5);
  CHECK(config.at("eos_token_id") == 7);
  CHECK_FALSE(config.contains("pad_token_id"));
  CHECK(std::any_of(plan.notes.begin(), plan.notes.end(), [](const std::string& note) {
    return note.find("no tokenizer is written: ") != std::string::npos &&
           note.find("Copy tokenizer.json") != std::string::npos;
  }));
  convert(golden("llama_mha"), directory / "made.gguf", {.container = Container::kGguf});
  const ConversionPlan back =
      plan_conversion(open_model(directory / "made.gguf"), {.container = Container::kSafetensors});
  CHECK(std::none_of(back.notes.begin(), back.notes.end(), [](const std::string& note) {
    return note.find("tokenizer") != std::string::npos;  // this file never had one
  }));
}

TEST_CASE("a note names tensors that grow because regroup cannot write their type", "[converter]") {
  const TemporaryDirectory directory;
  const Model source = open_model(put_changed_gguf(directory / "in.gguf"));
  const auto note_of = [&](const ConversionRequest& request) {
    const ConversionPlan plan = plan_conversion(source, request);
    const auto note = std::find_if(plan.notes.begin(), plan.notes.end(), [](const auto& each) {
      return each.find("stored as Q8_0") != std::string::npos;
    });
    return note != plan.notes.end() ? *note : "";
  };
  const std::string note = note_of({.kv_heads = {1}});
  CHECK(note.find("Q4_0 can be read but not written") != std::string::npos);
  CHECK(note_of({.kv_heads = {1}, .dtype = DType::kQ8_0}).empty());
  CHECK(note_of({}).empty());
}

}  // namespace
}  // namespace regroup
