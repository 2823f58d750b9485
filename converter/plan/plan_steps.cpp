// Plans the steps and dtypes of a result's tensors, and checks that every source tensor is used.
#include "converter/plan/plan_steps.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "converter/target/recorded_target.h"
#include "converter/tensor_mapping/tensor_mapping.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/dtype/numbers.h"
#include "formats/families/family.h"
#include "formats/families/gguf/gguf_model.h"
#include "formats/layout_files/layout_tensors.h"

namespace regroup {
namespace {

std::string file_of(const Checkpoint& checkpoint, const TensorInfo& tensor) {
  return printable(checkpoint.file_of(tensor).path().string(), 0);
}

bool stays_in_place(const HeadMove& move) {
  bool own = move.row_order.empty() && !move.pooled;
  for (std::size_t h = 0; h < move.mean_of.size(); ++h) {
    own = own && move.mean_of[h] == std::vector{static_cast<std::int64_t>(h)};
  }
  return own && move.from.first == move.to.first && move.from.row_stride == move.to.row_stride &&
         move.from.column_stride == move.to.column_stride;
}

// A step that moves every element of one tensor to where it was is a copy.
bool moves_nothing(const TensorStep& step, const Checkpoint& checkpoint) {
  if (step.moves.empty() || step.add != 0.0 || step.fold || step.unit_rows) {
    return false;
  }
  const TensorInfo& source = checkpoint.at(step.moves.front().source);
  std::int64_t elements = 0;
  for (const HeadMove& move : step.moves) {
    if (move.source != source.name || !stays_in_place(move)) {
      return false;
    }
    elements += move.to.heads() * move.to.rows * move.to.columns;
  }
  return elements == source.elements() && source.dtype == step.output.dtype &&
         source.shape == step.output.shape;
}

// The dtype of a result tensor: what the container requires, else what is requested, else
// unchanged.
DType stored_dtype(const OutputTensor& tensor, const Model& source, Container container,
                   std::optional<DType> wanted) {
  if (!can_decode(tensor.dtype)) {
    return tensor.dtype;  // for example integers
  }
  const bool matrix = tensor.shape.size() >= 2;  // or a stack of them
  if (container == Container::kGguf) {
    // llama.cpp needs tensors that are not matrices in F32, and keeps routers in it.
    const bool exact = !matrix || tensor.name == "position_embd.weight" ||
                       tensor.name.ends_with(".ffn_gate_inp.weight");
    if (exact && source.convention != Convention::kGguf) {
      return DType::kF32;
    }
    const bool whole_blocks = matrix && tensor.shape.back() % 32 == 0;
    if (wanted && !exact && (*wanted != DType::kQ8_0 || whole_blocks)) {
      return *wanted;
    }
    return tensor.dtype == DType::kF64 ? DType::kF32 : tensor.dtype;
  }
  return wanted.value_or(recorded_dtype(source, tensor.name).value_or(tensor.dtype));
}

// Recomputed tensors of a type that cannot be written become Q8_0, in files with quantised tensors.
DType writable_dtype(const TensorStep& step, Container container) {
  const DType dtype = step.output.dtype;
  if (step.unchanged() || can_encode(dtype)) {
    return dtype;
  }
  return container == Container::kGguf && can_decode(dtype) ? DType::kQ8_0 : dtype;
}

// The source tensor that a step is made from, if there is one.
const std::string& origin_of(const TensorStep& step) {
  return step.unchanged()     ? step.copy_of
         : step.moves.empty() ? step.output.name
                              : step.moves.front().source;
}

void check_holdable(const TensorStep& step, Container container) {
  const DType dtype = step.output.dtype;
  if (!is_block_type(dtype) || container == Container::kGguf) {
    return;
  }
  if (!can_decode(dtype)) {
    throw_usage(
        "tensor {} is {}, whose numbers are not read: use a file of another quantisation, such as "
        "Q8_0 or Q4_K",
        printable(origin_of(step)), name_of(dtype));
  }
  throw_usage("tensor {} is {}, which only GGUF holds: --dtype fp32 stores its numbers exactly",
              printable(step.output.name), name_of(dtype));
}

void settle(TensorStep& step, const Model& source, const ConversionRequest& request,
            Container container) {
  step.output.dtype = stored_dtype(step.output, source, container, request.dtype);
  if (moves_nothing(step, source.checkpoint)) {
    step.copy_of = step.moves.front().source;
    step.moves.clear();
  }
  step.output.dtype = writable_dtype(step, container);
  check_holdable(step, container);
}

TensorStep step_that_copies(const TensorInfo& tensor) {
  const HeadBlocks all =
      tensor.shape.size() == 2
          ? head_blocks(tensor.shape, false, std::vector<std::int64_t>{0}, tensor.shape[0])
          : head_blocks({tensor.elements()}, false, std::vector<std::int64_t>{0},
                        tensor.elements());
  TensorStep step{{tensor.name, tensor.dtype, tensor.shape}, {}, {}, 0.0, {}, {}};
  step.moves.push_back(copy_of_heads(tensor.name, all, all));
  return step;
}

// A scale, zero point or bias that the config does not mention would be copied unchanged and no
// longer fit the changed weight.
void check_nothing_left_beside(const std::unordered_map<std::string, TensorStep>& steps,
                               const Checkpoint& checkpoint) {
  const auto module_of = [](const std::string& name) { return name.substr(0, name.rfind('.')); };
  std::unordered_set<std::string> modules;
  for (const auto& [name, step] : steps) {
    if (!step.unchanged()) {
      modules.insert(module_of(name));
    }
  }
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    if (modules.contains(module_of(tensor.name)) && !steps.contains(tensor.name)) {
      throw_bad_input(
          "{}: tensor {}: its weight would be pooled, but the config does not describe this part "
          "(quantised, or an unmentioned bias?)",
          file_of(checkpoint, tensor), printable(tensor.name));
    }
  }
}

// A norm of all keys that neither the config nor a layout mentions would keep the old width, and no
// loader would accept the result.
void check_keys_fit(const ConversionPlan& plan, const Checkpoint& checkpoint) {
  const TensorInfo* tensor = forgotten_tensor_of_keys(plan.spec, plan.grouped, checkpoint);
  if (tensor == nullptr) {
    tensor = forgotten_tensor_of_keys(plan.spec, plan.target, checkpoint);
  }
  if (tensor != nullptr) {
    throw_bad_input(
        "{}: tensor {} is as wide as the keys, whose number of heads changes, and its role is not "
        "known: a layout file names norms of queries and keys as q_norm and k_norm",
        file_of(checkpoint, *tensor), printable(tensor->name));
  }
}

// The source's position tensors, if the result has other positions.
std::unordered_set<std::string> dropped_positions(const ConversionPlan& plan) {
  if (plan.grouped.positions == plan.spec.positions) {
    return {};
  }
  const std::vector<std::string> names = position_tensors(plan.spec);
  return {names.begin(), names.end()};
}

// Keeps the source's tensors in order: changes those of attention, copies all others.
void plan_in_place(ConversionPlan& plan, const Model& source, const ConversionRequest& request) {
  const Checkpoint& checkpoint = source.checkpoint;
  std::unordered_map<std::string, TensorStep> steps;
  for (TensorStep& step : map_attention_tensors(
           {plan.spec, plan.grouped, plan.target, checkpoint, plan.pooling, plan.order})) {
    settle(step, source, request, plan.container);
    steps.emplace(step.output.name, std::move(step));
  }
  check_nothing_left_beside(steps, checkpoint);
  check_keys_fit(plan, checkpoint);
  const auto positions = dropped_positions(plan);
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    const auto step = steps.find(tensor.name);
    if (positions.contains(tensor.name)) {
      plan.dropped.push_back(tensor.name);
    } else if (step != steps.end()) {
      plan.steps.push_back(std::move(step->second));
    } else {
      plan.steps.push_back(step_that_copies(tensor));
      settle(plan.steps.back(), source, request, plan.container);
    }
  }
}

