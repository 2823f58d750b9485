#include <algorithm>
#include <bit>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "converter/convert/equivalence.h"
#include "converter/convert/runtimes.h"
#include "converter/convert/tensor_mapping.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/families/family.h"
#include "formats/families/gguf_model.h"
#include "formats/families/layout_tensors.h"
#include "formats/spec/tensor_names.h"
#include "formats/tensors/checkpoint.h"
#include "formats/tensors/dtype.h"

namespace regroup {

// Plans the steps and dtypes of a result's tensors, and checks that every source tensor is used.

namespace {

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
  // Integers, or a number: GPT-Neo's and GPT-J's masked_bias is out of other types' range.
  if (!can_decode(tensor.dtype) || (tensor.shape.empty() && container != Container::kGguf)) {
    return tensor.dtype;
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
  throw_usage(
      "tensor {} is {}, which only GGUF holds: --to gguf writes it, --dtype fp32 "
      "stores its numbers exactly",
      printable(step.output.name), name_of(dtype));
}

// A tensor of several parts has one dtype, which rounds the parts that have a wider one.
void check_parts(const TensorStep& step, const Checkpoint& checkpoint) {
  for (const HeadMove& move : step.moves) {
    const TensorInfo& first = checkpoint.at(step.moves.front().source);
    const TensorInfo& other = checkpoint.at(move.source);
    if (other.dtype != first.dtype) {
      throw_usage("tensor {} is made of {}, {}, and {}, {}: --dtype chooses one",
                  printable(step.output.name), printable(first.name), name_of(first.dtype),
                  printable(other.name), name_of(other.dtype));
    }
  }
}

void settle(TensorStep& step, const Model& source, const ConversionPlan& plan) {
  const std::optional<DType> wanted = plan.request.dtype;
  const Container container = plan.container;
  if (!wanted && container != Container::kGguf && !recorded_dtype(source, step.output.name)) {
    check_parts(step, source.checkpoint);
  }
  step.output.dtype = stored_dtype(step.output, source, container, wanted);
  if (moves_nothing(step, source.checkpoint)) {
    step.copy_of = step.moves.front().source;
    step.moves.clear();
  }
  step.output.dtype = writable_dtype(step, container);
  check_holdable(step, container);
}

TensorStep step_that_copies(const TensorInfo& tensor) {
  const Shape shape = tensor.shape.size() == 2 ? tensor.shape : Shape{tensor.elements()};
  const HeadBlocks all = head_blocks(shape, false, Rows{0}, shape[0]);
  TensorStep step{{tensor.name, tensor.dtype, tensor.shape}};
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
          "{}: its weight would be pooled, but the config does not describe this part (quantised, "
          "or an unmentioned bias?)",
          place_of(checkpoint, tensor));
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
        "{} is as wide as the keys, whose number of heads changes, and its role is not known: a "
        "layout file names norms of queries and keys as q_norm and k_norm",
        place_of(checkpoint, *tensor));
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
void plan_in_place(ConversionPlan& plan, const Model& source) {
  const Checkpoint& checkpoint = source.checkpoint;
  std::unordered_map<std::string, TensorStep> steps;
  for (TensorStep& step : map_attention_tensors(plan, checkpoint)) {
    settle(step, source, plan);
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
      settle(plan.steps.back(), source, plan);
    }
  }
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
    const bool adds_nothing =
        is_saved_buffer(tensor.name) || repeats(checkpoint, tensor, plan.spec.token_embedding) ||
        (tensor.name.ends_with(".bias") && holds_only_zeros(checkpoint, tensor));
    if (!adds_nothing) {
      throw_usage("{} has no place in {}", place_of(checkpoint, tensor),
                  printable(plan.target.architecture));
    }
    plan.dropped.push_back(tensor.name);
  }
}

void plan_tensor_mapping(ConversionPlan& plan, const Model& source) {
  if (plan.spec.attention_only()) {
    throw_usage("{}: a layout file describes attention only: no other form can be written",
                printable_path(source.path));
  }
  check_all_shapes(plan.spec, source.checkpoint);
  plan.steps = map_model_tensors(plan, source.checkpoint);
  for (TensorStep& step : plan.steps) {
    settle(step, source, plan);
  }
  if (plan.container == Container::kGguf && gguf_parts_for(plan.grouped).rope_factors) {
    const std::vector<float> factors = gguf_rope_factors(plan.grouped.rope);
    TensorStep step{{"rope_freqs.weight", DType::kF32, {std::ssize(factors)}}};
    step.values.assign(factors.begin(), factors.end());
    plan.steps.push_back(std::move(step));
  }
  account_for_rest(plan, source.checkpoint);
}

}  // namespace

void plan_steps(ConversionPlan& plan, const Model& source) {
  if (plan.in_place) {
    plan_in_place(plan, source);
  } else {
    plan_tensor_mapping(plan, source);
  }
}

