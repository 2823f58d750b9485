// Shapes: heads of d features, D inputs; n features of a map, of all its heads.
#include "converter/pooling/absorbed_norms.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/TensorOperators.h>
#include <ATen/ops/atan2.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/index.h>
#include <ATen/ops/index_put.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/where.h>

namespace regroup {
namespace {

using Values = std::vector<double>;

double size_of(const Values& weight) {
  return std::sqrt(std::inner_product(weight.begin(), weight.end(), weight.begin(), 0.0) /
                   static_cast<double>(weight.size()));
}

void scale_row(DenseLinear& linear, std::int64_t row, double scale) {
  const auto first = linear.weight.begin() + row * linear.inputs;
  std::for_each(first, first + linear.inputs, [&](double& weight) { weight *= scale; });
  if (!linear.bias.empty()) {
    linear.bias[static_cast<std::size_t>(row)] *= scale;
  }
}

// The root mean square over the text of what is normalised together, for each head: [heads].
Values sizes_of(const DenseLinear& linear, const AttentionHeads& heads, const InputMoments& inputs,
                const PoolingTask& task) {
  const c10::Device device(task.device);
  const HeadMaps maps(linear, heads.head_dim, device);
  const HeadMoments moments(maps, MomentTensors(inputs, device),
                            at::ones({heads.head_dim}, maps.weight.options()), task.stop);
  const at::Tensor powers = moments.powers().diagonal(0, 1, 2).mean(1);
  const at::Tensor sizes =
      (normalises_each_head(heads) ? powers : powers.mean().expand_as(powers)).sqrt();
  const at::Tensor all = sizes.to(at::kCPU).contiguous();
  return {all.const_data_ptr<double>(), all.const_data_ptr<double>() + all.numel()};
}

// Returns the sizes of the heads, by which they are divided.
Values fold(const DenseLinear& norm, const AttentionHeads& heads, const InputMoments& inputs,
            const PoolingTask& task, DenseLinear& linear) {
  Values sizes = sizes_of(linear, heads, inputs, task);
  std::ranges::replace(sizes, 0.0, 1.0);
  for (std::int64_t row = 0; row < linear.outputs; ++row) {
    const double weight = norm.weight[static_cast<std::size_t>(row % norm.outputs)];
    scale_row(linear, row,
              (weight + heads.norm_offset) / sizes[static_cast<std::size_t>(row / heads.head_dim)]);
  }
  return sizes;
}

// Which multiple of each feature's square adds up to the source's mean square, for every token.
//
// Minimises E[(Σ a_i k_i² − s)²] over a that are not much smaller than equal ones, where s is the
// mean square of the source's features: G a = g with G_ij = E[k_i² k_j²] and g_i = E[k_i² s].
// Fourth moments are those of a normal distribution with the inputs' mean and covariance: Cov(x²,
// y²) = 2 Cov(x, y)² + 4 E[x] E[y] Cov(x, y).
class EvenNorm {
 public:
  EvenNorm(const DenseLinear& shared, const DenseLinear& source, const InputMoments& inputs,
           std::int64_t head_dim, c10::Device device)
      : shared_(shared, head_dim, device), source_(source, head_dim, device) {
    const MomentTensors moments(inputs, device);
    const auto rows = [](const at::Tensor& weight) { return weight.flatten(0, 1); };
    const at::Tensor own = rows(shared_.weight), other = rows(source_.weight);
    const at::Tensor seen =
        moments.covariance.defined() ? at::matmul(own, moments.covariance) : own * moments.variance;
    const at::Tensor mean = mean_of(shared_, moments).flatten();
    const at::Tensor other_mean = mean_of(source_, moments).flatten();
    const at::Tensor within = at::matmul(seen, own.t());
    powers_ = within.diagonal() + mean.square();
    const double unit = std::max(powers_.mean().item<double>(), 1e-300);
    squares_ = (of_squares(within, mean, mean) + at::outer(powers_, powers_)) / (unit * unit);
    const at::Tensor across = of_squares(at::matmul(seen, other.t()), mean, other_mean);
    const double size = power_of(other, other_mean, moments);
    target_ = (across.mean(1) / std::max(size, 1e-300) + powers_) / unit;
  }

