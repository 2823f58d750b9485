// Shapes: H query heads, N kv heads before and G after, n = N / G, m = H / N, d features per head,
// D inputs, E outputs.
#include "converter/pooling/pool_attention.h"

#include <string_view>

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "converter/pooling/aligned.h"
#include "converter/pooling/combination.h"
#include "converter/pooling/lowrank.h"
#include "converter/pooling/select.h"
#include "formats/error.h"
#include "formats/printable.h"

namespace regroup {
namespace {

// The numbers themselves, not a copy.
at::Tensor view_of(const std::vector<double>& values, std::vector<std::int64_t> shape) {
  return at::from_blob(const_cast<double*>(values.data()), shape, at::kDouble);
}

// Heads of one linear map: weight [heads, d, D] and bias [heads, d], undefined where there is none.
struct HeadMaps {
  at::Tensor weight, bias;

  HeadMaps(const DenseLinear& linear, std::int64_t head_dim)
      : weight(view_of(linear.weight, {linear.outputs / head_dim, head_dim, linear.inputs})) {
    if (!linear.bias.empty()) {
      bias = view_of(linear.bias, {linear.outputs / head_dim, head_dim});
    }
  }
};

struct Views {
  HeadMaps q, k, v;
  at::Tensor o;  // [E, H, d]

  explicit Views(const AttentionHeads& heads)
      : q(heads.q, heads.head_dim),
        k(heads.k, heads.head_dim),
        v(heads.v, heads.head_dim),
        o(view_of(heads.o.weight, {heads.o.outputs, heads.query_heads, heads.head_dim})) {}
};

// Expectations of linear functions of inputs with given moments.
class Inputs {
 public:
  explicit Inputs(const InputMoments& moments)
      : mean_(view_of(moments.mean, {moments.width()})),
        diagonal_(moments.covariance.empty()),
        covariance_(diagonal_ ? view_of(moments.variance, {moments.width()})
                              : view_of(moments.covariance, {moments.width(), moments.width()})) {}

  // What the maps give on average: [heads, d].
  at::Tensor mean_of(const at::Tensor& weight, const at::Tensor& bias) const {
    const at::Tensor mean = at::matmul(weight, mean_);
    return bias.defined() ? mean + bias : mean;
  }

  // weight · C, C the covariance: [heads, d, D].
  at::Tensor times_covariance(const at::Tensor& weight) const {
    return diagonal_ ? weight * covariance_ : at::matmul(weight, covariance_);
  }