// Masks and frequencies that older loaders saved with the weights. No loader reads them.
bool is_buffer(const std::string& name) {
  constexpr std::string_view kEndings[] = {
      "attn.bias",      "attn.masked_bias",      "attn.causal_mask",
      "attention.bias", "attention.masked_bias", "rotary_emb.inv_freq",
      "rope.freqs",     "rope_freqs.weight",     "embed_positions.weights"};
  return std::any_of(std::begin(kEndings), std::end(kEndings),
                     [&](std::string_view ending) { return name.ends_with(ending); });
}

bool is_bias_of_zeros(const Checkpoint& checkpoint, const TensorInfo& tensor) {
  return tensor.name.ends_with(".bias") && holds_only_zeros(checkpoint, tensor);
}

// Checks that tensors which no step reads are not needed.
void account_for_rest(ConversionPlan& plan, const Checkpoint& checkpoint) {
  std::unordered_set<std::string> used = dropped_positions(plan);
  for (const TensorStep& step : plan.steps) {
    used.insert(step.copy_of);
    for (const HeadMove& move : step.moves) {
      used.insert(move.source);
    }
    if (step.fold) {
      used.insert({step.fold->from.weight, step.fold->from.bias});
    }
  }
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    if (used.contains(tensor.name)) {
      continue;
    }
    if (!is_buffer(tensor.name) && !repeats(checkpoint, tensor, plan.spec.token_embedding) &&
        !is_bias_of_zeros(checkpoint, tensor)) {
      throw_usage("{}: tensor {} has no place in {}", file_of(checkpoint, tensor),
                  printable(tensor.name), printable(plan.target.architecture));
    }
    plan.dropped.push_back(tensor.name);
  }
}

void plan_tensor_mapping(ConversionPlan& plan, const Model& source,
                         const ConversionRequest& request) {
  if (plan.spec.attention_only()) {
    throw_usage("{}: a layout file describes attention only: no other form can be written",
                printable(source.path.string(), 0));
  }
  check_all_shapes(plan.spec, source.checkpoint);
  plan.steps = map_model_tensors(
      {plan.spec, plan.grouped, plan.target, source.checkpoint, plan.pooling, plan.order});
  for (TensorStep& step : plan.steps) {
    settle(step, source, request, plan.container);
  }
  if (plan.container == Container::kGguf && gguf_parts_for(plan.grouped).rope_factors) {
    const std::vector<float> factors = gguf_rope_factors(plan.grouped.rope);
    TensorStep step{{"rope_freqs.weight", DType::kF32, {std::ssize(factors)}}, {}, {}, 0.0, {}, {}};
    step.values.assign(factors.begin(), factors.end());
    plan.steps.push_back(std::move(step));
  }
  account_for_rest(plan, source.checkpoint);
}

}  // namespace

void plan_steps(ConversionPlan& plan, const Model& source, const ConversionRequest& request) {
  if (plan.in_place) {
    plan_in_place(plan, source, request);
  } else {
    plan_tensor_mapping(plan, source, request);
  }
}

}  // namespace regroup
