#include "converter/convert/runtimes.h"

#include <algorithm>
#include <initializer_list>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/families/loader_code.h"

namespace regroup {
namespace {

using Applies = bool (*)(const ModelSpec&);

// The numbers of kv heads that a row is about.
bool any_number(const ModelSpec& spec) { return is_uniform(spec.kv_heads); }
bool all_heads(const ModelSpec& spec) {
  return is_uniform(spec.kv_heads) && spec.kv_heads.front() == spec.query_heads;
}
bool one_head(const ModelSpec& spec) {
  return is_uniform(spec.kv_heads) && spec.kv_heads.front() == 1;
}
bool fewer(const ModelSpec& spec) { return is_uniform(spec.kv_heads) && !all_heads(spec); }
bool differing(const ModelSpec& spec) { return !is_uniform(spec.kv_heads); }
bool with_alibi_and_one_head(const ModelSpec& spec) {
  return spec.positions == PositionKind::kAlibi && one_head(spec);
}
bool with_alibi_and_fewer(const ModelSpec& spec) {
  return spec.positions == PositionKind::kAlibi && fewer(spec);
}
bool with_other_activation_than_relu_squared(const ModelSpec& spec) {
  return any_number(spec) && spec.activation != Activation::kReluSquared;
}
bool with_other_rope_base(const ModelSpec& spec) {
  return any_number(spec) && spec.rope.theta != 1e4;
}
bool with_relu_and_one_head(const ModelSpec& spec) {
  return one_head(spec) && spec.activation == Activation::kRelu;
}

struct Measured {
  std::string_view architecture;
  Applies applies;
  std::array<Loading, kRuntimes.size()> loading;  // in the order of kRuntimes
};

constexpr Loading kYes = Loading::kSame, kByCode = Loading::kByCarriedCode,
                  kHeads = Loading::kNotThisResult, kNever = Loading::kNotThisFamily,
                  kWrong = Loading::kSomethingElse, kOpen = Loading::kUnknown;

// The first row that applies counts. Versions are in docs/compatibility.md.
constexpr std::array kMeasured{
    //                                                          vLLM     mlx-lm  CTranslate2
    Measured{"LlamaForCausalLM", any_number, {kYes, kYes, kYes}},
    Measured{"MistralForCausalLM", any_number, {kYes, kYes, kYes}},
    Measured{"Qwen2ForCausalLM", any_number, {kYes, kYes, kYes}},
    Measured{"Qwen3ForCausalLM", any_number, {kYes, kYes, kYes}},
    Measured{"GemmaForCausalLM", with_other_rope_base, {kYes, kYes, kWrong}},
    Measured{"GemmaForCausalLM", any_number, {kYes, kYes, kYes}},
    Measured{"OlmoForCausalLM", any_number, {kYes, kOpen, kNever}},
    Measured{"Olmo2ForCausalLM", any_number, {kYes, kYes, kNever}},
    Measured{"PhiForCausalLM", any_number, {kYes, kYes, kNever}},
    Measured{"StableLmForCausalLM", any_number, {kYes, kYes, kNever}},
    Measured{"Starcoder2ForCausalLM", any_number, {kYes, kYes, kNever}},
    Measured{
        "NemotronForCausalLM", with_other_activation_than_relu_squared, {kYes, kWrong, kNever}},
    Measured{"NemotronForCausalLM", any_number, {kYes, kYes, kNever}},
    Measured{"DeciLMForCausalLM", differing, {Loading::kByCarriedConfig, kYes, kNever}},
    Measured{"FalconForCausalLM", with_alibi_and_one_head, {kYes, kNever, kYes}},
    Measured{"FalconForCausalLM", with_alibi_and_fewer, {kHeads, kNever, kWrong}},
    Measured{"FalconForCausalLM", one_head, {kYes, kNever, kHeads}},
    Measured{"FalconForCausalLM", any_number, {kYes, kNever, kYes}},
    Measured{"GPTBigCodeForCausalLM", with_relu_and_one_head, {kYes, kWrong, kYes}},
    Measured{"GPTBigCodeForCausalLM", one_head, {kYes, kYes, kYes}},
    Measured{"GPTBigCodeForCausalLM", fewer, {kByCode, kHeads, kHeads}},
    Measured{"GPT2LMHeadModel", all_heads, {kYes, kYes, kYes}},
    Measured{"GPT2LMHeadModel", fewer, {kHeads, kHeads, kHeads}},
    Measured{"GPT2LMHeadModel", differing, {kHeads, kHeads, kHeads}},
    Measured{"OPTForCausalLM", all_heads, {kYes, kNever, kYes}},
    Measured{"OPTForCausalLM", fewer, {kByCode, kNever, kHeads}},
    Measured{"GPTNeoXForCausalLM", all_heads, {kYes, kYes, kNever}},
    Measured{"GPTNeoXForCausalLM", fewer, {kByCode, kHeads, kNever}},
    Measured{"GPTJForCausalLM", all_heads, {kYes, kYes, kYes}},
    Measured{"GPTJForCausalLM", fewer, {kHeads, kHeads, kHeads}},
    Measured{"BloomForCausalLM", all_heads, {kYes, kNever, kYes}},
    Measured{"BloomForCausalLM", fewer, {kHeads, kNever, kHeads}},
    Measured{"MptForCausalLM", any_number, {kNever, kNever, kNever}},
};

// The architectures of mlx-lm that read rope_theta and not rope_parameters, in which transformers 5
// writes it, with the base that they otherwise take; 0: they refuse to load.
struct RopeDefault {
  std::string_view architecture;
  double theta;
};
constexpr std::array kRopeDefaults{
    RopeDefault{"LlamaForCausalLM", 1e4},      RopeDefault{"MistralForCausalLM", 1e4},
    RopeDefault{"Qwen2ForCausalLM", 1e6},      RopeDefault{"GemmaForCausalLM", 1e4},
    RopeDefault{"Olmo2ForCausalLM", 1e4},      RopeDefault{"PhiForCausalLM", 1e4},
    RopeDefault{"Starcoder2ForCausalLM", 1e5}, RopeDefault{"NemotronForCausalLM", 1e4},
    RopeDefault{"StableLmForCausalLM", 0},
};

bool mlx_misses_rope(const Served& served) {
  const auto known =
      std::ranges::find(kRopeDefaults, served.spec.architecture, &RopeDefault::architecture);
  const auto rope = served.config.find("rope_parameters");
  if (known == kRopeDefaults.end() || rope == served.config.end() || !rope->is_object() ||
      served.config.contains("rope_theta")) {
    return false;
  }
  return served.spec.rope.theta != known->theta || rope->contains("partial_rotary_factor") ||
         rope->value("rope_type", Json("default")) != "default";
}

std::string join(const std::vector<std::string_view>& names) {
  if (names.size() < 2) {
    return names.empty() ? "" : std::string(names.front());
  }
  return fmt::format("{} and {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
}

std::vector<std::string_view> all_with(const Served& served,
                                       std::initializer_list<Loading> wanted) {
  std::vector<std::string_view> names;
  for (const Runtime runtime : kRuntimes) {
    const Loading loading = loading_in(runtime, served);
    if (contains(wanted, loading)) {
      names.push_back(name_of(runtime));
    }
  }
  return names;
}

}  // namespace

std::string_view name_of(Runtime runtime) {
  constexpr std::array<std::string_view, kRuntimes.size()> names{"vLLM", "mlx-lm", "CTranslate2"};
  return names[static_cast<std::size_t>(runtime)];
}

Loading loading_in(Runtime runtime, const Served& served) {
  const ModelSpec& spec = served.spec;
  // Layers that differ are refused where one number is read for all (measured with Llama, Qwen3 and
  // Gemma).
  const auto row = std::ranges::find_if(kMeasured, [&](const Measured& measured) {
    return measured.architecture == spec.architecture &&
           (measured.applies(spec) || (differing(spec) && measured.applies == any_number));
  });
  if (row == kMeasured.end()) {
    return Loading::kUnknown;
  }
  const Loading loading = row->loading[static_cast<std::size_t>(runtime)];
  if (loading == Loading::kSame && !row->applies(spec)) {
    return Loading::kNotThisResult;
  }
  if (runtime == Runtime::kMlxLm && loading == Loading::kSame && mlx_misses_rope(served)) {
    return spec.architecture == "StableLmForCausalLM" ? Loading::kNotThisFamily
                                                      : Loading::kSomethingElse;
  }
  const bool needs_code =
      loading == Loading::kByCarriedCode || loading == Loading::kByCarriedConfig;
  return needs_code && !has_loader_code(served.config) ? Loading::kNotThisResult : loading;
}

std::string_view difference_in(Runtime runtime, const Served& served) {
  if (loading_in(runtime, served) != Loading::kSomethingElse) {
    return "";
  }
  if (served.spec.positions == PositionKind::kAlibi) {
    return "it does not support ALiBi with several kv heads";
  }
  if (runtime == Runtime::kCTranslate2) {
    return "it takes the usual base of RoPE, whatever config.json says";
  }
  return mlx_misses_rope(served)
             ? "it reads rope_theta and partial_rotary_factor of config.json, not rope_parameters"
             : "it takes the usual activation of this architecture, whatever config.json says";
}

bool has_layers_of_nas(const ModelSpec& spec) {
  return differing(spec) && !spec.sliding_window && spec.intermediate_size % 256 == 0 &&
         spec.query_heads * spec.head_dim == spec.hidden_size &&
         (spec.architecture == "LlamaForCausalLM" || spec.architecture == "MistralForCausalLM" ||
          spec.architecture == "Qwen2ForCausalLM");
}

std::string runtimes_that_load(const Served& served) {
  return join(all_with(served, {Loading::kSame}));
}

std::vector<std::string> runtime_notes(const ModelSpec& source, const Served& result) {
  std::vector<std::string> notes;
  const std::string architecture = printable(result.spec.architecture);
  const bool another = source.architecture != result.spec.architecture;
  const auto refuse = another ? all_with(result, {Loading::kNotThisResult, Loading::kNotThisFamily})
                              : all_with(result, {Loading::kNotThisResult});
  if (!refuse.empty()) {
    notes.push_back(fmt::format(
        "{} {} not load {}{}{}", join(refuse), refuse.size() == 1 ? "does" : "do", architecture,
        another ? "" : " with these kv heads",
        has_layers_of_nas(result.spec) ? "; vLLM and mlx-lm load it with --target nemotron-nas"
                                       : ""));
  }
  if (loading_in(Runtime::kVllm, result) == Loading::kByCarriedCode) {
    notes.push_back(
        "vLLM runs the same code with --trust-remote-code --model-impl transformers, without "
        "tensor parallelism");
  }
  if (loading_in(Runtime::kVllm, result) == Loading::kByCarriedConfig) {
    notes.push_back("vLLM loads the result with --trust-remote-code");
  }
  if (transformers_caches_all_heads(result.spec)) {
    notes.push_back(fmt::format(
        "transformers caches keys and values of all {} query heads of {}: its cache stays as large",
        result.spec.query_heads, architecture));
  }
  return notes;
}

std::vector<std::string> runtime_warnings(const Served& result) {
  std::vector<std::string> warnings;
  for (const Runtime runtime : kRuntimes) {
    const std::string_view difference = difference_in(runtime, result);
    if (!difference.empty()) {
      warnings.push_back(
          fmt::format("{} computes something else from this result, without an error: {}",
                      name_of(runtime), difference));
    }
  }
  return warnings;
}

bool transformers_caches_all_heads(const ModelSpec& spec) {
  return spec.architecture == "FalconForCausalLM" && spec.positions == PositionKind::kRope &&
         fewer(spec);
}

}  // namespace regroup