  // The multiples, [n]. None is below kLeast times what equal ones would be.
  Values multiples() const {
    constexpr double kPrior = 1e-3;  // the weight of equal multiples, for what hardly matters
    constexpr double kLeast = 0.3;   // norms divide by their roots, and smaller ones train badly
    constexpr int kSweeps = 300;
    const std::int64_t n = target_.size(0);
    if (!(powers_.sum().item<double>() > 0.0)) {  // keys are zero
      return Values(static_cast<std::size_t>(n), 1.0);
    }
    const at::Tensor matrix = squares_.to(at::kCPU).contiguous();
    const at::Tensor wanted = target_.to(at::kCPU).contiguous();
    const double* g = matrix.const_data_ptr<double>();
    const double* t = wanted.const_data_ptr<double>();
    const double equal = wanted.sum().item<double>() / matrix.sum().item<double>();
    const double prior = kPrior * matrix.diagonal().mean().item<double>();
    Values found(static_cast<std::size_t>(n), equal);
    for (int sweep = 0; sweep < kSweeps; ++sweep) {  // one by one, which needs no step size
      double change = 0.0;
      for (std::int64_t i = 0; i < n; ++i) {
        double& each = found[static_cast<std::size_t>(i)];
        const double sum = std::inner_product(found.begin(), found.end(), g + i * n, 0.0);
        const double slope = t[i] - sum + prior * (equal - each);
        const double next = std::max(kLeast * equal, each + slope / (g[i * n + i] + prior));
        change = std::max(change, std::abs(next - each) / equal);
        each = next;
      }
      if (change < 1e-6) {
        break;
      }
    }
    return found;
  }

  // The root mean square over the text of all features, each with its multiple.
  double size(const Values& multiples) const {
    const at::Tensor all = powers_.to(at::kCPU).contiguous();
    const double sum =
        std::inner_product(multiples.begin(), multiples.end(), all.const_data_ptr<double>(), 0.0);
    return std::sqrt(sum / static_cast<double>(multiples.size()));
  }

 private:
  static at::Tensor of_squares(const at::Tensor& covariance, const at::Tensor& a,
                               const at::Tensor& b) {
    return 2 * covariance.square() + 4 * at::outer(a, b) * covariance;
  }

  static double power_of(const at::Tensor& rows, const at::Tensor& mean,
                         const MomentTensors& moments) {
    const at::Tensor seen = moments.covariance.defined() ? at::matmul(rows, moments.covariance)
                                                         : rows * moments.variance;
    return ((seen * rows).sum(1) + mean.square()).mean().item<double>();
  }

  HeadMaps shared_, source_;
  at::Tensor powers_, squares_, target_;
};

DenseLinear vector_of(Values values) { return {std::ssize(values), 1, std::move(values), {}}; }

// Takes weights that are about the source's out of a pooled map, since the source measures its size
// without them: [d], or those of all its heads. Equal heads then lose nothing.
Values take_weights(const DenseLinear& norm, const AttentionHeads& source, DenseLinear& pooled) {
  constexpr double kLeast = 1e-3;  // of the usual weight
  const std::int64_t d = source.head_dim;
  const std::int64_t together = normalises_each_head(source) ? 1 : norm.outputs / pooled.outputs;
  const std::int64_t rows = norm.outputs / together;
  Values weights;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t first = row / d * together * d + row % d;
    double sum = 0.0;
    for (std::int64_t head = 0; head < together; ++head) {
      const double weight =
          norm.weight[static_cast<std::size_t>(first + head * d)] + source.norm_offset;
      sum += weight * weight;
    }
    weights.push_back(std::sqrt(sum / static_cast<double>(together)));
  }
  const double least = kLeast * size_of(weights);
  for (double& weight : weights) {
    weight = std::max(weight, least > 0.0 ? least : 1.0);
  }
  for (std::int64_t row = 0; row < pooled.outputs; ++row) {
    scale_row(pooled, row, 1.0 / weights[static_cast<std::size_t>(row % rows)]);
  }
  return weights;
}

// The norm of a pooled map: weights about the source's, times the usual size of its heads.
DenseLinear plain_norm(const DenseLinear& norm, const AttentionHeads& source,
                       const InputMoments& inputs, const PoolingTask& task, DenseLinear& pooled) {
  Values weights = take_weights(norm, source, pooled);
  const Values sizes = sizes_of(pooled, source, inputs, task);
  const double size = std::reduce(sizes.begin(), sizes.end()) / static_cast<double>(sizes.size());
  for (std::int64_t row = 0; row < pooled.outputs && size > 0.0; ++row) {
    scale_row(pooled, row, 1.0 / size);
  }
  std::ranges::for_each(weights, [&](double& weight) { weight *= size; });
  return vector_of(std::move(weights));
}

// The norm of pooled keys over all heads, which follows the source's from token to token.
DenseLinear even_norm(const AttentionHeads& source, const PoolingTask& task, DenseLinear& pooled) {
  Values weights = take_weights(source.k_norm, source, pooled);
  const EvenNorm even(pooled, source.k, task.kv_inputs, source.head_dim, c10::Device(task.device));
  const Values multiples = even.multiples();
  const double size = even.size(multiples);
  for (std::size_t row = 0; row < weights.size(); ++row) {
    const double root = std::sqrt(multiples[row]) / size;
    scale_row(pooled, static_cast<std::int64_t>(row), root);
    weights[row] /= root;
  }
  return vector_of(std::move(weights));
}

// Multiplies each pooled head by the mean of its members' sizes.
void give_back(const Values& sizes, std::int64_t head_dim, DenseLinear& pooled) {
  const std::int64_t heads = pooled.outputs / head_dim, members = std::ssize(sizes) / heads;
  for (std::int64_t row = 0; row < pooled.outputs; ++row) {
    const auto first = sizes.begin() + row / head_dim * members;
    scale_row(pooled, row, std::reduce(first, first + members) / static_cast<double>(members));
  }
}

// The weights or biases [N·d] of the heads that stay.
Values kept_values(const Values& values, const AttentionHeads& source, const PoolingTask& task) {
  const std::int64_t members = source.kv_heads / task.groups, d = source.head_dim;
  const bool one = task.method == PoolMethod::kFirst || task.method == PoolMethod::kRandom;
  Values kept;
  for (std::int64_t group = 0; group < task.groups; ++group) {
    const std::int64_t chosen = one && !task.chosen.empty()
                                    ? task.chosen[static_cast<std::size_t>(group)]
                                    : group * members;
    const std::int64_t count = one ? 1 : members;
    for (std::int64_t i = 0; i < d; ++i) {
      double sum = 0.0;
      for (std::int64_t head = chosen; head < chosen + count; ++head) {
        sum += values[static_cast<std::size_t>(head * d + i)];
      }
      kept.push_back(sum / static_cast<double>(count));
    }
  }
  return kept;
}

}  // namespace