 private:
  at::Tensor mean_;
  bool diagonal_;
  at::Tensor covariance_;  // [D] or [D, D]
};

// E[x xᵀ] of each head by itself: [heads, d, d].
at::Tensor powers_of_heads(const HeadMaps& maps, const Inputs& inputs) {
  const at::Tensor mean = inputs.mean_of(maps.weight, maps.bias);
  return at::bmm(inputs.times_covariance(maps.weight), maps.weight.transpose(1, 2)) +
         mean.unsqueeze(2) * mean.unsqueeze(1);
}

// E[x_i x_jᵀ] of the heads of one group, [n, d, n, d]. The means of features with a 0 in
// `counts_mean` [d] do not matter.
at::Tensor gram_of(const at::Tensor& weight, const at::Tensor& bias, const Inputs& inputs,
                   const at::Tensor& counts_mean) {
  const std::int64_t n = weight.size(0), d = weight.size(1);
  const at::Tensor rows = weight.reshape({n * d, -1});
  const at::Tensor mean = (inputs.mean_of(weight, bias) * counts_mean).reshape({n * d});
  const at::Tensor gram = at::matmul(inputs.times_covariance(rows), rows.t());
  return (gram + mean.unsqueeze(1) * mean).view({n, d, n, d});
}

// Readers of kv heads: query heads' matrices [H, d, d] summed over those of each kv head.
at::Tensor per_kv_head(const at::Tensor& of_query_heads, std::int64_t kv_heads) {
  const std::int64_t d = of_query_heads.size(1);
  return of_query_heads.view({kv_heads, -1, d, d}).sum(1);
}

Combination combine(PoolMethod method, const GroupProblem& problem, std::int64_t chosen) {
  switch (method) {
    case PoolMethod::kAligned: return solve_aligned(problem);
    case PoolMethod::kLowrank: return solve_lowrank(problem);
    case PoolMethod::kMean: return mean_combination(problem);
    default: break;
  }
  Combination one = mean_combination(problem);
  one.mix = at::zeros_like(one.mix);
  one.mix.select(0, chosen).copy_(one.back.select(0, chosen));
  return one;
}

// Which features' means count, [d]. A mean key adds the same to all scores of a query, unless it
// rotates; a mean value goes into the output's bias, if there is one.
at::Tensor rotating_features(const HeadBasis& basis, std::int64_t head_dim) {
  at::Tensor counts = at::zeros({head_dim}, at::kDouble);
  for (const auto& [a, b] : basis.planes) {
    counts[a] = 1.0;
    counts[b] = 1.0;
  }
  return basis.fixed() ? counts + 1.0 : counts;
}

class LayerPooling {
 public:
  LayerPooling(const AttentionHeads& source, const PoolingTask& task, AttentionHeads& target)
      : task_(task),
        source_(source),
        target_(target),
        query_inputs_(task.query_inputs),
        kv_inputs_(task.kv_inputs),
        members_(source.kv_heads / task.groups),
        readers_(source.query_heads / source.kv_heads),
        has_output_bias_(!source.o.bias.empty()) {
    const at::Tensor queries = powers_of_heads(source_.q, query_inputs_);
    const bool rotates = !task.key_basis.planes.empty();
    key_weight_ = per_kv_head(rotates ? averaged_over_rotations(queries, task.key_basis) : queries,
                              source.kv_heads);
    value_weight_ =
        per_kv_head(at::einsum("eha,ehb->hab", {source_.o, source_.o}), source.kv_heads);
    counts_key_mean_ = rotating_features(task.key_basis, source.head_dim);
    counts_value_mean_ = at::zeros({source.head_dim}, at::kDouble) + (has_output_bias_ ? 0.0 : 1.0);
    chosen_ = task.method == PoolMethod::kSelect ? select_heads(source, task.groups, task.kv_inputs)
                                                 : task.chosen;
  }

  GroupReport pool_group(std::int64_t group) {
    const std::int64_t first = group * members_;
    const GroupProblem keys{gram_of(part(source_.k.weight, first), part(source_.k.bias, first),
                                    kv_inputs_, counts_key_mean_),
                            key_weight_.narrow(0, first, members_), task_.key_basis};
    const GroupProblem values{gram_of(part(source_.v.weight, first), part(source_.v.bias, first),
                                      kv_inputs_, counts_value_mean_),
                              value_weight_.narrow(0, first, members_),
                              free_basis(source_.v.weight.size(1))};
    const std::int64_t chosen =
        chosen_.empty() ? 0 : chosen_[static_cast<std::size_t>(group)] - first;
    const Combination key = combine(task_.method, keys, chosen);
    const Combination value = combine(task_.method, values, chosen);
    put_shared(source_.k, target_.k, key.mix, group);
    put_shared(source_.v, target_.v, value.mix, group);
    put_queries(key.back, first);
    put_outputs(value.back, first);
    const Fidelity of_keys = fidelity_of(keys, key), of_values = fidelity_of(values, value);
    return {of_keys.energy, of_values.energy, of_keys.norm, of_values.norm};
  }

  // Σ_h O_h E[v_h] before minus after: what the output's bias gains, [E].
  at::Tensor mean_error() const {
    const auto output = [&](const Views& views) {
      const at::Tensor values = kv_inputs_.mean_of(views.v.weight, views.v.bias);
      const std::int64_t copies = views.q.weight.size(0) / values.size(0);
      return at::einsum("eha,ha->e", {views.o, values.repeat_interleave(copies, 0)});
    };
    return output(source_) - output(target_);
  }

