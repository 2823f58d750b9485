#include "formats/model/serving_cost.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/families/family.h"
#include "formats/model/model_summary.h"

namespace regroup {

namespace {

std::uint64_t sum_of(const std::vector<std::uint64_t>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
}

// Bytes of the keys and values of one token per layer, 0 without attention. Block types take whole
// blocks.
std::vector<std::uint64_t> bytes_per_layer(const ModelSpec& spec, AttentionRole role,
                                           const std::vector<std::int64_t>& kv_heads, DType dtype) {
  std::vector<std::uint64_t> bytes;
  for (std::size_t i = 0; i < kv_heads.size(); ++i) {
    const bool attends = spec.attention(role, i).present();
    const auto elements = static_cast<std::uint64_t>(attends ? kv_heads[i] * spec.head_dim : 0);
    const std::uint64_t in_block = block_elements(dtype);
    bytes.push_back(2 * ((elements + in_block - 1) / in_block) * block_bytes(dtype));
  }
  return bytes;
}

}  // namespace

DType cache_dtype_of(DType weights) { return is_pooling_dtype(weights) ? weights : DType::kF16; }

DType cache_dtype_of(const ModelSpec& spec, const Checkpoint& checkpoint) {
  for (const LayerTensors& layer : spec.layers) {
    if (layer.attention.present()) {
      return cache_dtype_of(checkpoint.at(layer.attention.k.weight).dtype);
    }
  }
  return DType::kF16;
}

std::uint64_t KvCacheCost::per_token() const { return sum_of(self); }

std::uint64_t KvCacheCost::cross_per_token() const { return sum_of(cross); }

std::uint64_t KvCacheCost::at(std::uint64_t tokens) const {
  return (per_token() - unlimited) * std::min(tokens, window.value_or(tokens)) +
         (unlimited + cross_per_token()) * tokens;
}

std::optional<KvCacheCost> kv_cache_cost(const ModelSpec& spec, DType dtype) {
  return kv_cache_cost(spec, spec.kv_heads, spec.cross_kv_heads, dtype);
}

std::optional<KvCacheCost> kv_cache_cost(const ModelSpec& spec,
                                         const std::vector<std::int64_t>& self_heads,
                                         const std::vector<std::int64_t>& cross_heads,
                                         DType dtype) {
  if (!spec.causal) {
    return std::nullopt;
  }
  KvCacheCost cost;
  cost.self = bytes_per_layer(spec, AttentionRole::kSelf, self_heads, dtype);
  if (spec.has_encoder()) {
    cost.cross = bytes_per_layer(spec, AttentionRole::kCross, cross_heads, dtype);
  }
  if (spec.sliding_window) {
    cost.window = static_cast<std::uint64_t>(*spec.sliding_window);
    for (std::size_t i = 0; i < cost.self.size(); ++i) {
      cost.unlimited += spec.layers[i].without_window ? cost.self[i] : 0;
    }
  }
  return cost;
}

namespace {

// Roles that are both requested and present.
std::vector<AttentionRole> roles_of(const ModelSpec& spec, const ServingQuestion& question) {
  std::vector<AttentionRole> roles = spec.roles();
  std::erase_if(roles, [&](AttentionRole role) { return !contains(question.roles, role); });
  return roles;
}

bool divides_all(const ModelSpec& spec, const std::vector<AttentionRole>& roles, std::int64_t g) {
  return std::ranges::all_of(roles, [&](AttentionRole role) {
    const auto& heads = spec.kv_heads_of(role);
    return std::ranges::all_of(heads, [&](std::int64_t h) { return h % g == 0; });
  });
}

// Pooled tensors of a type that cannot be written are stored as Q8_0.
std::uint64_t bytes_when_written(DType dtype, const Shape& shape) {
  return tensor_bytes(can_encode(dtype) || !is_block_type(dtype) ? dtype : DType::kQ8_0, shape);
}

// The number of bytes by which the attention's tensors shrink to those of `after`. All of them are
// written again, since conversion with a text changes queries and outputs as well.
std::int64_t bytes_saved(const Checkpoint& checkpoint, const ModelSpec& after) {
  std::int64_t saved = 0;
  for (const ExpectedTensor& tensor : expected_attention_tensors(after)) {
    const TensorInfo& info = checkpoint.at(tensor.name);
    saved += static_cast<std::int64_t>(info.bytes()) -
             static_cast<std::int64_t>(bytes_when_written(info.dtype, tensor.shape));
  }
  return saved;
}

// Every possible smaller number of kv heads for all layers of those roles, in descending order.
std::vector<std::int64_t> smaller_kv_heads(const ModelSpec& spec,
                                           const std::vector<AttentionRole>& roles) {
  std::int64_t most = 0;
  for (const AttentionRole role : roles) {
    for (const std::int64_t heads : spec.kv_heads_of(role)) {
      most = std::max(most, heads);
    }
  }
  std::vector<std::int64_t> found;
  for (std::int64_t g = most - 1; g >= 1; --g) {
    if (divides_all(spec, roles, g)) {
      found.push_back(g);
    }
  }
  return found;
}

ServingCost cost_as_it_is(const Model& model, const ModelSpec& spec, const KvCacheCost& cache) {
  ServingCost cost{.kv_heads = std::nullopt,
                   .spec = spec,
                   .weight_bytes = 0,
                   .step_weight_bytes = bytes_read_per_step(spec, model.checkpoint),
                   .expert_bytes = bytes_of_experts(spec, model.checkpoint),
                   .cache = cache};
  for (const TensorInfo& tensor : model.checkpoint.tensors()) {
    cost.weight_bytes += tensor.bytes();
  }
  return cost;
}

// Encoders run once before the first step, so their savings do not count per step.
ServingCost cost_with(std::int64_t kv_heads, const std::vector<AttentionRole>& roles,
                      const ServingCost& now, DType dtype, const Checkpoint& checkpoint) {
  ServingCost cost = now;
  cost.kv_heads = kv_heads;
  ModelSpec decoder = now.spec;
  for (const AttentionRole role : roles) {
    for (std::int64_t& heads : cost.spec.kv_heads_of(role)) {
      heads = heads == 0 ? 0 : kv_heads;
    }
    if (role != AttentionRole::kEncoder) {
      decoder.kv_heads_of(role) = cost.spec.kv_heads_of(role);
    }
  }
  cost.weight_bytes -= bytes_saved(checkpoint, cost.spec);
  cost.step_weight_bytes -= bytes_saved(checkpoint, decoder);
  cost.cache = *kv_cache_cost(cost.spec, dtype);
  return cost;
}

std::optional<std::int64_t> declared_positions(const Model& model) {
  const bool scales = model.spec.positions == PositionKind::kRope &&
                      model.spec.rope.scaling.kind == RopeScaling::Kind::kDynamic;
  return scales ? std::nullopt : model.spec.max_positions;
}

std::optional<std::int64_t> uptrained_length(const Model& model) {
  const auto training = record_of(model).training.value;
  const std::uint64_t length = training ? training->sequence_length.value_or(0) : 0;
  return length > 0 && std::in_range<std::int64_t>(length)
             ? std::optional(static_cast<std::int64_t>(length))
             : std::nullopt;
}

}  // namespace

std::uint64_t ServingCost::memory(std::uint64_t tokens, std::uint64_t batch) const {
  return weight_bytes + batch * cache.at(tokens);
}

std::uint64_t ServingCost::largest_batch(std::uint64_t memory, std::uint64_t tokens) const {
  const std::uint64_t each = cache.at(tokens);
  return memory <= weight_bytes || each == 0 ? 0 : (memory - weight_bytes) / each;
}

std::optional<std::uint64_t> ServingCost::largest_context(std::uint64_t memory,
                                                          std::uint64_t batch) const {
  const std::uint64_t free = memory <= weight_bytes ? 0 : (memory - weight_bytes) / batch;
  const std::uint64_t each = cache.per_token() + cache.cross_per_token();
  const std::uint64_t tokens = each == 0 ? 0 : free / each;
  if (!cache.window || tokens < *cache.window) {
    return tokens;
  }
  const std::uint64_t growing = cache.unlimited + cache.cross_per_token();
  if (growing == 0) {
    return std::nullopt;
  }
  return (free - (cache.per_token() - cache.unlimited) * *cache.window) / growing;
}

std::uint64_t ServingCost::bytes_per_step(std::uint64_t tokens, std::uint64_t batch) const {
  const double more_experts =
      static_cast<double>(expert_bytes) * (spec.share_of_experts(batch) - spec.share_of_experts(1));
  return step_weight_bytes + static_cast<std::uint64_t>(more_experts) + batch * cache.at(tokens);
}

std::vector<ServingCost> serving_costs(const Model& model, const ServingQuestion& question) {
  const Checkpoint& checkpoint = model.checkpoint;
  const ModelSpec spec = with_stored_heads(model.spec, checkpoint);  // even if the config disagrees
  const DType dtype = question.cache_dtype.value_or(cache_dtype_of(spec, checkpoint));
  const auto now = kv_cache_cost(spec, dtype);
  if (!now) {
    throw_usage(
        "{}: {} has no KV cache to plan; inspect shows its heads, convert --dry-run what "
        "fewer change",
        printable_path(model.path), printable(spec.architecture));
  }
  const std::vector<AttentionRole> roles = roles_of(spec, question);
  std::vector<ServingCost> costs{cost_as_it_is(model, spec, *now)};
  for (const std::int64_t kv_heads : smaller_kv_heads(spec, roles)) {
    costs.push_back(cost_with(kv_heads, roles, costs.front(), dtype, checkpoint));
  }
  return costs;
}

std::int64_t usual_context(const Model& model, std::int64_t wanted) {
  return std::min({wanted, declared_positions(model).value_or(wanted),
                   uptrained_length(model).value_or(wanted)});
}

std::string warning_of_positions(const Model& model, std::int64_t length) {
  const auto declared = declared_positions(model);
  return declared && length > *declared
             ? fmt::format("{}: windows of {} tokens, the config declares {} positions",
                           printable_path(model.path), fmt::group_digits(length),
                           fmt::group_digits(*declared))
             : "";
}

std::string warning_of_context(const Model& model, std::int64_t length) {
  const auto trained = uptrained_length(model);
  if (std::string warning = warning_of_positions(model, length); !warning.empty()) {
    return warning;
  }
  return trained && length > *trained
             ? fmt::format("{}: windows of {} tokens, the model was uptrained on windows of {}",
                           printable_path(model.path), fmt::group_digits(length),
                           fmt::group_digits(*trained))
             : "";
}

}  // namespace regroup
