#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/linalg_solve.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/where.h>

#include "converter/pooling/combination.h"

namespace regroup {
namespace {

// Sweeps end when the error of scores changes by less than this.
constexpr double kSmallestChange = 1e-3;
constexpr int kMostSweeps = 100;
constexpr double kRidge = 1e-12;  // as a fraction of the mean of the diagonal
// A lower bound of key variances, as a fraction of the mean variance. Without it, means with almost
// no variance would have too much weight.
constexpr double kLeastVariance = 1e-2;

// A⁻¹ B for symmetric, perhaps singular A [..., m, m].
at::Tensor solve_symmetric(const at::Tensor& matrix, const at::Tensor& right,
                           double ridge = kRidge) {
  const std::int64_t m = matrix.size(-1);
  const at::Tensor size = matrix.diagonal(0, -2, -1).mean(-1).clamp_min(1e-200) * ridge;
  return at::linalg_solve(matrix + at::eye(m, matrix.options()) * size.unsqueeze(-1).unsqueeze(-1),
                          right);
}

// mix as a factor of the stacked heads: [d, n·d].
at::Tensor wide(const at::Tensor& mix) { return mix.transpose(0, 1).reshape({mix.size(1), -1}); }

// The covariance, over keys and distances, of two keys as queries see them, for each head. The keys
// have means a and b and E[a bᵀ] = `product`. product: [n or 1, d, d], means: [n or 1, d].
at::Tensor seen_covariance(const RopeAverage& rope, const at::Tensor& product, const at::Tensor& a,
                           const at::Tensor& b) {
  const at::Tensor left = at::matmul(rope.mean(), a.unsqueeze(-1));
  const at::Tensor right = at::matmul(rope.mean(), b.unsqueeze(-1));
  return rope.seen(product) - at::matmul(left, right.transpose(1, 2));
}

// The group's keys and the shared key as queries see them.
struct Seen {
  at::Tensor own;     // Cov(S x_j), [n, d, d]
  at::Tensor cross;   // Cov(S x_j, S x), [n, d, d]
  at::Tensor shared;  // Cov(S x), [n, d, d]: heads look at different distances
  at::Tensor power;   // E|x|², no dimensions
};

at::Tensor seen_own(const ScoreProblem& problem) {
  const at::Tensor own = problem.gram.diagonal(0, 0, 2).permute({2, 0, 1}).contiguous();
  return seen_covariance(problem.rope, own, problem.mean, problem.mean);
}

void see_shared(const ScoreProblem& problem, const at::Tensor& mix, Seen& seen) {
  const std::int64_t n = problem.heads(), d = problem.features();
  const at::Tensor side = at::matmul(mix, problem.gram.reshape({n * d, n * d}));  // [d, n·d]
  const at::Tensor product = side.view({d, n, d}).permute({1, 2, 0}).contiguous();
  const at::Tensor shared = at::matmul(side, mix.t()).unsqueeze(0);
  const at::Tensor mean = at::matmul(mix, problem.mean.reshape({n * d})).unsqueeze(0);
  seen.cross = seen_covariance(problem.rope, product, problem.mean, mean);
  seen.shared = seen_covariance(problem.rope, shared, mean, mean);
  seen.power = shared.squeeze(0).trace();
}

at::Tensor lost(const ScoreProblem& problem, const Seen& seen, const at::Tensor& back) {
  const at::Tensor cross = at::bmm(back, seen.cross.transpose(1, 2));
  const at::Tensor error = seen.own - cross - cross.transpose(1, 2) +
                           at::bmm(at::bmm(back, seen.shared), back.transpose(1, 2));
  return (problem.weight * error).sum();
}

// The optimal readers of the shared key: back_j = Cov(S x_j, S x) Cov(S x)⁻¹.
at::Tensor best_back(const Seen& seen) {
  return solve_symmetric(seen.shared, seen.cross.transpose(1, 2)).transpose(1, 2).contiguous();
}

// The best shared key for given readers, [d, n·d]. Without means it solves P mix = N, independently
// of the keys' moments, where P = Σ_j E[Sᵀ back_jᵀ Q_j back_j S] and N_j = E[Sᵀ back_jᵀ Q_j S]. For
// a mean key m, P' and N' leave out the part that is common to all distances. It then solves P mix
// C + P' mix m mᵀ = N C + N' m mᵀ, where C is the covariance of the keys.
class BestMix {
 public:
  explicit BestMix(const ScoreProblem& problem) : problem_(problem) {
    const std::int64_t rows = problem.heads() * problem.features();
    mean_ = problem.mean.reshape({rows});
    if (mean_.abs().max().item<double>() > 0.0) {
      const at::Tensor covariance = problem.gram.reshape({rows, rows}) - at::outer(mean_, mean_);
      direction_ =
          solve_symmetric(covariance, mean_.unsqueeze(1), kLeastVariance).squeeze(1);  // C⁻¹ m
      length_ = at::matmul(mean_, direction_);
    }
  }

