#include "formats/inspect/serving_cost.h"

#include <algorithm>
#include <unordered_map>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/dtype/numbers.h"
#include "formats/families/family.h"
#include "formats/inspect/model_parts.h"

namespace regroup {
namespace {

// Roles that are both requested and present.
std::vector<AttentionRole> roles_of(const ModelSpec& spec, const ServingQuestion& question) {
  std::vector<AttentionRole> roles = spec.roles();
  std::erase_if(roles, [&](AttentionRole role) {
    return std::find(question.roles.begin(), question.roles.end(), role) == question.roles.end();
  });
  return roles;
}

bool divides_all(const ModelSpec& spec, const std::vector<AttentionRole>& roles, std::int64_t g) {
  return std::all_of(roles.begin(), roles.end(), [&](AttentionRole role) {
    const auto& heads = spec.kv_heads_of(role);
    return std::all_of(heads.begin(), heads.end(), [&](std::int64_t h) { return h % g == 0; });
  });
}

// Pooled tensors of a type that cannot be written are stored as Q8_0.
std::uint64_t bytes_when_written(DType dtype, const Shape& shape) {
  return tensor_bytes(can_encode(dtype) || !is_block_type(dtype) ? dtype : DType::kQ8_0, shape);
}

// The number of bytes by which the attention's tensors shrink from `before` to `after`.
std::int64_t bytes_saved(const Checkpoint& checkpoint, const ModelSpec& before,
                         const ModelSpec& after) {
  std::unordered_map<std::string, Shape> shapes;
  for (ExpectedTensor& tensor : expected_attention_tensors(before)) {
    shapes.emplace(std::move(tensor.name), std::move(tensor.shape));
  }
  std::int64_t saved = 0;
  for (const ExpectedTensor& tensor : expected_attention_tensors(after)) {
    if (shapes.at(tensor.name) != tensor.shape) {
      const TensorInfo& info = checkpoint.at(tensor.name);
      saved += static_cast<std::int64_t>(info.bytes()) -
               static_cast<std::int64_t>(bytes_when_written(info.dtype, tensor.shape));
    }
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
  cost.weight_bytes -= bytes_saved(checkpoint, now.spec, cost.spec);
  cost.step_weight_bytes -= bytes_saved(checkpoint, now.spec, decoder);
  cost.cache = *kv_cache_cost(cost.spec, dtype);
  return cost;
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
    throw_usage("{}: {} has no KV cache to plan", printable(model.path.string(), 0),
                printable(spec.architecture));
  }
  const std::vector<AttentionRole> roles = roles_of(spec, question);
  std::vector<ServingCost> costs{cost_as_it_is(model, spec, *now)};
  for (const std::int64_t kv_heads : smaller_kv_heads(spec, roles)) {
    costs.push_back(cost_with(kv_heads, roles, costs.front(), dtype, checkpoint));
  }
  return costs;
}

}  // namespace regroup
