#include "converter/plan/plan_notes.h"

#include <algorithm>
#include <bit>
#include <set>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "converter/target/kv_head_request.h"
#include "converter/target/runtimes.h"
#include "formats/base/printable.h"
#include "formats/checkpoint/element_count.h"
#include "formats/families/family.h"

namespace regroup {
namespace {

// Whether the result has names that stock loaders refuse. Another note says so.
bool has_own_names(const ConversionPlan& plan) {
  return !plan.config_text.empty() &&
         has_alibi_names(parse_json_object(plan.config_text, "config.json"));
}

std::vector<std::string> loading_notes(const ConversionPlan& plan) {
  std::vector<std::string> notes;
  const ModelSpec& target = plan.target;
  const bool hugging_face =
      !is_single_file(plan.container) && !has_own_names(plan) && plan.loader_files.empty();
  const std::string_view runs = target.not_computable.empty() ? "; regroup runs the result" : "";
  const auto roles = target.roles();
  const bool mixed = std::any_of(roles.begin(), roles.end(), [&](AttentionRole role) {
    return !is_uniform(target.kv_heads_of(role));
  });
  const bool changed = std::any_of(roles.begin(), roles.end(), [&](AttentionRole role) {
    return plan.target.kv_heads_of(role) != plan.spec.kv_heads_of(role);
  });
  if (hugging_face && mixed && !target.loaders_let_layers_differ) {
    notes.push_back(fmt::format(
        "kv heads differ between layers: stock {} loaders take one number for all of them{}",
        printable(target.architecture), runs));
  } else if (hugging_face && changed && loaders_are_unknown(target)) {
    notes.push_back(fmt::format(
        "the config gets the number of kv heads as {}; whether the loaders of {} read it is not "
        "known here",
        printable(fmt::format("{}", fmt::join(target.kv_heads_key, "."))),
        printable(target.architecture)));
  } else if (hugging_face && !loaders_are_unknown(target) && !loaders_take_heads(target)) {
    notes.push_back(
        fmt::format("stock {} loaders do not support grouped heads (the config gets {} anyway){}; "
                    "--target auto writes another architecture if one computes the same",
                    printable(target.architecture), fmt::join(target.kv_heads_key, "."), runs));
  }
  const std::int64_t most = *std::max_element(target.kv_heads.begin(), target.kv_heads.end());
  const bool served = target.causal && !target.has_encoder();
  if (served && !mixed && !std::has_single_bit(static_cast<std::uint64_t>(most))) {
    notes.push_back(fmt::format(
        "{} kv heads are no power of two: tensor-parallel servers need a count that divides evenly",
        most));
  }
  return notes;
}

// llama.cpp pads values to the widest layer, unless its attention is fused.
std::vector<std::string> mixed_cache_notes(const ConversionPlan& plan) {
  if (plan.container != Container::kGguf || is_uniform(plan.target.kv_heads)) {
    return {};
  }
  return {
      "llama.cpp caches values in every layer for the most kv heads of any layer, unless it runs "
      "with flash attention (--flash-attn on)"};
}

// Notes on runtimes that do not load a changed model, or gain nothing from it.
std::vector<std::string> serving_notes(const ConversionPlan& plan) {
  if (is_single_file(plan.container)) {
    return mixed_cache_notes(plan);
  }
  const bool changed = plan.target.kv_heads != plan.spec.kv_heads ||
                       plan.target.architecture != plan.spec.architecture;
  if (!changed || has_own_names(plan)) {
    return {};
  }
  const Json config = parse_json_object(plan.config_text, "config.json");
  return runtime_notes(plan.spec, {config, plan.target});
}

// Whether any attention of that role gets fewer heads but cannot reorder them.
bool stays_in_place(const ConversionPlan& plan, AttentionRole role) {
  const auto& before = plan.spec.kv_heads_of(role);
  const auto& after = plan.grouped.kv_heads_of(role);
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i] != after[i] && !heads_can_move(plan.spec, role, i)) {
      return true;
    }
  }
  return false;
}

// Notes on heads that could not be reordered.
std::vector<std::string> grouping_notes(const ConversionPlan& plan) {
  std::vector<std::string> notes;
  for (const AttentionRole role : plan.spec.roles()) {
    if (plan.grouping == "similar" && stays_in_place(plan, role)) {
      notes.push_back(
          fmt::format("{} layers that share a relative bias have different kv heads: their groups "
                      "stay contiguous",
                      name_of(role)));
    }
  }
  return notes;
}

// Notes on what a pooling method cannot do for this model.
std::vector<std::string> pooling_notes(const ConversionPlan& plan) {
  if (!needs_solver(plan.pooling.method) || plan.spec.qk_norm == QkNorm::kNone) {
    return {};
  }
  return {
      fmt::format("queries and keys are normalised, which allows no change of basis: keys are "
                  "averaged, values pooled by {}",
                  name_of(plan.pooling.method))};
}

// Notes on tensors whose block type changes, because the original can be read but not written.
std::vector<std::string> requantising_notes(const ConversionPlan& plan, const Checkpoint& source) {
  std::set<std::string> before;
  std::uint64_t tensors = 0, bytes = 0;
  double smaller = 0.0;
  for (const TensorStep& step : plan.steps) {
    const DType dtype = step.output.dtype;
    const TensorInfo* from = step.moves.empty() ? nullptr : source.find(step.moves.front().source);
    if (from == nullptr || !is_block_type(from->dtype) || !is_block_type(dtype) ||
        dtype == from->dtype || dtype == plan.dtype) {
      continue;
    }
    ++tensors;
    before.emplace(name_of(from->dtype));
    bytes += tensor_bytes(dtype, step.output.shape);
    smaller += static_cast<double>(from->bytes()) / static_cast<double>(from->elements()) *
               static_cast<double>(element_count(step.output.shape));
  }
  if (tensors == 0) {
    return {};
  }
  return {
      fmt::format("{} tensors are recomputed and stored as Q8_0, since {} can be read but not "
                  "written: {} bytes instead of {:.0f}",
                  tensors, fmt::join(before, ", "), bytes, smaller)};
}

}  // namespace

void add_notes(ConversionPlan& plan, const Checkpoint& source) {
  for (const std::vector<std::string>& notes :
       {plan.spec.contradictions, loading_notes(plan), serving_notes(plan), pooling_notes(plan),
        grouping_notes(plan), requantising_notes(plan, source)}) {
    plan.notes.insert(plan.notes.end(), notes.begin(), notes.end());
  }
}

}  // namespace regroup
