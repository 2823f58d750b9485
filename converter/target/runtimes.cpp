#include "converter/target/runtimes.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "converter/target/kv_head_request.h"
#include "formats/base/printable.h"

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
    Measured{"LlamaForCausalLM", differing, {kHeads, kHeads, kHeads}},
    Measured{"MistralForCausalLM", any_number, {kYes, kYes, kYes}},
    Measured{"Qwen2ForCausalLM", any_number, {kYes, kYes, kYes}},
    Measured{"Qwen3ForCausalLM", any_number, {kYes, kYes, kYes}},
    Measured{"GemmaForCausalLM", any_number, {kYes, kYes, kYes}},
    Measured{"OlmoForCausalLM", any_number, {kYes, kOpen, kNever}},
    Measured{"Olmo2ForCausalLM", any_number, {kYes, kYes, kNever}},
    Measured{"PhiForCausalLM", any_number, {kYes, kYes, kNever}},
    Measured{"StableLmForCausalLM", any_number, {kYes, kYes, kNever}},
    Measured{"Starcoder2ForCausalLM", any_number, {kYes, kYes, kNever}},
    Measured{
        "NemotronForCausalLM", with_other_activation_than_relu_squared, {kYes, kWrong, kNever}},
    Measured{"NemotronForCausalLM", any_number, {kYes, kYes, kNever}},
    Measured{"DeciLMForCausalLM", differing, {kHeads, kYes, kNever}},
    Measured{"FalconForCausalLM", with_alibi_and_one_head, {kYes, kNever, kYes}},
    Measured{"FalconForCausalLM", with_alibi_and_fewer, {kHeads, kNever, kWrong}},
    Measured{"FalconForCausalLM", one_head, {kYes, kNever, kHeads}},
    Measured{"FalconForCausalLM", any_number, {kYes, kNever, kYes}},
    Measured{"GPTBigCodeForCausalLM", with_relu_and_one_head, {kYes, kWrong, kYes}},
    Measured{"GPTBigCodeForCausalLM", one_head, {kYes, kYes, kYes}},
    Measured{"GPTBigCodeForCausalLM", fewer, {kByCode, kHeads, kHeads}},
    Measured{"GPT2LMHeadModel", all_heads, {kYes, kYes, kYes}},
    Measured{"GPT2LMHeadModel", fewer, {kHeads, kHeads, kHeads}},
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

std::string join(const std::vector<std::string_view>& names) {
  if (names.size() < 2) {
    return names.empty() ? "" : std::string(names.front());
  }
  return fmt::format("{} and {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
}

std::vector<std::string_view> all_with(const ModelSpec& spec, bool (*wanted)(Loading)) {
  std::vector<std::string_view> names;
  for (const Runtime runtime : kRuntimes) {
    if (wanted(loading_in(runtime, spec))) {
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

Loading loading_in(Runtime runtime, const ModelSpec& spec) {
  const auto row = std::find_if(kMeasured.begin(), kMeasured.end(), [&](const Measured& measured) {
    return measured.architecture == spec.architecture && measured.applies(spec);
  });
  return row == kMeasured.end() ? Loading::kUnknown
                                : row->loading[static_cast<std::size_t>(runtime)];
}

std::string_view difference_in(Runtime runtime, const ModelSpec& spec) {
  if (loading_in(runtime, spec) != Loading::kSomethingElse) {
    return "";
  }
  return spec.positions == PositionKind::kAlibi
             ? "it does not support ALiBi with several kv heads"
             : "it takes the usual activation of this architecture, whatever config.json says";
}

std::string runtimes_that_load(const ModelSpec& spec) {
  return join(all_with(spec, [](Loading loading) { return loading == Loading::kSame; }));
}

std::vector<std::string> runtime_notes(const ModelSpec& source, const ModelSpec& result) {
  std::vector<std::string> notes;
  const bool another = source.architecture != result.architecture;
  const auto refuse = all_with(result, another ? [](Loading loading) {
    return loading == Loading::kNotThisResult || loading == Loading::kNotThisFamily;
  } : [](Loading loading) { return loading == Loading::kNotThisResult; });
  if (!refuse.empty()) {
    notes.push_back(fmt::format("{} {} not load the result: {}", join(refuse),
                                refuse.size() == 1 ? "does" : "do",
                                another ? printable(result.architecture)
                                        : "these heads in " + printable(result.architecture)));
  }
  if (loading_in(Runtime::kVllm, result) == Loading::kByCarriedCode) {
    notes.push_back(
        "vLLM runs the same code with --trust-remote-code --model-impl transformers, on one device "
        "per model");
  }
  if (transformers_caches_all_heads(result)) {
    notes.push_back(fmt::format(
        "transformers caches a key and a value for all {} query heads of this architecture: only "
        "other runtimes save memory",
        result.query_heads));
  }
  return notes;
}

std::vector<std::string> runtime_warnings(const ModelSpec& result) {
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