 private:
  at::Tensor part(const at::Tensor& heads, std::int64_t first) const {
    return heads.defined() ? heads.narrow(0, first, members_) : heads;
  }

  void put_shared(const HeadMaps& from, const HeadMaps& to, const at::Tensor& mix,
                  std::int64_t group) const {
    const std::int64_t d = mix.size(1);
    const at::Tensor wide = mix.transpose(0, 1).reshape({d, -1});  // [d, n·d]
    const at::Tensor rows = part(from.weight, group * members_).reshape({wide.size(1), -1});
    to.weight.select(0, group).copy_(at::matmul(wide, rows));
    if (from.bias.defined()) {
      to.bias.select(0, group).copy_(
          at::matmul(wide, part(from.bias, group * members_).reshape({-1})));
    }
  }

  // q·(back x) = (backᵀ q)·x
  void put_queries(const at::Tensor& back, std::int64_t first) const {
    for (std::int64_t h = first * readers_; h < (first + members_) * readers_; ++h) {
      const at::Tensor matrix = back.select(0, h / readers_ - first).t();
      target_.q.weight.select(0, h).copy_(at::matmul(matrix, source_.q.weight.select(0, h)));
      if (source_.q.bias.defined()) {
        target_.q.bias.select(0, h).copy_(at::matmul(matrix, source_.q.bias.select(0, h)));
      }
    }
  }

  void put_outputs(const at::Tensor& back, std::int64_t first) const {
    for (std::int64_t h = first * readers_; h < (first + members_) * readers_; ++h) {
      target_.o.select(1, h).copy_(
          at::matmul(source_.o.select(1, h), back.select(0, h / readers_ - first)));
    }
  }

  const PoolingTask& task_;
  Views source_, target_;
  Inputs query_inputs_, kv_inputs_;
  std::int64_t members_, readers_;
  bool has_output_bias_;
  at::Tensor key_weight_, value_weight_;            // [N, d, d]
  at::Tensor counts_key_mean_, counts_value_mean_;  // [d]
  std::vector<std::int64_t> chosen_;
};

DenseLinear fewer_rows(const DenseLinear& linear, std::int64_t rows) {
  DenseLinear result{rows, linear.inputs, {}, {}};
  result.weight.resize(static_cast<std::size_t>(rows * linear.inputs));
  result.bias.resize(linear.bias.empty() ? 0 : static_cast<std::size_t>(rows));
  return result;
}

}  // namespace

namespace {

PooledAttention pool_layer(const AttentionHeads& heads, const PoolingTask& task) {
  if (task.groups < 1 || heads.kv_heads % task.groups != 0) {
    throw_usage("{} kv heads cannot become {}: no divisor", heads.kv_heads, task.groups);
  }
  PooledAttention result;
  result.groups.resize(static_cast<std::size_t>(task.groups));
  result.heads = heads;
  if (task.groups == heads.kv_heads) {
    return result;
  }
  result.heads.kv_heads = task.groups;
  result.heads.k = fewer_rows(heads.k, task.groups * heads.head_dim);
  result.heads.v = fewer_rows(heads.v, task.groups * heads.head_dim);
  LayerPooling pooling(heads, task, result.heads);
  for (std::int64_t group = 0; group < task.groups; ++group) {
    result.groups[static_cast<std::size_t>(group)] = pooling.pool_group(group);
  }
  if (changes_readers(task.method) && !heads.o.bias.empty()) {
    at::Tensor bias = view_of(result.heads.o.bias, {heads.o.outputs});
    bias += pooling.mean_error();
  }
  return result;
}

}  // namespace

PooledAttention pool_attention(const AttentionHeads& heads, const PoolingTask& task) {
  try {
    return pool_layer(heads, task);
  } catch (const c10::Error& fault) {  // no memory, or an eigenproblem that does not converge
    const std::string_view text = fault.what_without_backtrace();
    throw_environment("pooling method {}: {}", name_of(task.method),
                      printable(text.substr(0, text.find('\n'))));
  }
}

}  // namespace regroup
