#include "converter/conversion_plan.h"

#include <bit>
#include <unordered_map>
#include <unordered_set>

#include "converter/kv_head_request.h"
#include "converter/provenance.h"
#include "formats/error.h"
#include "formats/families/family.h"
#include "formats/printable.h"
#include "formats/safetensors.h"

namespace regroup {
namespace {

using StepsByName = std::unordered_map<std::string, TensorStep>;

// One layer's tensors while its steps are planned.
struct LayerChange {
  const ModelSpec& spec;
  const Checkpoint& checkpoint;
  Packing packing;
  std::int64_t kv_heads_before = 0;
  std::int64_t kv_heads_after = 0;
};

void check_poolable(const TensorInfo& tensor) {
  if (!is_pooling_dtype(tensor.dtype)) {
    throw_bad_input("tensor {}: dtype {} cannot be pooled; allowed: F16, BF16, F32, F64",
                    printable(tensor.name), name_of(tensor.dtype));
  }
}

// Adds what becomes of one role's heads in the tensor `name` to that tensor's step.
void add_move(StepsByName& steps, const LayerChange& change, const std::string& name,
              bool input_major, HeadMove::Action action, std::int64_t features_after,
              std::span<const std::int64_t> from, std::span<const std::int64_t> to) {
  if (name.empty()) {
    return;
  }
  const TensorInfo& tensor = change.checkpoint.at(name);
  check_poolable(tensor);
  Shape shape = tensor.shape;
  shape[shape.size() == 2 && input_major ? 1 : 0] = features_after;
  TensorStep& step =
      steps.try_emplace(name, TensorStep{{name, tensor.dtype, shape}, {}}).first->second;
  const std::int64_t head_dim = change.spec.head_dim;
  step.moves.push_back({action, head_blocks(tensor.shape, input_major, from, head_dim),
                        head_blocks(shape, input_major, to, head_dim)});
}

void add_role(StepsByName& steps, const LayerChange& change, const LinearTensors& linear,
              HeadMove::Action action, std::int64_t features_after,
              std::span<const std::int64_t> from, std::span<const std::int64_t> to) {
  for (const std::string& name : {linear.weight, linear.bias}) {
    add_move(steps, change, name, linear.input_major, action, features_after, from, to);
  }
}

void plan_layer(StepsByName& steps, const LayerChange& change, const AttentionLayout& attention) {
  const ModelSpec& spec = change.spec;
  const HeadFeatures before =
      head_features(change.packing, spec.query_heads, change.kv_heads_before, spec.head_dim);
  const HeadFeatures after =
      head_features(change.packing, spec.query_heads, change.kv_heads_after, spec.head_dim);
  const TensorInfo& k = change.checkpoint.at(attention.k.weight);
  const TensorInfo& v = change.checkpoint.at(attention.v.weight);
  if (k.dtype != v.dtype) {
    throw_bad_input("tensor {} is {} but {} is {}", printable(k.name), name_of(k.dtype),
                    printable(v.name), name_of(v.dtype));
  }
  if (change.packing != Packing::kSeparate) {
    add_role(steps, change, attention.q, HeadMove::Action::kCopy, after.q_total, before.q, after.q);
  }
  add_role(steps, change, attention.k, HeadMove::Action::kPoolMean, after.k_total, before.k,
           after.k);
  add_role(steps, change, attention.v, HeadMove::Action::kPoolMean, after.v_total, before.v,
           after.v);
}

// Norms of keys follow their heads: one set of weights for every head stays, weights of the whole
// projection are pooled like a bias.
void plan_key_norms(StepsByName& steps, const LayerChange& change,
                    const AttentionLayout& attention) {
  const ModelSpec& spec = change.spec;
  if (spec.qk_norm == QkNorm::kEachHead) {
    throw_bad_input(
        "{}: every key head has a norm of its own ({}); heads that are normalised differently have "
        "no mean that a loader could compute with",
        printable(spec.architecture), printable(attention.k_norms.front().weight));
  }
  if (spec.qk_norm == QkNorm::kProjection) {
    const HeadFeatures before =
        head_features(change.packing, spec.query_heads, change.kv_heads_before, spec.head_dim);
    const HeadFeatures after =
        head_features(change.packing, spec.query_heads, change.kv_heads_after, spec.head_dim);
    for (const NormTensors& norm : attention.k_norms) {
      add_role(steps, change, {norm.weight, norm.bias}, HeadMove::Action::kPoolMean, after.k_total,
               before.k, after.k);
    }
  }
}

StepsByName plan_changes(const ModelSpec& spec, const Checkpoint& checkpoint,
                         const std::vector<std::int64_t>& kv_heads) {
  StepsByName steps;
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    if (kv_heads[i] != spec.kv_heads[i]) {
      const AttentionLayout& attention = spec.layers[i].attention;
      const LayerChange change{spec, checkpoint, attention.packing, spec.kv_heads[i], kv_heads[i]};
      plan_layer(steps, change, attention);
      plan_key_norms(steps, change, attention);
    }
  }
  return steps;
}

// A scale, a zero point or a bias that the config does not mention would be copied as it is and no
// longer fit the pooled weight beside it.
void check_nothing_left_beside(const StepsByName& changes, const Checkpoint& checkpoint) {
  const auto module_of = [](const std::string& name) { return name.substr(0, name.rfind('.')); };
  std::unordered_set<std::string> modules;
  for (const auto& [name, step] : changes) {
    modules.insert(module_of(name));
  }
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    if (modules.contains(module_of(tensor.name)) && !changes.contains(tensor.name)) {
      throw_bad_input(
          "{}: tensor {}: its weight is to be pooled, but the config says nothing of this part "
          "(quantised, or an unmentioned bias?)",
          printable(checkpoint.file_of(tensor).path().string(), 0), printable(tensor.name));
    }
  }
}

