#include "cli/measure/kv_budget.h"

#include <algorithm>
#include <map>

#include "cli/shell/progress.h"
#include "cli/shell/quantity.h"
#include "cli/shell/standard_streams.h"
#include "converter/convert/kv_head_request.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/model/serving_cost.h"
#include "uptrain/model/device.h"
#include "uptrain/model/language_model.h"
#include "uptrain/train/sensitivity.h"

namespace regroup {
namespace {

// The choices of every layer: the numbers of kv heads that were measured, and its present number.
std::vector<std::vector<LayerOption>> options_of(const Model& source,
                                                 const std::vector<std::uint64_t>& bytes,
                                                 const std::vector<Sensitivity>& measured) {
  std::vector<std::vector<LayerOption>> layers;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    layers.push_back({{source.spec.kv_heads[i], bytes[i], 0.0}});
  }
  for (const Sensitivity& each : measured) {
    const LayerOption& present = layers[each.layer].front();
    layers[each.layer].push_back({each.kv_heads,
                                  present.bytes / static_cast<std::uint64_t>(present.kv_heads) *
                                      static_cast<std::uint64_t>(each.kv_heads),
                                  std::max(each.divergence, 0.0)});
  }
  return layers;
}

// One kv head is among the choices of each layer, and the least.
void check_some_heads_fit(const Model& source, const std::vector<std::uint64_t>& bytes,
                          std::uint64_t budget) {
  std::vector<Sensitivity> fewest;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] > 0) {
      fewest.push_back({.layer = i, .kv_heads = 1});
    }
  }
  choose_within(options_of(source, bytes, fewest), budget);
}

// Sets the largest number of kv heads that all layers can have within the budget.
void add_uniform(const std::vector<std::vector<LayerOption>>& layers, KvBudget& result) {
  std::map<std::int64_t, std::pair<std::uint64_t, double>> sums;
  for (const auto& options : layers) {
    for (const LayerOption& option : options) {
      sums[option.kv_heads].first += option.bytes;
      sums[option.kv_heads].second += option.cost;
    }
  }
  for (const auto& [kv_heads, sum] : sums) {
    const bool everywhere = std::ranges::all_of(layers, [count = kv_heads](const auto& options) {
      return contains(options, count, &LayerOption::kv_heads);
    });
    if (everywhere && sum.first <= result.budget) {
      result.uniform_kv_heads = kv_heads;
      result.uniform_divergence = sum.second;
    }
  }
}

}  // namespace

KvBudget open_kv_budget(const Model& source, const ConvertOptions& options) {
  if (options.budget.data.empty() && !options.text.given()) {
    throw_usage(
        "--kv-budget needs a text to measure layers on: --text, or --kv-budget-data with a token "
        "file");
  }
  check_computable("--kv-budget", source);
  check_predicts(source);
  check_measurable(source.spec);
  KvBudget result;
  result.dtype = options.request.dtype ? cache_dtype_of(*options.request.dtype)
                                       : cache_dtype_of(source.spec, source.checkpoint);
  const auto cost = kv_cache_cost(source.spec, result.dtype);
  if (!cost) {
    throw_usage("--kv-budget: {} has no KV cache", printable(source.spec.architecture));
  }
  result.source_bytes = cost->per_token();
  result.budget = parse_bytes_or_share("--kv-budget", options.budget.budget, result.source_bytes);
  if (result.budget >= result.source_bytes) {
    throw_usage(
        "--kv-budget: {} is no less than the source's cache, {} per token: nothing would "
        "change",
        options.budget.budget, text_of_bytes(result.source_bytes));
  }
  check_some_heads_fit(source, cost->self, result.budget);
  return result;
}

KvBudget share_kv_budget(const Model& source, const ConvertOptions& options,
                         const Console& console) {
  KvBudget result = open_kv_budget(source, options);
  set_compute_threads(options.threads);
  const WindowSettings windows{.context = options.refit.context,
                               .batch = options.refit.batch,
                               .max_tokens = options.budget.max_tokens};
  const TokenFile data = TokenFile::open(options.budget.data);
  const std::int64_t batches = (count_windows(data, windows) - 1) / windows.batch + 1;
  Progress progress(console, "measure",
                    source.spec.layers.size() + static_cast<std::uint64_t>(batches), "steps");
  std::vector<Sensitivity> measured;
  with_torch_errors([&] {
    const c10::Device device = parse_device(options.device);
    measured =
        measure_sensitivity(source, options.request, data, windows, device, progress.callback(),
                            interrupt_requested(), scalar_type_of(fast_precision(device)));
  });
  progress.finish();
  const auto layers = options_of(source, kv_cache_cost(source.spec, result.dtype)->self, measured);
  const std::vector<std::size_t> chosen = choose_within(layers, result.budget);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerOption& option = layers[i][chosen[i]];
    result.layers.push_back({i, option.kv_heads, option.bytes, option.cost});
  }
  add_uniform(layers, result);
  return result;
}

}  // namespace regroup
