#include "uptrain/model/activation_checkpointing.h"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

namespace regroup {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The non-tensor context of the backward pass.
struct RecomputeRecipe : torch::CustomClassHolder {
  TensorFunction function;
  std::vector<bool> present;  // which of the inputs are defined
  std::size_t inputs = 0;     // the number of saved tensors that are inputs; the weights follow
};

// Distributes `tensors` over the defined places.
std::vector<at::Tensor> in_place(const variable_list& tensors, const std::vector<bool>& present) {
  std::vector<at::Tensor> placed;
  std::size_t next = 0;
  for (const bool there : present) {
    placed.push_back(there ? tensors[next++] : at::Tensor());
  }
  return placed;
}

struct Recomputation : torch::autograd::Function<Recomputation> {
  // `tensors` are the defined inputs, then the weights.
  static variable_list forward(AutogradContext* context, at::TensorList tensors,
                               const c10::intrusive_ptr<RecomputeRecipe>& recipe) {
    context->saved_data["recipe"] = c10::IValue::make_capsule(recipe);
    context->save_for_backward(tensors.vec());
    return recipe->function(in_place(tensors.slice(0, recipe->inputs).vec(), recipe->present));
  }

  static variable_list backward(AutogradContext* context, const variable_list& outer) {
    const variable_list saved = context->get_saved_variables();
    const auto capsule = context->saved_data["recipe"].toCapsule();
    const auto& recipe = static_cast<const RecomputeRecipe&>(*capsule);
    variable_list leaves = saved;
    for (std::size_t i = 0; i < recipe.inputs; ++i) {
      leaves[i] = saved[i].detach().requires_grad_(saved[i].requires_grad());
    }
    const at::AutoGradMode with_gradients(true);
    return gradients_of(recipe.function(in_place(leaves, recipe.present)), outer, leaves);
  }

  // Returns one gradient per leaf, undefined if it is not required, and none for the recipe.
  static variable_list gradients_of(const variable_list& results, const variable_list& outer,
                                    const variable_list& leaves) {
    variable_list learning, factors;
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (results[i].requires_grad()) {
        learning.push_back(results[i]);
        factors.push_back(outer[i]);
      }
    }
    variable_list wanted;
    for (const at::Tensor& leaf : leaves) {
      if (leaf.requires_grad()) {
        wanted.push_back(leaf);
      }
    }
    const variable_list found = torch::autograd::grad(learning, wanted, factors,
                                                      /*retain_graph=*/false,
                                                      /*create_graph=*/false,
                                                      /*allow_unused=*/true);
    variable_list gradients;
    std::size_t next = 0;
    for (const at::Tensor& leaf : leaves) {
      gradients.push_back(leaf.requires_grad() ? found[next++] : at::Tensor());
    }
    gradients.emplace_back();
    return gradients;
  }
};

}  // namespace

std::vector<at::Tensor> recompute_for_gradients(const TensorFunction& function,
                                                const std::vector<at::Tensor>& inputs,
                                                const std::vector<at::Tensor>& weights) {
  const auto recipe = c10::make_intrusive<RecomputeRecipe>();
  recipe->function = function;
  std::vector<at::Tensor> tensors;
  for (const at::Tensor& input : inputs) {
    recipe->present.push_back(input.defined());
    if (input.defined()) {
      tensors.push_back(input);
    }
  }
  recipe->inputs = tensors.size();
  tensors.insert(tensors.end(), weights.begin(), weights.end());
  return Recomputation::apply(at::TensorList(tensors), recipe);
}

}  // namespace regroup