std::vector<std::string> loading_notes(const ModelSpec& spec,
                                       const std::vector<std::int64_t>& kv_heads) {
  std::vector<std::string> notes;
  const bool changed = kv_heads != spec.kv_heads;
  const bool mixed = !is_uniform(kv_heads);
  if (mixed) {
    notes.push_back(fmt::format(
        "kv heads differ between layers: stock {} loaders take one number for all of them; "
        "regroup runs the result",
        spec.architecture));
  } else if (changed && !spec.loaders_read_kv_heads &&
             (spec.multi_query_key.empty() || kv_heads.front() != 1)) {
    notes.push_back(
        fmt::format("stock {} loaders know no grouped heads (the config gets num_key_value_heads "
                    "all the same); "
                    "regroup runs the result",
                    spec.architecture));
  }
  if (!mixed && !std::has_single_bit(static_cast<std::uint64_t>(kv_heads.front()))) {
    notes.push_back(fmt::format(
        "{} kv heads are no power of two: tensor-parallel servers need a count that divides evenly",
        kv_heads.front()));
  }
  return notes;
}

void check_output_names(const Checkpoint& checkpoint) {
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    if (tensor.name.empty()) {
      throw_bad_input("{}: a tensor without a name",
                      printable(checkpoint.file_of(tensor).path().string(), 0));
    }
  }
}

}  // namespace

std::uint64_t kv_bytes_per_token(const std::vector<std::int64_t>& kv_heads, std::int64_t head_dim,
                                 DType dtype) {
  std::uint64_t heads = 0;
  for (const std::int64_t count : kv_heads) {
    heads += static_cast<std::uint64_t>(count);
  }
  return 2 * heads * static_cast<std::uint64_t>(head_dim) * bits_of(dtype) / 8;
}

ConversionPlan plan_conversion(const Model& source, const ConversionRequest& request) {
  const Checkpoint& checkpoint = source.checkpoint;
  ConversionPlan plan;
  plan.spec = source.spec;
  check_attention_shapes(plan.spec, checkpoint);
  check_output_names(checkpoint);
  plan.kv_heads = resolve_kv_heads(request.kv_heads, plan.spec);
  plan.max_shard_bytes = request.max_shard_bytes;
  plan.allow_nonfinite = request.allow_nonfinite;

  StepsByName changes = plan_changes(plan.spec, checkpoint, plan.kv_heads);
  check_nothing_left_beside(changes, checkpoint);
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    const auto change = changes.find(tensor.name);
    plan.steps.push_back(change != changes.end()
                             ? std::move(change->second)
                             : TensorStep{{tensor.name, tensor.dtype, tensor.shape}, {}});
    const OutputTensor& output = plan.steps.back().output;
    plan.source_bytes += tensor.bytes();
    plan.output_bytes += tensor_bytes(output.dtype, output.shape);
  }

  const DType kv_dtype = checkpoint.at(plan.spec.layers.front().attention.k.weight).dtype;
  plan.kv_bytes_per_token_before =
      kv_bytes_per_token(plan.spec.kv_heads, plan.spec.head_dim, kv_dtype);
  plan.kv_bytes_per_token_after = kv_bytes_per_token(plan.kv_heads, plan.spec.head_dim, kv_dtype);

  const Provenance facts{plan.spec.kv_heads, plan.kv_heads, "mean", "contiguous"};
  plan.config_text = config_with_provenance(source.config_text, plan.spec, facts);
  plan.metadata = metadata_with_provenance(checkpoint.metadata(), plan.spec, facts);
  plan.notes = loading_notes(plan.spec, plan.kv_heads);
  return plan;
}

}  // namespace regroup