namespace {

// Whether the result has names that stock loaders refuse. Another note says so.
bool has_own_names(const ConversionPlan& plan) {
  return !plan.config_text.empty() &&
         has_alibi_names(parse_json_object(plan.config_text, "config.json"));
}

void note_loading(ConversionPlan& plan) {
  const ModelSpec& target = plan.target;
  const bool hugging_face =
      !is_single_file(plan.container) && !has_own_names(plan) && plan.loader_files.empty();
  const std::string_view runs = target.not_computable.empty() ? "; regroup runs the result" : "";
  const auto roles = target.roles();
  const bool mixed = std::ranges::any_of(
      roles, [&](AttentionRole role) { return !is_uniform(target.kv_heads_of(role)); });
  const bool changed = std::ranges::any_of(roles, [&](AttentionRole role) {
    return plan.target.kv_heads_of(role) != plan.spec.kv_heads_of(role);
  });
  if (hugging_face && mixed && !target.loaders_let_layers_differ) {
    plan.notes.push_back(fmt::format(
        "kv heads differ between layers: stock {} loaders take one number for all of them{}",
        printable(target.architecture), runs));
  } else if (hugging_face && changed && loaders_are_unknown(target)) {
    plan.notes.push_back(fmt::format(
        "the config gets the number of kv heads as {}; whether the loaders of {} read it is not "
        "known here",
        printable(fmt::format("{}", fmt::join(target.kv_heads_key, "."))),
        printable(target.architecture)));
  } else if (hugging_face && !loaders_are_unknown(target) && !loaders_take_heads(target)) {
    plan.notes.push_back(
        fmt::format("stock {} loaders do not support grouped heads (the config gets {} anyway){}; "
                    "--target auto writes another architecture if one computes the same",
                    printable(target.architecture), fmt::join(target.kv_heads_key, "."), runs));
  }
  const std::int64_t most = *std::ranges::max_element(target.kv_heads);
  const bool served = target.causal && !target.has_encoder();
  if (served && !mixed && !std::has_single_bit(static_cast<std::uint64_t>(most))) {
    plan.notes.push_back(fmt::format(
        "{0} kv heads: tensor parallelism needs a number of GPUs that divides {0} or is a multiple",
        most));
  }
}

// Notes on runtimes that do not load a changed model, or gain nothing from it.
void note_serving(ConversionPlan& plan) {
  const bool changed = plan.target.kv_heads != plan.spec.kv_heads ||
                       plan.target.architecture != plan.spec.architecture;
  if (is_single_file(plan.container) && !is_uniform(plan.target.kv_heads)) {
    // It pads values to the widest layer, unless its attention is fused.
    plan.notes.push_back(
        "llama.cpp caches values in every layer for the most kv heads of any layer, unless it runs "
        "with flash attention (--flash-attn on)");
  } else if (!is_single_file(plan.container) && changed && !has_own_names(plan)) {
    const Json config = parse_json_object(plan.config_text, "config.json");
    append(plan.notes, runtime_notes(plan.spec, {config, plan.target}));
  }
}

// Whether any attention of that role gets fewer heads but cannot reorder them.
bool stays_in_place(const ConversionPlan& plan, AttentionRole role) {
  const auto& before = plan.spec.kv_heads_of(role);
  const auto& after = plan.grouped.kv_heads_of(role);
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[i] != after[i] && !heads_can_move(plan.spec, role, i)) {
      return true;
    }
  }
  return false;
}

// Notes on heads that could not be reordered.
void note_grouping(ConversionPlan& plan) {
  for (const AttentionRole role : plan.spec.roles()) {
    if (plan.request.grouping == "similar" && stays_in_place(plan, role)) {
      plan.notes.push_back(
          fmt::format("{} layers that share a relative bias have different kv heads: their groups "
                      "stay contiguous",
                      name_of(role)));
    }
  }
}

// Notes on what a pooling method cannot do for this model.
void note_pooling(ConversionPlan& plan) {
  if (needs_solver(plan.request.pooling.method) && plan.spec.qk_norm != QkNorm::kNone &&
      !absorbs_qk_norms(plan.spec)) {
    plan.notes.push_back(
        fmt::format("queries and keys are normalised in a way that allows no change of basis: keys "
                    "are averaged, values pooled by {}",
                    name_of(plan.request.pooling.method)));
  }
}

// Notes on numbers of 8 bits, which --dtype leaves as they are.
void note_float8(ConversionPlan& plan) {
  const auto is_float8 = [](const TensorStep& step) {
    return name_of(step.output.dtype).starts_with("F8");
  };
  const auto count = std::ranges::count_if(plan.steps, is_float8);
  if (plan.request.dtype && count > 0) {
    plan.notes.push_back(
        fmt::format("{} tensors of {} stay as they are: --dtype does not convert them", count,
                    name_of(std::ranges::find_if(plan.steps, is_float8)->output.dtype)));
  }
}

// Notes on tensors whose block type changes, because the original can be read but not written.
void note_requantising(ConversionPlan& plan, const Checkpoint& source) {
  constexpr double kMiB = 1U << 20;
  std::set<std::string> before;
  std::uint64_t tensors = 0, bytes = 0;
  double smaller = 0.0;
  for (const TensorStep& step : plan.steps) {
    const DType dtype = step.output.dtype;
    const TensorInfo* from = step.moves.empty() ? nullptr : source.find(step.moves.front().source);
    if (from == nullptr || !is_block_type(from->dtype) || !is_block_type(dtype) ||
        dtype == from->dtype || dtype == plan.request.dtype) {
      continue;
    }
    ++tensors;
    before.emplace(name_of(from->dtype));
    bytes += tensor_bytes(dtype, step.output.shape);
    smaller += static_cast<double>(from->bytes()) / static_cast<double>(from->elements()) *
               static_cast<double>(element_count(step.output.shape));
  }
  if (tensors > 0) {
    plan.notes.push_back(fmt::format(
        "{} tensors are recomputed and stored as Q8_0, since {} can be read but not "
        "written: {:.1f} MiB instead of {:.1f}",
        tensors, fmt::join(before, ", "), static_cast<double>(bytes) / kMiB, smaller / kMiB));
  }
}

}  // namespace

void add_notes(ConversionPlan& plan, const Checkpoint& source) {
  note_loading(plan);
  note_serving(plan);
  note_pooling(plan);
  note_grouping(plan);
  note_float8(plan);
  note_requantising(plan, source);
}

}  // namespace regroup
