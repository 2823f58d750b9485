#include "converter/pooling/combination.h"

#include <cmath>
#include <numbers>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/diag_embed.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/linalg_eigvalsh.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/polar.h>
#include <ATen/ops/real.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/complex.h>

namespace regroup {

at::Tensor FreeProblem::own() const { return gram.diagonal(0, 0, 2).permute({2, 0, 1}); }

at::Tensor PlaneProblem::own() const { return at::real(gram.diagonal(0, 1, 2)); }

Energy energy_in(at::TensorList sums, std::int64_t count) {
  const at::Tensor all = at::stack(sums).to(at::kCPU, at::kDouble).contiguous();
  const double* numbers = all.const_data_ptr<double>();
  return {numbers[0], numbers[1], numbers[2], numbers[3] / static_cast<double>(count)};
}

at::Tensor rows_of(std::span<const std::int64_t> heads, c10::Device device) {
  return at::tensor(at::ArrayRef<std::int64_t>(heads.data(), heads.size())).to(device);
}

double Energy::norm() const { return usual > 0.0 ? std::sqrt(shared / usual) : 1.0; }

GroupProblem part_of(const GroupProblem& problem, std::span<const std::int64_t> heads) {
  const at::Tensor rows = rows_of(heads, problem.basis.free.device());
  GroupProblem part{problem.basis, std::nullopt, std::nullopt};
  if (problem.free) {
    part.free = {problem.free->gram.index_select(0, rows).index_select(2, rows),
                 problem.free->weight.index_select(0, rows)};
  }
  if (problem.planes) {
    part.planes = {problem.planes->gram.index_select(1, rows).index_select(2, rows),
                   problem.planes->weight.index_select(1, rows)};
  }
  return part;
}

namespace {

// The frequency ω of the eigenvector at each feature's index.
std::vector<double> turning_of(const HeadBasis& basis) {
  std::vector<double> omega(static_cast<std::size_t>(basis.head_dim()), 0.0);
  for (std::size_t p = 0; p < basis.rope_planes.size(); ++p) {
    omega[static_cast<std::size_t>(basis.rope_planes[p].first)] = -basis.frequencies[p];
    omega[static_cast<std::size_t>(basis.rope_planes[p].second)] = basis.frequencies[p];
  }
  return omega;
}

}  // namespace

at::Tensor RopeAverage::Pairs::times_rows(const at::Tensor& matrices) const {
  return first.unsqueeze(1) * matrices.index_select(1, a) +
         second.unsqueeze(1) * matrices.index_select(1, b);
}

at::Tensor RopeAverage::Pairs::conjugate(const at::Tensor& matrices) const {
  return times_rows(times_rows(matrices).transpose(1, 2).conj().resolve_conj())
      .transpose(1, 2)
      .conj()
      .resolve_conj();
}

void RopeAverage::find_eigenvectors(const HeadBasis& basis, c10::Device device) {
  using Number = c10::complex<double>;
  constexpr double kHalf = 0.5 * std::numbers::sqrt2;  // 1/√2
  const auto d = static_cast<std::size_t>(basis.head_dim());
  std::vector<std::int64_t> a(d), b(d);
  std::vector<Number> first(d, 1.0), second(d, 0.0), first_out(d, 1.0), second_out(d, 0.0);
  for (const std::int64_t feature : basis.free) {
    a[static_cast<std::size_t>(feature)] = b[static_cast<std::size_t>(feature)] = feature;
  }
  for (const auto& [x, y] : basis.rope_planes) {
    const auto left = static_cast<std::size_t>(x), right = static_cast<std::size_t>(y);
    a[left] = a[right] = x;
    b[left] = b[right] = y;
    // x + iy, which S_t rotates back, and its conjugate.
    first[left] = first[right] = kHalf;
    second[left] = {0.0, kHalf};
    second[right] = {0.0, -kHalf};
    first_out[left] = second_out[left] = kHalf;
    first_out[right] = {0.0, -kHalf};
    second_out[right] = {0.0, kHalf};
  }
  into_ = {at::tensor(a).to(device), at::tensor(b).to(device), at::tensor(first).to(device),
           at::tensor(second).to(device)};
  out_ = {into_.a, into_.b, at::tensor(first_out).to(device), at::tensor(second_out).to(device)};
}

RopeAverage::RopeAverage(const HeadBasis& basis, const at::Tensor& distances, bool both_sides) {
  find_eigenvectors(basis, distances.device());
  const at::Tensor angles =
      at::outer(at::tensor(turning_of(basis)).to(distances.device()),
                at::arange(distances.size(1), distances.options()));  // [d, T]
  const at::Tensor turning = at::polar(at::ones_like(angles), angles);
  const at::Tensor back = turning.t().conj().resolve_conj();  // [T, d]
  const auto averaged = [&](const at::Tensor& one_side) {
    return both_sides ? at::real(one_side).to(at::kComplexDouble) : one_side;
  };
  std::vector<at::Tensor> factors;
  for (std::int64_t j = 0; j < distances.size(0); ++j) {
    factors.push_back(averaged(at::matmul(turning * distances.select(0, j), back)));
  }
  factors_ = at::stack(factors);
  const at::Tensor means =
      averaged(at::matmul(distances.to(at::kComplexDouble), turning.t()));  // [n, d]
  mean_ = at::real(out_.conjugate(at::diag_embed(means))).contiguous();
}

RopeAverage RopeAverage::of(const at::Tensor& heads) const {
  RopeAverage result = *this;
  result.factors_ = factors_.index_select(0, heads);
  result.mean_ = mean_.index_select(0, heads);
  return result;
}

at::Tensor RopeAverage::seen(const at::Tensor& matrices) const {
  return at::real(out_.conjugate(factors_ * into_.conjugate(matrices))).contiguous();
}

at::Tensor RopeAverage::unseen(const at::Tensor& matrices) const {
  return at::real(out_.conjugate(factors_.conj() * into_.conjugate(matrices))).contiguous();
}

namespace {

// Components with less than this fraction of the leading one's power are rounding errors.
constexpr double kSmallest = 1e-14;

// 1/√λ, or 0 for negligible components. `largest` broadcasts.
at::Tensor inverse_root(const at::Tensor& powers, const at::Tensor& largest) {
  const at::Tensor counts = (powers > kSmallest * largest).logical_and(powers > 0.0);
  return at::where(counts, at::where(counts, powers, at::ones_like(powers)).rsqrt(),
                   at::zeros_like(powers));
}

// Returns L with L Lᵀ = A for positive semidefinite A [n, d, d].
at::Tensor root_of(const at::Tensor& matrix) {
  const auto [values, vectors] = at::linalg_eigh(matrix);
  return vectors * values.clamp_min(0.0).sqrt().unsqueeze(1);
}

// BᵀCB: the Gram matrix of all L_jᵀ x_j, [n·f, n·f].
at::Tensor weighted_gram(const FreeProblem& problem, const at::Tensor& root) {
  const std::int64_t n = problem.heads(), f = problem.features();
  const at::Tensor left = at::bmm(root.transpose(1, 2), problem.gram.reshape({n, f, n * f}));
  const at::Tensor both = at::bmm(left.view({n * f, n, f}).transpose(0, 1), root);  // [n, n·f, f]
  const at::Tensor gram = both.transpose(0, 1).reshape({n * f, n * f});
  return (gram + gram.t()) / 2;
}

at::Tensor weighted_gram(const PlaneProblem& problem, const at::Tensor& root) {
  return problem.gram * (root.unsqueeze(2) * root.unsqueeze(1));
}

// Scales the shared head to the mean power of the heads, and `back` by the inverse.
void restore_power(const FreeProblem& problem, Combination& solution) {
  const std::int64_t n = problem.heads(), f = problem.features();
  const at::Tensor mix = solution.mix.transpose(0, 1).reshape({f, n * f});
  const at::Tensor shared = (at::matmul(mix, problem.gram.view({n * f, n * f})) * mix).sum();
  const at::Tensor usual = problem.gram.view({n * f, n * f}).trace() / static_cast<double>(n);
  const at::Tensor known = (shared > 0.0).logical_and(usual > 0.0);
  const at::Tensor scale = at::where(known, (usual / shared).sqrt(), at::ones_like(usual));
  solution.mix = solution.mix * scale;
  solution.back = solution.back / scale;
}

Combination solve_lowrank(const FreeProblem& problem) {
  const std::int64_t n = problem.heads(), f = problem.features();
  const at::Tensor root = root_of(problem.weight);                               // L, [n, f, f]
  const auto [values, vectors] = at::linalg_eigh(weighted_gram(problem, root));  // ascending
  const at::Tensor leading = values.narrow(0, n * f - f, f);
  const at::Tensor scaled =
      vectors.narrow(1, n * f - f, f) * inverse_root(leading, values.narrow(0, n * f - 1, 1));
  // mix_j = (L_j U_j Σ⁻¹)ᵀ; back_j = E[x_j xᵀ] since E[x xᵀ] = 1.
  Combination result;
  result.mix = at::bmm(root, scaled.reshape({n, f, f})).transpose(1, 2).contiguous();
  result.back = at::matmul(problem.gram.view({n * f, n * f}),
                           result.mix.permute({0, 2, 1}).reshape({n * f, f}))
                    .view({n, f, f});
  restore_power(problem, result);
  return result;
}

Combination solve_lowrank(const PlaneProblem& problem) {
  // In planes that no query reads, any shared head works. All heads get equal weight there.
  const at::Tensor read = problem.weight.sum(1, true) > 0.0;
  const at::Tensor root =
      at::where(read, problem.weight, at::ones_like(problem.weight)).clamp_min(0.0).sqrt();
  const auto [values, vectors] = at::linalg_eigh(weighted_gram(problem, root));
  const std::int64_t last = values.size(1) - 1;
  const at::Tensor power = values.narrow(1, last, 1);  // [P, 1]
  Combination result;
  result.mix = root * vectors.select(2, last) * inverse_root(power, power);
  result.back = at::matmul(result.mix.conj().unsqueeze(1), problem.gram).squeeze(1);
  // Scales each plane to its mean power.
  const at::Tensor usual = problem.own().mean(1, true).clamp_min(0.0).sqrt();  // [P, 1]
  const at::Tensor scale = at::where(usual > 0.0, usual, at::ones_like(usual));
  return {result.mix * scale, result.back / scale};
}

// The combination that changes no head: [n, f, f] or [P, n].
at::Tensor unchanged(const FreeProblem& problem) {
  return at::eye(problem.features(), problem.gram.options()).repeat({problem.heads(), 1, 1});
}

at::Tensor unchanged(const PlaneProblem& problem) {
  return at::ones_like(problem.gram.select(1, 0));
}

// `heads`: the dimension of the heads in a combination.
template <typename Problem>
Combination solve_part(PoolMethod method, const Problem& problem, std::int64_t heads,
                       std::int64_t chosen) {
  if (method == PoolMethod::kLowrank) {
    return solve_lowrank(problem);
  }
  const at::Tensor one = unchanged(problem);
  if (method == PoolMethod::kMean) {
    return {one / static_cast<double>(problem.heads()), one};
  }
  at::Tensor mix = at::zeros_like(one);
  mix.select(heads, chosen).copy_(one.select(heads, chosen));
  return {mix, one};
}

Energy energy_of(const FreeProblem& problem, const Combination& solution) {
  const std::int64_t n = problem.heads(), f = problem.features();
  // shared_j = E[x x_jᵀ], [n, f, f]; shared = E[x xᵀ], [f, f].
  const at::Tensor mix = solution.mix.transpose(0, 1).reshape({f, n * f});
  const at::Tensor side = at::matmul(mix, problem.gram.view({n * f, n * f}));  // [f, n·f]
  const at::Tensor shared = at::matmul(side, mix.t());
  const at::Tensor shared_j = side.view({f, n, f}).transpose(0, 1);
  const at::Tensor own = problem.own();
  const at::Tensor cross = at::bmm(solution.back, shared_j);
  const at::Tensor error =
      own - cross - cross.transpose(1, 2) +
      at::bmm(at::matmul(solution.back, shared), solution.back.transpose(1, 2));
  return energy_in({(problem.weight * error).sum(), (problem.weight * own).sum(), shared.trace(),
                    own.diagonal(0, 1, 2).sum()},
                   n);
}

Energy energy_of(const PlaneProblem& problem, const Combination& solution) {
  const at::Tensor own = problem.own();
  const at::Tensor side = at::matmul(problem.gram, solution.mix.unsqueeze(2)).squeeze(2);
  const at::Tensor shared = at::real((solution.mix.conj() * side).sum(1, true));  // [P, 1]
  const at::Tensor error = own - 2 * at::real(solution.back * side) +
                           at::real(solution.back.conj() * solution.back) * shared;
  return energy_in(
      {(problem.weight * error).sum(), (problem.weight * own).sum(), shared.sum(), own.sum()},
      problem.heads());
}

Energy operator+(const Energy& a, const Energy& b) {
  return {a.lost + b.lost, a.all + b.all, a.shared + b.shared, a.usual + b.usual};
}

// Writes matrices [n, f, f] of the free features to their rows and columns in [n, d, d].
void put_free(const at::Tensor& part, const BasisIndices& basis, const at::Tensor& matrices) {
  at::Tensor wide = matrices.index_select(1, basis.free);
  wide.index_copy_(2, basis.free, part);
  matrices.index_copy_(1, basis.free, wide);
}

// Writes complex factors [P, n] into the planes of real, contiguous matrices [n, d, d].
void put_planes(const at::Tensor& factors, const BasisIndices& basis, const at::Tensor& matrices) {
  const std::int64_t d = basis.head_dim;
  const at::Tensor real = at::real(factors).t(), imaginary = at::imag(factors).t();  // [n, P]
  const at::Tensor flat = matrices.view({-1, d * d});
  // (x + iy)(a + ib) = (xa − yb) + i(ya + xb)
  flat.index_copy_(1, basis.a * d + basis.a, real);
  flat.index_copy_(1, basis.a * d + basis.b, -imaginary);
  flat.index_copy_(1, basis.b * d + basis.a, imaginary);
  flat.index_copy_(1, basis.b * d + basis.b, real);
}

}  // namespace

HeadSolution solve_group(PoolMethod method, const GroupProblem& problem, std::int64_t chosen) {
  const BasisIndices& basis = problem.basis;
  const at::Tensor none = at::zeros({problem.heads(), basis.head_dim, basis.head_dim},
                                    at::TensorOptions(at::kDouble).device(basis.a.device()));
  HeadSolution result{{none, none.clone()}, {}};
  const auto add = [&](const auto& of_part, std::int64_t heads, const auto& put) {
    const Combination part = solve_part(method, of_part, heads, chosen);
    put(part.mix, basis, result.heads.mix);
    put(part.back, basis, result.heads.back);
    result.energy = result.energy + energy_of(of_part, part);
  };
  if (problem.free) {
    add(*problem.free, 0, put_free);
  }
  if (problem.planes) {
    add(*problem.planes, 1, put_planes);
  }
  return result;
}

double energy_of(const GroupProblem& problem) {
  double energy = 0.0;
  if (problem.free) {
    energy += (problem.free->weight * problem.free->own()).sum().item<double>();
  }
  if (problem.planes) {
    energy += (problem.planes->weight * problem.planes->own()).sum().item<double>();
  }
  return energy;
}

double energy_kept_by_lowrank(const GroupProblem& problem) {
  double kept = 0.0;
  if (problem.free) {
    const std::int64_t f = problem.free->features();
    const at::Tensor values =
        at::linalg_eigvalsh(weighted_gram(*problem.free, root_of(problem.free->weight)));
    kept += values.narrow(0, values.size(0) - f, f).clamp_min(0.0).sum().item<double>();
  }
  if (problem.planes) {
    const at::Tensor root = problem.planes->weight.clamp_min(0.0).sqrt();
    const at::Tensor values = at::linalg_eigvalsh(weighted_gram(*problem.planes, root));
    kept += values.select(1, values.size(1) - 1).sum().item<double>();
  }
  return kept;
}

}  // namespace regroup
