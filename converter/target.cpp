#include "converter/target.h"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/ranges.h>

#include "converter/equivalence.h"
#include "converter/kv_head_request.h"
#include "formats/error.h"
#include "formats/families/config_writers.h"
#include "formats/families/family.h"
#include "formats/printable.h"

namespace regroup {
namespace {

// Architectures whose stock loaders take fewer kv heads, and who they are.
struct GroupedArchitecture {
  std::string_view architecture;
  std::string_view model_type;
  std::string_view runtimes;
};
constexpr std::array<GroupedArchitecture, 7> kGrouped{{
    {"PhiForCausalLM", "phi", "transformers, vLLM, llama.cpp"},
    {"Starcoder2ForCausalLM", "starcoder2", "transformers, vLLM, llama.cpp"},
    {"NemotronForCausalLM", "nemotron", "transformers, vLLM, llama.cpp"},
    {"GPTBigCodeForCausalLM", "gpt_bigcode", "transformers, vLLM, llama.cpp"},
    {"LlamaForCausalLM", "llama", "transformers, vLLM, llama.cpp"},
    {"MistralForCausalLM", "mistral", "transformers, vLLM, llama.cpp"},
    {"Qwen2ForCausalLM", "qwen2", "transformers, vLLM, llama.cpp"},
}};

constexpr std::size_t kShownObstacles = 3;

std::string text_of(std::vector<std::string> obstacles) {
  const std::size_t more =
      obstacles.size() > kShownObstacles ? obstacles.size() - kShownObstacles : 0;
  obstacles.resize(obstacles.size() - more);
  return fmt::format("{}{}", fmt::join(obstacles, "; "),
                     more > 0 ? fmt::format("; and {} more", more) : "");
}

// Keys that mean the same in every architecture.
void carry_over(const Json& from, Json& to) {
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id",
                          "torch_dtype", "dtype", "initializer_range"}) {
    if (from.contains(key)) {
      to[key] = from[key];
    }
  }
}

struct Candidate {
  Target target;
  std::vector<std::string> obstacles;
};

Candidate try_architecture(const Model& source, const ModelSpec& grouped,
                           std::string_view architecture) {
  Candidate candidate;
  Json config = write_config(architecture, grouped);
  carry_over(source.config, config);
  candidate.target.config_text = config.dump(2) + "\n";
  try {
    candidate.target.spec = describe_model(config, Checkpoint({}), architecture);
    candidate.obstacles = obstacles_between(grouped, candidate.target.spec);
  } catch (const Error& fault) {  // it cannot say what this model is
    candidate.obstacles.push_back(fault.what());
  }
  if (!grouped.not_computable.empty()) {
    candidate.obstacles.insert(candidate.obstacles.begin(), printable(grouped.not_computable));
  }
  return candidate;
}

std::string architecture_named(const std::string& name) {
  for (const GroupedArchitecture& row : kGrouped) {
    if (row.model_type == name) {
      return std::string(row.architecture);
    }
  }
  return name;
}

}  // namespace

bool loaders_take_heads(const ModelSpec& spec) {
  const auto all = [&](std::int64_t count) {
    return std::all_of(spec.kv_heads.begin(), spec.kv_heads.end(),
                       [&](std::int64_t heads) { return heads == count; });
  };
  const bool plain_encoder =
      std::all_of(spec.encoder_kv_heads.begin(), spec.encoder_kv_heads.end(),
                  [&](std::int64_t heads) { return heads == spec.query_heads; });
  const bool plain_cross =
      std::all_of(spec.cross_kv_heads.begin(), spec.cross_kv_heads.end(),
                  [&](std::int64_t heads) { return heads == spec.query_heads; });
  const bool plain = plain_encoder && plain_cross && all(spec.query_heads);
  return plain || (spec.loaders_read_kv_heads && is_uniform(spec.kv_heads)) ||
         (!spec.multi_query_key.empty() && all(1));
}

Target same_target(const Model& source, const ModelSpec& grouped) {
  Target target{grouped, source.config_text, {}};
  if (grouped.positions != source.spec.positions) {
    target.config_text = with_alibi_names(target.config_text, source.config);
    target.spec.loaders_read_kv_heads = false;
    target.spec.multi_query_key.clear();
    target.notes.push_back(
        "positions are now ALiBi's: stock loaders, which would go on computing the old ones, do "
        "not "
        "know the model_type and refuse it; regroup runs and uptrains the result");
  }
  return target;
}

Target expanded_target(const Model& source, const ModelSpec& grouped, std::int64_t stored) {
  Target target = same_target(source, grouped);
  if (stored < 1 || grouped.query_heads % stored != 0) {
    throw_usage("{} kv heads cannot be stored for {} query heads: no divisor", stored,
                grouped.query_heads);
  }
  for (const AttentionRole role : grouped.roles()) {
    for (std::int64_t& heads : target.spec.kv_heads_of(role)) {
      if (heads == 0 || heads == grouped.query_heads) {
        continue;  // no attention, or nothing to repeat
      }
      if (stored % heads != 0) {
        throw_usage("{} kv heads cannot be stored as {}: no multiple", heads, stored);
      }
      heads = stored;
    }
  }
  if (grouped.qk_norm == QkNorm::kEachHead) {
    throw_usage("{}: every key head has a norm of its own; its heads cannot be stored repeatedly",
                printable(grouped.architecture));
  }
  return target;
}

Target named_target(const Model& source, const ModelSpec& grouped, const std::string& name) {
  Candidate candidate = try_architecture(source, grouped, architecture_named(name));
  if (!candidate.obstacles.empty()) {
    throw_usage("{} cannot be written as {}: {}", printable(grouped.architecture), printable(name),
                text_of(candidate.obstacles));
  }
  return std::move(candidate.target);
}

Target automatic_target(const Model& source, const ModelSpec& grouped) {
  if (source.convention == Convention::kHuggingFace && loaders_take_heads(grouped)) {
    return same_target(source, grouped);
  }
  std::map<std::string, std::vector<std::string_view>> reasons;  // architectures by first obstacle
  for (const GroupedArchitecture& row : kGrouped) {
    Candidate candidate = try_architecture(source, grouped, row.architecture);
    if (candidate.obstacles.empty() && !loaders_take_heads(candidate.target.spec)) {
      candidate.obstacles.push_back("its loaders take no such kv heads");
    }
    if (candidate.obstacles.empty()) {
      candidate.target.notes.push_back(
          fmt::format("written as {}, which loads in {}", row.architecture, row.runtimes));
      return std::move(candidate.target);
    }
    reasons[candidate.obstacles.front()].push_back(row.model_type);
  }
  std::vector<std::string> lines;
  for (const auto& [reason, model_types] : reasons) {
    lines.push_back(fmt::format("{} ({})", fmt::join(model_types, ", "), reason));
  }
  throw_usage(
      "{}: no architecture computes the same and takes grouped heads: {}; --to gguf or --target "
      "expanded may serve",
      printable(grouped.architecture), fmt::join(lines, "; "));
}

}  // namespace regroup
