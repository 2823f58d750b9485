#include "converter/pooling/solvers/group_loss.h"

#include <algorithm>
#include <numeric>

#include "converter/pooling/solvers/lowrank.h"

namespace regroup {
namespace {

double part_of_layer(double lost, double all) { return all > 0.0 ? lost / all : 0.0; }

}  // namespace

double loss_of(const HeadSolutions& solutions, const HeadEnergies& layer) {
  return part_of_layer(solutions.keys.energy.lost, layer.keys) +
         part_of_layer(solutions.values.energy.lost, layer.values);
}

std::vector<double> losses_of_heads(const HeadProblems& problems, const PoolingTask& task,
                                    const HeadEnergies& layer) {
  std::vector<double> losses;
  for (std::int64_t j = 0; j < problems.values.heads(); ++j) {
    losses.push_back(loss_of(solve(problems, task, j), layer));
  }
  return losses;
}

double loss_of_method(const HeadProblems& problems, const PoolingTask& task,
                      const HeadEnergies& layer) {
  const auto heads = [&] { return losses_of_heads(problems, task, layer); };
  if (task.method == PoolMethod::kSelect) {
    const std::vector<double> losses = heads();
    return *std::min_element(losses.begin(), losses.end());
  }
  if (task.method == PoolMethod::kRandom) {
    const std::vector<double> losses = heads();
    return std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(losses.size());
  }
  if (task.method != PoolMethod::kLowrank || task.key_basis.fixed() || problems.scores) {
    return loss_of(solve(problems, task, 0), layer);
  }
  const HeadEnergies all = energies_of(problems);  // eigenvalues alone are enough
  return part_of_layer(all.keys - energy_kept_by_lowrank(problems.keys), layer.keys) +
         part_of_layer(all.values - energy_kept_by_lowrank(problems.values), layer.values);
}

}  // namespace regroup
