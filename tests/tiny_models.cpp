#include "tests/tiny_models.h"

#include <algorithm>
#include <span>
#include <stdexcept>

#include <fmt/format.h>

#include "formats/families/family.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

constexpr std::int64_t kVocabulary = 5;

// Adds tensors of one dtype to a model.
class Builder {
 public:
  Builder(TinyModel& model, DType dtype) : model_(model), dtype_(dtype) {}

  void add(const std::string& name, Shape shape) {
    model_.tensors.push_back(varied_tensor(name, dtype_, std::move(shape)));
  }
  void add_with_bias(const std::string& name, std::int64_t out, Shape weight) {
    add(name + ".weight", std::move(weight));
    add(name + ".bias", {out});
  }

 private:
  TinyModel& model_;
  DType dtype_;
};

auto find(TinyModel& model, std::string_view name) {
  const auto found = std::find_if(model.tensors.begin(), model.tensors.end(),
                                  [&](const BuiltTensor& tensor) { return tensor.name == name; });
  if (found == model.tensors.end()) {
    throw std::logic_error("the tiny model has no tensor " + std::string(name));
  }
  return found;
}

std::string llama_config(const TinySizes& sizes) {
  return fmt::format(R"({{
  "architectures": ["LlamaForCausalLM"],
  "model_type": "llama",
  "hidden_size": {},
  "head_dim": {},
  "intermediate_size": {},
  "num_attention_heads": {},
  "num_hidden_layers": {},
  "num_key_value_heads": {},
  "attention_bias": {},
  "rms_norm_eps": 1e-05,
  "vocab_size": {}
}}
)",
                     sizes.hidden_size, sizes.head_dim, sizes.intermediate_size, sizes.query_heads,
                     sizes.layers, sizes.kv_heads, sizes.attention_bias, kVocabulary);
}

}  // namespace

BuiltTensor& TinyModel::tensor(std::string_view name) { return *find(*this, name); }

void TinyModel::remove(std::string_view name) { tensors.erase(find(*this, name)); }

TinyModel& TinyModel::set(const std::string& key, std::string_view value) {
  Json parsed = Json::parse(config);
  parsed[key] = Json::parse(value);
  config = parsed.dump(2) + "\n";
  return *this;
}

TinyModel tiny_llama(const TinySizes& sizes) {
  const std::int64_t d_model = sizes.hidden_size;
  const std::int64_t q = sizes.query_heads * sizes.head_dim;
  const std::int64_t kv = sizes.kv_heads * sizes.head_dim;
  TinyModel model;
  model.config = llama_config(sizes);
  Builder builder(model, sizes.dtype);
  const auto add_projection = [&](const std::string& name, std::int64_t out, std::int64_t in) {
    builder.add(name + ".weight", {out, in});
    if (sizes.attention_bias) {
      builder.add(name + ".bias", {out});
    }
  };
  builder.add("model.embed_tokens.weight", {kVocabulary, d_model});
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    builder.add(layer + "input_layernorm.weight", {d_model});
    add_projection(layer + "self_attn.q_proj", q, d_model);
    add_projection(layer + "self_attn.k_proj", kv, d_model);
    add_projection(layer + "self_attn.v_proj", kv, d_model);
    add_projection(layer + "self_attn.o_proj", d_model, q);
    builder.add(layer + "post_attention_layernorm.weight", {d_model});
    builder.add(layer + "mlp.gate_proj.weight", {sizes.intermediate_size, d_model});
    builder.add(layer + "mlp.up_proj.weight", {sizes.intermediate_size, d_model});
    builder.add(layer + "mlp.down_proj.weight", {d_model, sizes.intermediate_size});
  }
  builder.add("model.norm.weight", {d_model});
  builder.add("lm_head.weight", {kVocabulary, d_model});
  return model;
}

TinyModel tiny_gpt2(const TinySizes& sizes) {
  const std::int64_t d_model = sizes.query_heads * sizes.head_dim;
  const std::int64_t fused = d_model + 2 * sizes.kv_heads * sizes.head_dim;
  TinyModel model;
  model.config = fmt::format(R"({{
  "architectures": ["GPT2LMHeadModel"],
  "model_type": "gpt2",
  "n_embd": {},
  "n_head": {},
  "n_layer": {},
  "n_inner": 3,
  "n_positions": 7,
  "vocab_size": {}
}}
)",
                             d_model, sizes.query_heads, sizes.layers, kVocabulary);
  if (sizes.kv_heads != sizes.query_heads) {
    model.set("num_key_value_heads", std::to_string(sizes.kv_heads));
  }
  Builder builder(model, sizes.dtype);
  builder.add("transformer.wte.weight", {kVocabulary, d_model});
  builder.add("transformer.wpe.weight", {7, d_model});
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    const std::string layer = fmt::format("transformer.h.{}.", i);
    builder.add_with_bias(layer + "ln_1", d_model, {d_model});
    builder.add_with_bias(layer + "attn.c_attn", fused, {d_model, fused});
    builder.add_with_bias(layer + "attn.c_proj", d_model, {d_model, d_model});
    builder.add_with_bias(layer + "ln_2", d_model, {d_model});
    builder.add_with_bias(layer + "mlp.c_fc", 3, {d_model, 3});
    builder.add_with_bias(layer + "mlp.c_proj", d_model, {3, d_model});
  }
  builder.add_with_bias("transformer.ln_f", d_model, {d_model});
  return model;
}

