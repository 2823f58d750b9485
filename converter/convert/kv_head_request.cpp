#include "converter/convert/kv_head_request.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

#include <fmt/ranges.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/model/serving_cost.h"

namespace regroup {

namespace {

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> found;
  for (std::int64_t i = 1; i <= number; ++i) {
    if (number % i == 0) {
      found.push_back(i);
    }
  }
  return found;
}

// No measurement is larger. Summed over as many layers as a model can have, it stays finite.
constexpr double kLargestCost = 1e300;

// The largest number of bytes that divides all options.
std::uint64_t common_unit(const std::vector<std::vector<LayerOption>>& layers) {
  std::uint64_t unit = 0;
  for (const auto& options : layers) {
    for (const LayerOption& option : options) {
      unit = std::gcd(unit, option.bytes);
    }
  }
  return std::max<std::uint64_t>(unit, 1);
}

// The fewest and the most bytes that all layers together may have.
std::pair<std::uint64_t, std::uint64_t> range_of_bytes(
    const std::vector<std::vector<LayerOption>>& layers) {
  std::uint64_t fewest = 0, most = 0;
  for (const auto& options : layers) {
    const auto [low, high] = std::ranges::minmax_element(options, {}, &LayerOption::bytes);
    fewest += low->bytes;
    most += high->bytes;
  }
  return {fewest, most};
}

void check_costs(const std::vector<std::vector<LayerOption>>& layers) {
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    for (const LayerOption& option : layers[layer]) {
      if (!std::isfinite(option.cost) || std::abs(option.cost) > kLargestCost) {
        throw_bad_input(
            "--kv-budget: layer {} with {} kv heads: the measured cost is {}; regroup eval tells "
            "whether the model gives finite predictions on that text, regroup inspect --stats "
            "which tensors hold NaN, infinities or numbers near the largest",
            layer, option.kv_heads, option.cost);
      }
    }
  }
}

}  // namespace

std::vector<std::int64_t> parse_kv_heads(std::string_view text) {
  std::vector<std::int64_t> heads;
  std::string_view rest = text;
  while (true) {
    const std::string_view item = rest.substr(0, rest.find(','));
    std::int64_t count = 0;
    const auto [end, fault] = std::from_chars(item.data(), item.data() + item.size(), count);
    if (fault != std::errc() || end != item.data() + item.size() || count <= 0) {
      throw_usage(
          "--kv-heads: \"{}\" is neither a positive whole number nor a list of them, one per layer",
          printable(text));
    }
    heads.push_back(count);
    if (item.size() == rest.size()) {
      return heads;
    }
    rest.remove_prefix(item.size() + 1);
  }
}

std::vector<std::int64_t> resolve_kv_heads(const std::vector<std::int64_t>& request,
                                           const ModelSpec& spec, AttentionRole role) {
  const std::vector<std::int64_t>& present = spec.kv_heads_of(role);
  std::vector<std::int64_t> heads = request;
  if (request.size() == 1) {
    heads.assign(present.size(), request.front());
  }
  if (heads.size() != present.size()) {
    throw_usage("--kv-heads lists {} layers, the {} has {}", heads.size(),
                !spec.has_encoder()               ? "model"
                : role == AttentionRole::kEncoder ? "encoder"
                                                  : "decoder",
                present.size());
  }
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const std::int64_t has = present[i];
    if (!spec.attention(role, i).present()) {
      heads[i] = has;
      continue;
    }
    if (heads[i] > has) {
      throw_usage("--kv-heads {}: layer {} has only {} kv heads; regroup expand repeats heads",
                  heads[i], i, has);
    }
    if (heads[i] < 1 || has % heads[i] != 0) {
      throw_usage("--kv-heads {}: does not divide the {} kv heads of layer {}; allowed: {}{}",
                  heads[i], has, i, fmt::join(divisors(has), ", "),
                  kv_cache_cost(spec, DType::kF16) ? "; --kv-budget keeps a share in between" : "");
    }
  }
  return heads;
}

std::vector<std::size_t> choose_within(const std::vector<std::vector<LayerOption>>& layers,
                                       std::uint64_t budget) {
  check_costs(layers);
  const auto [fewest, most] = range_of_bytes(layers);
  if (fewest > budget) {
    const double needed = static_cast<double>(fewest);
    throw_usage(
        "--kv-budget: {:.4g} KiB per token, the fewest kv heads need {:.4g} KiB, which is {:.3g}% "
        "of what the most need",
        static_cast<double>(budget) / 1024.0, needed / 1024.0,
        std::ceil(1000.0 * needed / static_cast<double>(most)) / 10.0);
  }
  const std::uint64_t unit = common_unit(layers);
  const auto room = static_cast<std::size_t>(std::min(budget, most) / unit);
  constexpr double kNever = std::numeric_limits<double>::infinity();
  // least[u]: the least cost of the layers so far in exactly u units. choice[l][u]: the option that
  // layer l has in it.
  std::vector<double> least(room + 1, kNever);
  least[0] = 0.0;
  std::vector<std::vector<std::size_t>> choice;
  for (const auto& options : layers) {
    std::vector<double> next(room + 1, kNever);
    std::vector<std::size_t>& chosen = choice.emplace_back(room + 1, 0);
    for (std::size_t o = 0; o < options.size(); ++o) {
      const auto units = static_cast<std::size_t>(options[o].bytes / unit);
      for (std::size_t u = units; u <= room; ++u) {
        if (least[u - units] + options[o].cost < next[u]) {
          next[u] = least[u - units] + options[o].cost;
          chosen[u] = o;
        }
      }
    }
    least = std::move(next);
  }
  auto units = static_cast<std::size_t>(std::ranges::min_element(least) - least.begin());
  std::vector<std::size_t> result(layers.size());
  for (std::size_t l = layers.size(); l-- > 0;) {
    result[l] = choice[l][units];
    units -= static_cast<std::size_t>(layers[l][result[l]].bytes / unit);
  }
  return result;
}

}  // namespace regroup
