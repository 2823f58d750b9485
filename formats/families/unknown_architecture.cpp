#include "formats/families/unknown_architecture.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/tensors/checkpoint.h"

namespace regroup {

namespace {

struct Method {
  std::string_view method;  // quant_method
  std::string_view holds;   // what the files hold instead of weights
};

constexpr auto kMethods = std::to_array<Method>({
    {"gptq", "GPTQ's integers and scales"},
    {"awq", "AWQ's integers and scales"},
    {"bitsandbytes", "bitsandbytes' quantised blocks"},
    {"compressed-tensors", "compressed-tensors' packed weights"},
    {"fp8", "FP8 weights with a scale per block"},
    {"mxfp4", "MXFP4 blocks and scales"},
    {"hqq", "HQQ's integers, scales and zero points"},
    {"aqlm", "AQLM's codes and codebooks"},
    {"modelopt", "Model-Optimizer's FP8 or NVFP4 weights and scales"},
});

// Ends of names that only such checkpoints have.
struct Ending {
  std::string_view name, method;
};
constexpr auto kEndings = std::to_array<Ending>({
    {".qweight", "gptq"},
    {".weight_packed", "compressed-tensors"},
    {".weight_scale_inv", "fp8"},
    {".weight.absmax", "bitsandbytes"},
    {".SCB", "bitsandbytes"},
    {"_blocks", "mxfp4"},
    {".W_q", "hqq"},
    {".codebooks", "aqlm"},
    {".weight_scale_2", "modelopt"},
});

const Method* method_called(std::string_view name) {
  const auto found = std::ranges::find(kMethods, name, &Method::method);
  return found == kMethods.end() ? nullptr : &*found;
}

// Older files have a flag per width instead of a name: load_in_4bit, load_in_8bit.
std::string method_in(const ConfigReader& settings) {
  const Json* name = settings.find("quant_method");
  if (name != nullptr && name->is_string()) {
    return name->get<std::string>();
  }
  return settings.find("load_in_4bit") != nullptr || settings.find("load_in_8bit") != nullptr
             ? "bitsandbytes"
             : "";
}

constexpr auto kKeys = std::to_array<std::string_view>(
    {"quantization_config", "compression_config", "quantization", "quantization_args"});
constexpr auto kParts =
    std::to_array<std::string_view>({"text_config", "llm_config", "language_config"});

void add_members(const Json& config, const std::vector<std::string>& parent,
                 std::vector<std::vector<std::string>>& found) {
  for (const std::string_view key : kKeys) {
    const auto member = config.find(key);
    if (member != config.end() &&
        (member->is_object() || (key.ends_with("_config") && !member->is_null()))) {
      found.push_back(parent);
      found.back().emplace_back(key);
    }
  }
}

std::string method_at(const Json& config, const std::vector<std::string>& path) {
  const Json* member = &config;
  for (const std::string& key : path) {
    member = &member->at(key);
  }
  return member->is_object() ? method_in(ConfigReader(*member, "")) : "";
}

// Names show the method whatever the config says. Integers and 8-bit floats alone do not: heads in
// such types can be copied.
const Method* method_of_name(const TensorInfo& tensor) {
  const auto ending = std::ranges::find_if(
      kEndings, [&](const Ending& each) { return tensor.name.ends_with(each.name); });
  return ending == kEndings.end() ? nullptr : method_called(ending->method);
}

bool is_matrix_of_codes(const TensorInfo& tensor) {
  const bool weight = tensor.name.ends_with("weight") || tensor.name.ends_with("_proj");
  return weight && tensor.shape.size() >= 2 && !is_pooling_dtype(tensor.dtype);
}

const std::vector<OtherAttention> kOthers{
    {{"deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "minicpm3", "longcat_flash",
      "mistral4", "mistral_large4", "youtu", "glm4_moe_lite", "glm_moe_dsa", "axk1", "axk2",
      "hy_v4", "dots3_note"},
     {"kv_lora_rank"},
     "latent attention (MLA) caches one latent vector for all heads, not K and V heads to group"},
    {{"mamba", "mamba2", "falcon_mamba", "rwkv", "rwkv5", "rwkv6", "rwkv7", "xlstm", "retnet",
      "stripedhyena"},
     {"ssm_cfg"},
     "recurrent layers have a state of fixed size, not K and V heads to group"},
    {{"jamba",      "zamba",       "zamba2",       "falcon_h1",
      "qwen3_next", "qwen3_5",     "qwen3_5_text", "qwen3_5_moe",
      "qwen4_exp",  "bamba",       "nemotron_h",   "granitemoehybrid",
      "lfm2",       "lfm2_moe",    "lfm3",         "recurrent_gemma",
      "minimax",    "kimi_linear", "olmo_hybrid",  "bailing_hybrid",
      "glm5_next",  "hymba",       "phi4flash",    "plamo2"},
     {"mamba_d_state", "linear_num_key_heads", "hybrid_override_pattern", "attn_layer_period",
      "conv_L_cache"},
     "most layers are recurrent or linear, without a KV cache; only all-attention models convert"},
    {{"diffllama", "motif"},
     {},
     "differential attention subtracts paired heads, which a group of heads would mix"},
    {{"longformer", "led", "big_bird", "bigbird_pegasus", "pegasus_x", "longt5", "longnet"},
     {"attention_window"},
     "queries attend to windows or blocks of keys, which no loader takes with fewer kv heads"},
    {{"reformer"},
     {},
     "hashing attention computes queries and keys by one projection, which groups cannot share"},
    {{"fnet", "nystromformer", "yoso", "mra", "performer", "linformer"},
     {},
     "its attention is not a softmax over heads of keys, so heads cannot share"},
    {{"deberta", "deberta_v2", "xlnet", "transfo_xl", "funnel"},
     {},
     "each head also has keys of positions, so its keys are not the cached K that groups share"},
    {{"phimoe"},
     {},
     "its router, SparseMixer, is not computed here, so no result could be checked or trained"},
};

// Letters and digits in lower case: "deepseek_v3" and "DeepseekV3ForCausalLM" have the same stem.
std::string stem_of(std::string_view name) {
  for (const std::string_view ending : {"For", "LMHead", "Model"}) {
    const std::size_t end = name.find(ending);
    name = name.substr(0, end == 0 ? std::string_view::npos : end);
  }
  std::string stem;
  for (const char letter : name) {
    const auto byte = static_cast<unsigned char>(letter);
    if (std::isalnum(byte) != 0) {
      stem += static_cast<char>(std::tolower(byte));
    }
  }
  return stem;
}

const OtherAttention* other_attention(const ConfigReader& config, const std::string& stem) {
  const auto names_it = [&](const OtherAttention& other) {
    return contains(other.model_types, stem, stem_of);
  };
  const auto has_its_key = [&](const OtherAttention& other) {
    return std::ranges::any_of(other.config_keys,
                               [&](std::string_view key) { return config.find(key) != nullptr; });
  };
  const auto named = std::ranges::find_if(kOthers, names_it);
  const auto found = named != kOthers.end() ? named : std::ranges::find_if(kOthers, has_its_key);
  return found == kOthers.end() ? nullptr : &*found;
}

// The longest of `known` with which the name begins, otherwise the one with the fewest differences.
std::string nearest_type(const std::string& stem, const std::vector<std::string>& known) {
  std::string nearest;
  std::vector<std::string> stems;
  for (const std::string& type : known) {
    stems.push_back(stem_of(type));
    if (stem.starts_with(stems.back()) && type.size() > nearest.size()) {
      nearest = type;
    }
  }
  const auto similar = std::ranges::find(stems, nearest_name(stem, stems));
  return !nearest.empty() || similar == stems.end()
             ? nearest
             : known[static_cast<std::size_t>(similar - stems.begin())];
}

}  // namespace

std::vector<std::vector<std::string>> quantisation_members(const Json& config) {
  std::vector<std::vector<std::string>> found;
  add_members(config, {}, found);
  for (const std::string_view part : kParts) {
    const auto object = config.find(part);
    if (object != config.end() && object->is_object()) {
      add_members(*object, {std::string(part)}, found);
    }
  }
  return found;
}

std::vector<std::string> check_quantisation(const ModelConfig& config) {
  const auto members = quantisation_members(config.json());
  const std::string said = members.empty() ? "" : method_at(config.json(), members.front());
  for (const TensorInfo& tensor : config.checkpoint.tensors()) {
    const Method* method = method_of_name(tensor);
    if (method != nullptr || (!members.empty() && is_matrix_of_codes(tensor))) {
      const Method* named = method_called(said);
      method = named == nullptr ? method : named;
      throw_bad_input(
          "{}: the files hold {}, which cannot be pooled: use the checkpoint that they were made "
          "from",
          place_of(config.checkpoint, tensor),
          method == nullptr ? "quantised weights" : method->holds);
    }
  }
  std::vector<std::string> wrong;
  for (const std::vector<std::string>& path : members) {
    const std::string method = method_at(config.json(), path);
    wrong.push_back(
        fmt::format("{}: {}{}: {}", config.where(), fmt::join(path, "."),
                    method.empty() ? "" : fmt::format(" ({})", printable(method)),
                    config.checkpoint.tensors().empty()
                        ? "sizes of weights are those before quantisation"
                        : "ignored and left out of results: the weights are not quantised"));
  }
  return wrong;
}

std::span<const OtherAttention> other_attentions() { return kOthers; }

std::string refusal_of_architecture(const ConfigReader& config, std::string_view model_type,
                                    std::string_view architecture,
                                    const std::vector<std::string>& known) {
  constexpr std::size_t kShown = 40;
  const std::string_view name = model_type.empty() ? architecture : model_type;
  const std::string printed = name.empty() ? "none" : printable(name, kShown);
  const std::string stem = stem_of(name);
  if (const OtherAttention* other = other_attention(config, stem)) {
    return fmt::format("{} cannot be grouped: {}", printed, other->reason);
  }
  const std::string nearest = nearest_type(stem, known);
  return fmt::format(
      "unknown architecture {}{}; describe it with --layout FILE, see docs/layout.md", printed,
      nearest.empty() ? "" : fmt::format(" (nearest known: {})", nearest));
}

}  // namespace regroup
