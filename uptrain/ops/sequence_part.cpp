#include "uptrain/ops/sequence_part.h"

#include <torch/csrc/autograd/custom_function.h>

namespace regroup {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Joining : torch::autograd::Function<Joining> {
  static variable_list forward(AutogradContext* context, const at::Tensor& k, const at::Tensor& v,
                               const SequencePart* part) {
    context->saved_data["part"] = reinterpret_cast<std::int64_t>(part);
    const KeysAndValues all = part->joined({k, v});
    return {all.k, all.v};
  }

  static variable_list backward(AutogradContext* context, const variable_list& outer) {
    const auto* part = reinterpret_cast<const SequencePart*>(context->saved_data["part"].toInt());
    const KeysAndValues sums = part->own_sums({outer[0], outer[1]});
    const at::ScalarType type = outer.front().scalar_type();
    return {sums.k.to(type), sums.v.to(type), at::Tensor()};
  }
};

}  // namespace

KeysAndValues join_parts(const SequencePart& part, const KeysAndValues& own) {
  const variable_list all = Joining::apply(own.k, own.v, &part);
  return {all[0], all[1]};
}

}  // namespace regroup