bool absorbs_norms(const AttentionHeads& heads, const PoolingTask& task) {
  return !heads.q_norm.weight.empty() && !heads.k_norm.weight.empty() && !task.key_basis.fixed();
}

bool normalises_each_head(const AttentionHeads& heads) {
  return heads.k_norm.outputs == heads.head_dim;
}

FoldedHeads without_norms(const AttentionHeads& heads, const PoolingTask& task) {
  FoldedHeads folded{heads};
  AttentionHeads& all = folded.heads;
  folded.q_sizes = fold(all.q_norm, all, task.query_inputs, task, all.q);
  folded.k_sizes = fold(all.k_norm, all, task.kv_inputs, task, all.k);
  return folded;
}

void align(Combination& keys, const BasisIndices& basis, bool planes) {
  const at::Tensor back = keys.back.mean(0);
  at::Tensor turn = at::eye(back.size(0), back.options()), undo = turn.clone();  // x' = turn x
  if (basis.has_free()) {
    constexpr double kLeast = 1e-3;  // of the largest: features that hardly vary are as they are
    const auto [u, sizes, v] =
        at::linalg_svd(back.index_select(0, basis.free).index_select(1, basis.free));
    const at::Tensor kept = at::where(sizes > 0.0, sizes, at::ones_like(sizes))
                                .clamp_min(kLeast * sizes.max().item<double>());
    const auto put = [&](at::Tensor& matrix, const at::Tensor& block) {
      matrix.index_put_({basis.free.unsqueeze(1), basis.free}, block);
    };
    put(turn, at::matmul(u * kept, v));
    put(undo, at::matmul(v.t() / kept, u.t()));
  }
  if (planes && basis.rotates()) {
    const auto entry = [&](const at::Tensor& row, const at::Tensor& column) {
      return back.index({row, column});
    };
    const at::Tensor angle = at::atan2(entry(basis.b, basis.a) - entry(basis.a, basis.b),
                                       entry(basis.a, basis.a) + entry(basis.b, basis.b));
    const auto put = [&](at::Tensor& matrix, const at::Tensor& sine) {
      matrix.index_put_({basis.a, basis.a}, angle.cos())
          .index_put_({basis.b, basis.b}, angle.cos());
      matrix.index_put_({basis.a, basis.b}, -sine).index_put_({basis.b, basis.a}, sine);
    };
    put(turn, angle.sin());
    put(undo, -angle.sin());
  }
  keys.mix = at::matmul(turn, keys.mix);
  keys.back = at::matmul(keys.back, undo);
}

void set_norms(const AttentionHeads& source, const FoldedHeads& folded, const PoolingTask& task,
               AttentionHeads& pooled) {
  if (absorbs_norms(source, task)) {
    pooled.q_norm = plain_norm(source.q_norm, source, task.query_inputs, task, pooled.q);
    pooled.k_norm = normalises_each_head(source)
                        ? plain_norm(source.k_norm, source, task.kv_inputs, task, pooled.k)
                        : even_norm(source, task, pooled.k);
    for (Values* weights : {&pooled.q_norm.weight, &pooled.k_norm.weight}) {
      std::ranges::for_each(*weights, [&](double& each) { each -= source.norm_offset; });
    }
    give_back(folded.q_sizes, source.head_dim, pooled.q);
    give_back(folded.k_sizes, source.head_dim, pooled.k);
  } else if (!source.k_norm.weight.empty() && !normalises_each_head(source)) {
    pooled.k_norm = vector_of(kept_values(source.k_norm.weight, source, task));
    if (!source.k_norm.bias.empty()) {
      pooled.k_norm.bias = kept_values(source.k_norm.bias, source, task);
    }
  }
}

}  // namespace regroup
