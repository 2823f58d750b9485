#include "uptrain/layerwise/text_chance.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>
#include <vector>

#include "uptrain/data/spread_windows.h"
#include "uptrain/layerwise/text_quality.h"
#include "uptrain/objective/objective.h"

namespace regroup {
namespace {

constexpr std::int64_t kMeasuredTokens = 2048;
constexpr std::int64_t kCountedTokens = std::int64_t{1} << 20;
constexpr std::int64_t kCountedWindow = 4096;

}  // namespace

double entropy_of_frequencies(const TokenFile& text) {
  std::unordered_map<std::int64_t, double> counts;
  const std::int64_t width = std::min(kCountedWindow, text.size());
  const std::int64_t all = text.size() / width;
  std::vector<std::int64_t> ids(static_cast<std::size_t>(width));
  double tokens = 0.0;
  for (const std::int64_t window :
       spread_windows(all, std::min(all, kCountedTokens / kCountedWindow))) {
    text.read(window * width, ids);
    for (const std::int64_t id : ids) {
      counts[id] += 1.0;
    }
    tokens += static_cast<double>(width);
  }
  double entropy = (static_cast<double>(counts.size()) - 1.0) / (2.0 * tokens);
  for (const auto& [id, count] : counts) {
    entropy -= count / tokens * std::log(count / tokens);
  }
  return entropy;
}

std::optional<TextChance> compare_with_chance(const Model& model, const TokenFile& text,
                                              std::int64_t context, c10::Device device,
                                              const std::atomic<bool>& stop,
                                              std::function<void()> after_layer) {
  const auto task = evaluation_task(model, context);
  const std::int64_t windows = (text.size() - 1) / context;
  if (!task || task->objective != Objective::kNextToken || windows < 1) {
    return std::nullopt;
  }
  const WindowRange part{.windows = std::clamp<std::int64_t>(kMeasuredTokens / context, 1, windows),
                         .context = context,
                         .spread_over = windows};
  const TextQualityMeter meter(model, text, part, device, stop, std::move(after_layer));
  return TextChance{meter.predicted_tokens(), meter.of_source().loss.value(),
                    std::log(static_cast<double>(model.spec.vocab_size)),
                    entropy_of_frequencies(text)};
}

}  // namespace regroup