TinyModel tiny_bloom(const TinySizes& sizes) {
  const std::int64_t d_model = sizes.query_heads * sizes.head_dim;
  const std::int64_t fused = d_model + 2 * sizes.kv_heads * sizes.head_dim;
  TinyModel model;
  model.config = fmt::format(R"({{
  "architectures": ["BloomForCausalLM"],
  "model_type": "bloom",
  "hidden_size": {},
  "n_head": {},
  "n_layer": {},
  "vocab_size": {}
}}
)",
                             d_model, sizes.query_heads, sizes.layers, kVocabulary);
  if (sizes.kv_heads != sizes.query_heads) {
    model.set("num_key_value_heads", std::to_string(sizes.kv_heads));
  }
  Builder builder(model, sizes.dtype);
  builder.add("transformer.word_embeddings.weight", {kVocabulary, d_model});
  builder.add_with_bias("transformer.word_embeddings_layernorm", d_model, {d_model});
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    const std::string layer = fmt::format("transformer.h.{}.", i);
    builder.add_with_bias(layer + "input_layernorm", d_model, {d_model});
    builder.add_with_bias(layer + "self_attention.query_key_value", fused, {fused, d_model});
    builder.add_with_bias(layer + "self_attention.dense", d_model, {d_model, d_model});
    builder.add_with_bias(layer + "post_attention_layernorm", d_model, {d_model});
    builder.add_with_bias(layer + "mlp.dense_h_to_4h", 4 * d_model, {4 * d_model, d_model});
    builder.add_with_bias(layer + "mlp.dense_4h_to_h", d_model, {d_model, 4 * d_model});
  }
  builder.add_with_bias("transformer.ln_f", d_model, {d_model});
  return model;
}

TinyModel golden_model(std::string_view name) {
  const ModelDirectory directory = open_model_directory(golden(name));
  TinyModel model;
  model.config = directory.config_text;
  for (const TensorInfo& tensor : directory.checkpoint.tensors()) {
    model.tensors.push_back(
        {tensor.name, tensor.dtype, tensor.shape, bytes_of(directory.checkpoint, tensor.name)});
  }
  return model;
}

void replace_tensors(TinyModel& model, const std::filesystem::path& file) {
  const Checkpoint checkpoint = open_checkpoint(file);
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    model.tensor(tensor.name) = {tensor.name, tensor.dtype, tensor.shape,
                                 bytes_of(checkpoint, tensor.name)};
  }
}

std::filesystem::path put_model(const std::filesystem::path& directory, const TinyModel& model) {
  put_file(directory / "config.json", model.config);
  put_checkpoint(directory / "model.safetensors", model.tensors);
  return directory;
}

std::filesystem::path put_sharded_model(const std::filesystem::path& directory,
                                        const TinyModel& model, std::size_t tensors_per_shard) {
  put_file(directory / "config.json", model.config);
  Json index{{"metadata", {{"total_size", 0}}}, {"weight_map", Json::object()}};
  std::uint64_t total = 0;
  std::span<const BuiltTensor> rest = model.tensors;
  for (int shard = 1; !rest.empty(); ++shard) {
    const auto part = rest.first(std::min(rest.size(), tensors_per_shard));
    const std::string name = fmt::format("part-{:02}.safetensors", shard);
    put_checkpoint(directory / name, part);
    for (const BuiltTensor& tensor : part) {
      index["weight_map"][tensor.name] = name;
      total += tensor.bytes.size();
    }
    rest = rest.subspan(part.size());
  }
  index["metadata"]["total_size"] = total;
  put_file(directory / "model.safetensors.index.json", index.dump(2));
  return directory;
}

ModelSpec spec_of(const TinyModel& tiny) {
  const TemporaryDirectory directory;
  const ModelDirectory model = open_model_directory(put_model(directory.path(), tiny));
  return describe_model(model.config, model.checkpoint, "config.json");
}

}  // namespace regroup
