#include "uptrain/trainer/rank_agreement.h"

#include <cmath>
#include <string>
#include <vector>

#include <ATen/ops/tensor.h>

#include "formats/base/error.h"
#include "uptrain/trainer/recipe_differences.h"

namespace regroup {

void check_same_on_all(ProcessGroup& group, const Json& asked) {
  const std::vector<std::string> all = group.exchange(asked.dump());
  const Json first = Json::parse(all.front());
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const Json other = Json::parse(all[rank]);
    const std::string differences =
        recipe_differences(other, first, "{} is {} there, {} on rank 0");
    if (!differences.empty()) {
      throw_usage("rank {} was started with other settings: {}", rank, differences);
    }
  }
}

std::string fault_of(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const Error& fault) {
    return fault.what();
  }
}

std::string first_fault(ProcessGroup* group, const std::string& own) {
  if (group == nullptr) {
    return own;
  }
  const std::vector<std::string> faults = group->exchange(own);
  for (std::size_t rank = 0; rank < faults.size(); ++rank) {
    if (!faults[rank].empty()) {
      return rank == 0 ? faults[rank] : fmt::format("rank {}: {}", rank, faults[rank]);
    }
  }
  return {};
}

std::optional<Evaluation> evaluation_of_all(const ProcessGroup& group,
                                            const std::optional<Evaluation>& own) {
  const auto tokens = static_cast<double>(own ? own->tokens : 0);
  const double loss = own ? own->loss * tokens : 0.0;
  const at::Tensor sums =
      group.sum(at::tensor({loss, tokens, own ? 0.0 : 1.0}, at::kDouble)).to(at::kCPU);
  const auto* values = sums.const_data_ptr<double>();
  if (values[2] != 0.0) {
    return std::nullopt;
  }
  Evaluation whole;
  whole.tokens = static_cast<std::int64_t>(values[1]);
  whole.loss = values[0] / values[1];
  whole.perplexity = std::exp(whole.loss);
  return whole;
}

std::optional<TrainingProgress> progress_of_first(ProcessGroup& group,
                                                  const std::optional<TrainingProgress>& own) {
  Json text;
  if (own) {
    text = {own->step,      own->samples,
            own->skipped,   own->skipped_in_a_row,
            own->evaluated, number_or_null(own->loss_before)};
  }
  const Json first = Json::parse(group.exchange(text.dump()).front());
  if (first.is_null()) {
    return std::nullopt;
  }
  return TrainingProgress{first[0], first[1], first[2],
                          first[3], first[4], number_if_any(first[5])};
}

}  // namespace regroup
