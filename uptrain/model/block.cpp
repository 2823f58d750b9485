#include "uptrain/model/block.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "formats/base/ranges.h"
#include "uptrain/model/kv_cache.h"

namespace regroup {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Direction = BlockWeights::Direction;

bool has_backward_pass(const at::Tensor& x) {
  return at::GradMode::is_enabled() && x.requires_grad();
}

// A node around a block. Nodes run in the reverse order in which they were made, as far as they are
// ready. That of a block's input is older than all of the block's, so the block's gradients are
// complete.
template <bool kOfInput>
struct BlockNode : torch::autograd::Function<BlockNode<kOfInput>> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, BlockWeights* weights,
                            std::int64_t block) {
    context->saved_data["weights"] = reinterpret_cast<std::int64_t>(weights);
    context->saved_data["block"] = block;
    return x.view_as(x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& outer) {
    auto* weights = reinterpret_cast<BlockWeights*>(context->saved_data["weights"].toInt());
    const auto block = static_cast<std::size_t>(context->saved_data["block"].toInt());
    if (kOfInput) {
      weights->drop(block, Direction::kBackward, /*again=*/false);
    } else {
      weights->bring(block, Direction::kBackward);
    }
    return {outer[0], at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor enter_block(BlockWeights& weights, std::size_t block, const at::Tensor& x) {
  weights.bring(block, Direction::kForward);
  return has_backward_pass(x)
             ? BlockNode<true>::apply(x, &weights, static_cast<std::int64_t>(block))
             : x;
}

at::Tensor leave_block(BlockWeights& weights, std::size_t block, const at::Tensor& x) {
  const bool again = has_backward_pass(x);
  weights.drop(block, Direction::kForward, again);
  return again ? BlockNode<false>::apply(x, &weights, static_cast<std::int64_t>(block)) : x;
}

namespace {

std::vector<double> slopes_of(const ModelSpec& spec, AttentionRole role, std::size_t layer) {
  // Falcon scales the bias together with q·k.
  const double scale =
      spec.alibi.scaled ? 1.0 / std::sqrt(static_cast<double>(spec.head_dim)) : 1.0;
  std::vector<double> slopes = alibi_slopes_per_layer(spec, role)[layer];
  for (double& slope : slopes) {
    slope *= scale;
  }
  return slopes;
}

void add_alibi(Block& block, const ModelSpec& spec, AttentionRole role, std::size_t layer) {
  const at::TensorOptions options = block.attention.o.weight.options();
  const std::vector<double> slopes = slopes_of(spec, role, layer);
  if (role == AttentionRole::kSelf && spec.causal) {
    block.attention.alibi.emplace(slopes, spec.head_dim, options, spec.attention_scale);
  } else if (layer == 0 || slopes != slopes_of(spec, role, layer - 1)) {
    block.symmetric_slopes =
        at::tensor(slopes, at::kDouble).view({1, -1, 1, 1}).to(options.device());
  }
}

at::Tensor scaled(const at::Tensor& update, const ModelSpec& spec) {
  return spec.residual_scale == 1.0 ? update : update * spec.residual_scale;
}

at::Tensor attention(const Block& block, const ModelSpec& spec, const at::Tensor& x,
                     const Pass& pass) {
  return scaled(self_attention(block.attention, spec, x, pass), spec);
}

// The MLP that all tokens have in common.
at::Tensor shared_mlp(const Block& block, const ModelSpec& spec, const at::Tensor& x) {
  if (!block.gate.present()) {
    return block.down(activate(spec.activation, block.up(x)));
  }
  if (!block.up.present()) {
    return block.down(gated_halves(spec.activation, block.gate(x)));
  }
  const std::vector<at::Tensor> features = run_linears({block.gate, block.up}, x);
  return block.down(gated(spec.activation, features[0], features[1]));
}

at::Tensor mlp(const Block& block, const ModelSpec& spec, const at::Tensor& x, const Pass& pass) {
  if (!block.experts.present()) {
    return scaled(shared_mlp(block, spec, x), spec);
  }
  at::Tensor sum = run_experts(block.experts, spec, x, pass.on_routing);
  if (block.down.present()) {
    const at::Tensor shared = shared_mlp(block, spec, x);
    sum = sum + (block.shared_gate.present() ? block.shared_gate(x).sigmoid() * shared : shared);
  }
  return scaled(sum, spec);
}

at::Tensor normed(const std::optional<Norm>& norm, const at::Tensor& x) {
  return norm ? (*norm)(x) : x;
}

// The arrangements of a block. An absent part adds nothing and has no norm.

at::Tensor norm_after_sublayer(const Block& block, const ModelSpec& spec, at::Tensor x,
                               const Pass& pass) {
  if (block.attention.present()) {
    x = x + normed(block.attention_norm, attention(block, spec, x, pass));
  }
  return block.has_mlp() ? x + normed(block.mlp_norm, mlp(block, spec, x, pass)) : x;
}

at::Tensor norm_after_residual(const Block& block, const ModelSpec& spec, at::Tensor x,
                               const Pass& pass) {
  if (block.attention.present()) {
    x = normed(block.attention_norm, x + attention(block, spec, x, pass));
  }
  if (block.cross.present()) {
    x = block.cross_norm(x + cross_attention(block.cross, spec, x, pass));
  }
  return block.has_mlp() ? normed(block.mlp_norm, x + mlp(block, spec, x, pass)) : x;
}

at::Tensor both_at_once(const Block& block, const ModelSpec& spec, const at::Tensor& x,
                        const Pass& pass) {
  at::Tensor sum = x;
  at::Tensor input = x;
  if (block.attention.present()) {
    input = normed(block.attention_norm, x);
    sum = sum + attention(block, spec, input, pass);
  }
  return block.has_mlp()
             ? sum + mlp(block, spec, block.mlp_norm ? normed(block.mlp_norm, x) : input, pass)
             : sum;
}

// The residual stream, and a sublayer's output that the next norm adds to it.
struct Residual {
  at::Tensor x, update;

  at::Tensor sum() const { return update.defined() ? x + update : x; }

  at::Tensor normed(const Norm& norm) {
    if (!update.defined()) {
      return norm(x);
    }
    NormedSum both = norm.add(x, update);
    *this = {both.sum, {}};
    return both.normal;
  }
};

at::Tensor norm_before_or_around(const Block& block, const ModelSpec& spec, const at::Tensor& x,
                                 const Pass& pass) {
  Residual residual{x, {}};
  if (block.attention.present()) {
    const at::Tensor input = block.attention_norm ? residual.normed(*block.attention_norm) : x;
    const at::Tensor update =
        normed(block.attention_output_norm, attention(block, spec, input, pass));
    residual = {spec.residual_after_norm ? input : residual.x, update};
  }
  if (block.cross.present()) {
    const at::Tensor input = residual.normed(block.cross_norm);
    residual.update = cross_attention(block.cross, spec, input, pass);
  }
  if (block.has_mlp()) {
    const at::Tensor input = block.mlp_norm ? residual.normed(*block.mlp_norm) : residual.sum();
    residual = {spec.residual_after_norm || !block.mlp_norm ? input : residual.x,
                normed(block.mlp_output_norm, mlp(block, spec, input, pass))};
  }
  return residual.sum();
}

}  // namespace

Block make_block(const ModelSpec& spec, AttentionRole role, std::size_t layer,
                 const Parameters& parameters) {
  const LayerTensors& names = spec.stack(role)[layer];
  Block block;
  if (names.attention.present()) {
    if (names.attention_norm.present() || spec.norm_without_parameters) {
      block.attention_norm = make_norm(names.attention_norm, spec, parameters);
    }
    block.attention =
        make_attention_layer(names.attention, spec, spec.kv_heads_of(role)[layer], parameters);
    block.attention.without_rope = names.without_rope;
    if (spec.positions == PositionKind::kAlibi) {
      add_alibi(block, spec, role, layer);
    }
  }
  block.relative_bias = tensor_or_none(names.relative_bias, parameters);
  if (names.cross_attention.present()) {
    block.cross_norm = make_norm(names.cross_norm, spec, parameters);
    block.cross =
        make_attention_layer(names.cross_attention, spec, spec.cross_kv_heads[layer], parameters);
  }
  if (names.mlp_norm.present() || spec.norm_without_parameters) {
    block.mlp_norm = make_norm(names.mlp_norm, spec, parameters);
  }
  if (spec.norm_placement == NormPlacement::kAround) {
    block.attention_output_norm = make_norm(names.attention_output_norm, spec, parameters);
    block.mlp_output_norm = make_norm(names.mlp_output_norm, spec, parameters);
  }
  block.in_window = role == AttentionRole::kSelf && spec.window_of(names).has_value();
  block.gate = make_linear(names.gate, parameters);
  if (!names.fused_gate()) {
    block.up = make_linear(names.up, parameters);
  }
  block.down = make_linear(names.down, parameters);
  block.experts = make_expert_layer(names.experts, parameters);
  block.shared_gate = make_linear(names.shared_gate, parameters);
  if (names.shared_gate_is_vector) {
    block.shared_gate.weight = block.shared_gate.weight.unsqueeze(0);
  }
  for (const std::string& name : tensors_of(names)) {
    block.tensors.push_back(parameters.at(name));
  }
  return block;
}

void bring_bias(Pass& pass, const Block& block, RelativeBuckets& buckets, std::int64_t length,
                bool causal, const at::TensorOptions& options) {
  if (block.relative_bias.defined()) {
    const std::int64_t first = pass.step != nullptr ? pass.step->first : 0;
    pass.mask = relative_bias(block.relative_bias, buckets, first + length, causal, first);
  } else if (block.symmetric_slopes.defined()) {
    pass.mask = symmetric_alibi_bias(block.symmetric_slopes, length, options);
  }
}

at::Tensor run_block(const Block& block, const ModelSpec& spec, const at::Tensor& x,
                     const Pass& pass) {
  switch (spec.norm_placement) {
    case NormPlacement::kAfterSublayer: return norm_after_sublayer(block, spec, x, pass);
    case NormPlacement::kAfterResidual: return norm_after_residual(block, spec, x, pass);
    case NormPlacement::kBefore:
    case NormPlacement::kAround: break;
  }
  return spec.parallel_residual ? both_at_once(block, spec, x, pass)
                                : norm_before_or_around(block, spec, x, pass);
}

at::Tensor run_block_recomputed(const Block& block, const ModelSpec& spec, const at::Tensor& x,
                                const Pass& pass) {
  const auto run = [&block, &spec, pass](const std::vector<at::Tensor>& inputs) {
    // The block's result, then those of its attentions, then the sums of its router.
    std::vector<at::Tensor> results(1);
    Pass again = pass;
    again.mask = inputs[1];
    again.encoded = inputs[2];
    if (pass.on_attention) {
      again.on_attention = [&results](AttentionRole, const at::Tensor&, const at::Tensor& output) {
        results.push_back(output);
      };
    }
    if (pass.on_routing) {
      again.on_routing.call = [&results](const RouterSums& sums) {
        results.insert(results.end(), {sums.probabilities, sums.chosen});
      };
    }
    results.front() = run_block(block, spec, inputs[0], again);
    return results;
  };
  std::vector<at::Tensor> results =
      recompute_for_gradients(run, {x, pass.mask, pass.encoded}, block.tensors);
  if (pass.on_routing && block.experts.present()) {
    pass.on_routing.call({results[results.size() - 2], results.back().detach()});
    results.resize(results.size() - 2);
  }
  for (std::size_t i = 1; i < results.size(); ++i) {
    const bool self = i == 1 && block.attention.present();
    pass.on_attention(self ? AttentionRole::kSelf : AttentionRole::kCross, {}, results[i]);
  }
  return results.front();
}

namespace {

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
    std::ranges::copy_if(leaves, std::back_inserter(wanted), &at::Tensor::requires_grad);
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
  append(tensors, weights);
  return Recomputation::apply(at::TensorList(tensors), recipe);
}

}  // namespace regroup