  at::Tensor operator()(const at::Tensor& back) const {
    const at::Tensor& turn = problem_.rope.mean();
    const at::Tensor reading = at::bmm(back.transpose(1, 2), problem_.weight);  // backᵀ Q
    const at::Tensor read = at::bmm(reading, back);
    const at::Tensor each = problem_.rope.unseen(reading);
    const at::Tensor p = problem_.rope.unseen(read).sum(0), n = wide(each);
    if (!direction_.defined()) {
      return solve_symmetric(p, n);
    }
    const auto turned = [&](const at::Tensor& matrices) {
      return at::bmm(at::bmm(turn.transpose(1, 2), matrices), turn);
    };
    const at::Tensor p_mean = p - turned(read).sum(0);
    const at::Tensor n_mean = at::matmul(wide(each - turned(reading)), mean_);
    // Solves for mix m, with both sides of the equation multiplied by C⁻¹ m.
    const at::Tensor shared_mean =
        solve_symmetric(p + length_ * p_mean,
                        (at::matmul(n, mean_) + length_ * n_mean).unsqueeze(1))
            .squeeze(1);
    return solve_symmetric(p, n + at::outer(n_mean - at::matmul(p_mean, shared_mean), direction_));
  }

 private:
  const ScoreProblem& problem_;
  at::Tensor mean_, direction_, length_;
};

at::Tensor usual_power(const ScoreProblem& problem) {
  const std::int64_t rows = problem.heads() * problem.features();
  return problem.gram.reshape({rows, rows}).trace() / static_cast<double>(problem.heads());
}

}  // namespace

ScoreProblem part_of(const ScoreProblem& problem, std::span<const std::int64_t> heads) {
  const at::Tensor rows = rows_of(heads, problem.gram.device());
  return {problem.gram.index_select(0, rows).index_select(2, rows),
          problem.mean.index_select(0, rows), problem.weight.index_select(0, rows),
          problem.rope.of(rows)};
}

Combination solve_scores(const ScoreProblem& problem, const Combination& start) {
  const std::int64_t n = problem.heads(), d = problem.features();
  const BestMix best_mix(problem);
  at::Tensor mix = wide(start.mix), back;
  Seen seen{seen_own(problem), {}, {}, {}};
  double before = 0.0;
  for (int sweep = 0;; ++sweep) {
    see_shared(problem, mix, seen);
    back = best_back(seen);
    const double now = lost(problem, seen, back).item<double>();
    if (sweep == kMostSweeps || (sweep > 0 && now > (1.0 - kSmallestChange) * before)) {
      break;
    }
    before = now;
    mix = best_mix(back);
  }
  const at::Tensor usual = usual_power(problem);
  const at::Tensor known = (usual > 0.0).logical_and(seen.power > 0.0);
  const at::Tensor scale = at::where(known, (usual / seen.power).sqrt(), at::ones_like(usual));
  return {mix.view({d, n, d}).transpose(0, 1).contiguous() * scale, back / scale};
}

Energy energy_of(const ScoreProblem& problem, const Combination& combination) {
  Seen seen{seen_own(problem), {}, {}, {}};
  see_shared(problem, wide(combination.mix), seen);
  return energy_in({lost(problem, seen, combination.back), (problem.weight * seen.own).sum(),
                    seen.power, usual_power(problem)});
}

double energy_of(const ScoreProblem& problem) {
  return (problem.weight * seen_own(problem)).sum().item<double>();
}

}  // namespace regroup
