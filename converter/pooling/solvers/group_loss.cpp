#include "converter/pooling/solvers/group_loss.h"

#include "converter/pooling/solvers/lowrank.h"

namespace regroup {
namespace {

double part_of_layer(double lost, double all) { return all > 0.0 ? lost / all : 0.0; }

}  // namespace

double loss_of(const HeadSolutions& solutions, const HeadEnergies& layer) {
  return part_of_layer(solutions.keys.energy.lost, layer.keys) +
         part_of_layer(solutions.values.energy.lost, layer.values);
}

double loss_of_method(const HeadProblems& problems, const PoolingTask& task,
                      const HeadEnergies& layer) {
  if (task.method == PoolMethod::kRandom) {
    const std::int64_t heads = problems.values.heads();
    double sum = 0.0;
    for (std::int64_t j = 0; j < heads; ++j) {
      sum += loss_of(solve(problems, task, j), layer);
    }
    return sum / static_cast<double>(heads);
  }
  if (task.method != PoolMethod::kLowrank || task.key_basis.fixed() || problems.scores) {
    return loss_of(solve(problems, task, 0), layer);
  }
  const HeadEnergies all = energies_of(problems);  // eigenvalues alone are enough
  return part_of_layer(all.keys - energy_kept_by_lowrank(problems.keys), layer.keys) +
         part_of_layer(all.values - energy_kept_by_lowrank(problems.values), layer.values);
}

}  // namespace regroup
