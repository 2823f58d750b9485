#include "converter/convert/conversion_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "converter/convert/equivalence.h"
#include "converter/convert/execute_plan.h"
#include "converter/convert/kv_head_request.h"
#include "converter/convert/tensor_mapping.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/families/family.h"
#include "formats/model/conversion_record.h"
#include "formats/model/serving_cost.h"
#include "formats/spec/config_writers.h"
#include "formats/tensors/checkpoint.h"

namespace regroup {

namespace {

// The spec to compute: the source with fewer kv heads, and other positions if requested.
ModelSpec grouped_spec(const ModelSpec& source, const ConversionRequest& request) {
  ModelSpec grouped = source;
  for (const AttentionRole role : request.roles) {
    if (!request.kv_heads.empty() && contains(source.roles(), role)) {
      grouped.kv_heads_of(role) = resolve_kv_heads(request.kv_heads, source, role);
    }
  }
  if (request.positions == PositionChange::kAlibi) {
    use_alibi(grouped);
  }
  move_slopes(request.order, source, grouped);
  return grouped;
}

// Whether the result has the source's own form.
bool keeps_form(const ConversionRequest& request) {
  return request.target == "same" || request.target == "expanded";
}

// The requested container; if none, that of a named architecture or the source's own.
Container choose_container(const Model& source, const ConversionRequest& request) {
  const Container container = request.container.value_or(
      keeps_form(request) ? container_of(source) : Container::kSafetensors);
  if (!keeps_form(request) && is_single_file(container)) {
    throw_usage("--target {} is a Hugging Face architecture, which this container cannot hold",
                printable(request.target));
  }
  if (request.target == "expanded" && container != container_of(source) &&
      is_single_file(container)) {
    throw_usage("--target expanded keeps the source's own container");
  }
  return container;
}

// A base model has no output head, which every other form needs. It therefore keeps its form.
void check_head(const Model& source, const ModelSpec& grouped, const ConversionRequest& request,
                Container container) {
  const bool same_form =
      keeps_form(request) || (request.target == "auto" && loaders_take_heads(grouped));
  if (!source.missing_head.empty() && (!same_form || is_single_file(container))) {
    throw_usage(
        "{}: a base model, without the head that predicts tokens ({} is in none of its files), "
        "cannot be written in another form; allowed are --target same and expanded, --to "
        "safetensors and torch",
        printable_path(source.path), printable(source.missing_head));
  }
}

// Only the whole model's own form has a place for its other tensors.
void check_part(const ModelSpec& source, const ConversionRequest& request, Container container) {
  if (source.whole_model.empty()) {
    return;
  }
  const std::string model = printable(source.whole_model);
  if (request.positions != PositionChange::kKeep) {
    throw_usage("--positions: the language model inside a {} model keeps its positions", model);
  }
  if ((request.target != "auto" && !keeps_form(request)) || is_single_file(container)) {
    throw_usage(
        "the language model inside a {} model is converted in place, since another form has no "
        "place for the other tensors: --target same or expanded, --to safetensors or torch",
        model);
  }
}

void check_output_names(const Checkpoint& checkpoint) {
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    if (tensor.name.empty()) {
      throw_bad_input("{}: a tensor without a name", checkpoint.file_of(tensor).where());
    }
  }
}

// The dtype that cache_dtype_of() will find in the result.
DType cache_dtype_after(const ConversionPlan& plan) {
  const auto& layers = plan.target.layers;
  const auto first = std::ranges::find_if(
      layers, [](const LayerTensors& layer) { return layer.attention.present(); });
  if (first != layers.end()) {
    for (const TensorStep& step : plan.steps) {
      if (step.output.name == first->attention.k.weight) {
        return cache_dtype_of(step.output.dtype);
      }
    }
  }
  return DType::kF16;
}

CacheChange cache_change(const ConversionPlan& plan, const Checkpoint& checkpoint,
                         AttentionRole role) {
  const DType before = cache_dtype_of(plan.spec, checkpoint), after = cache_dtype_after(plan);
  return {kv_bytes_per_token(plan.spec.kv_heads_of(role), plan.spec.head_dim, before),
          kv_bytes_per_token(plan.target.kv_heads_of(role), plan.spec.head_dim, after), before,
          after};
}

void count_bytes(ConversionPlan& plan, const Checkpoint& checkpoint) {
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    plan.source_bytes += tensor.bytes();
  }
  for (const TensorStep& step : plan.steps) {
    plan.output_bytes += tensor_bytes(step.output.dtype, step.output.shape);
  }
  if (plan.spec.causal) {
    plan.kv_bytes_per_token = cache_change(plan, checkpoint, AttentionRole::kSelf);
  }
  if (plan.spec.has_encoder()) {
    plan.cross_kv_bytes_per_token = cache_change(plan, checkpoint, AttentionRole::kCross);
  }
}

// Checks that heads of `source` allow the method's changes of basis.
void check_can_pool(const ModelSpec& source, PoolMethod method) {
  if (!needs_solver(method)) {
    return;
  }
  if (source.clip_qkv) {
    throw_usage(
        "pooling method {}: {} clamps queries, keys and values (clip_qkv), which allows no change "
        "of basis; allowed are mean, first and random",
        name_of(method), printable(source.architecture));
  }
  if (!source.not_computable.empty()) {
    throw_usage(
        "pooling method {}: it is not known what {} computes with its heads ({}); allowed are "
        "mean, first and random",
        name_of(method), printable(source.architecture), printable(source.not_computable));
  }
}

// Checks that the refiner has pooled attentions and the source's outputs as a target.
void check_can_refine(const ConversionPlan& plan) {
  if (!plan.request.refiner) {
    return;
  }
  if (plan.request.positions != PositionChange::kKeep) {
    throw_usage(
        "--refit: with other positions, the result cannot be fitted to the source's outputs");
  }
  if (pooled_layers(plan).empty()) {
    throw_usage("--refit: no layer gets fewer kv heads, so there is nothing to refit");
  }
}

// The plan with what the request fixes: the result's heads, and how it is made and stored.
ConversionPlan begin_plan(const Model& source, const ConversionRequest& request) {
  ConversionPlan plan;
  plan.request = request;
  plan.request.pooling.refined = request.refiner != nullptr;
  plan.spec = source.spec;
  plan.source_fingerprint = fingerprint_of(source);
  plan.grouped = grouped_spec(plan.spec, request);
  plan.container = choose_container(source, request);
  return plan;
}

// The order of the source's query heads, by layer; null if no head moved.
Json query_order_of(const ConversionPlan& plan) {
  if (plan.request.order.empty()) {
    return nullptr;
  }
  Json roles = Json::object();
  for (const AttentionRole role : plan.spec.roles()) {
    Json layers = Json::array();
    for (std::size_t i = 0; i < plan.spec.stack(role).size(); ++i) {
      layers.push_back(plan.request.order.heads(role, i, plan.spec.query_heads));
    }
    roles[std::string(name_of(role))] = std::move(layers);
  }
  return plan.spec.has_encoder() ? roles : roles.front();
}

// Records the statistics that heads were solved from.
void record_statistics(ConversionRecord& record, const ConversionPlan& plan) {
  if (!needs_solver(plan.request.pooling.method)) {
    return;
  }
  if (const auto& discarded = plan.request.pooling.discarded_statistics) {
    record.calibration_tokens = discarded->tokens;
    record.calibration = discarded->fingerprint;
    record.calibration_kept = false;
  } else if (plan.request.calibration) {
    record.calibration_tokens = plan.request.calibration->tokens();
    record.calibration = plan.request.calibration->fingerprint();
  }
}

ConversionRecord record_of(const ConversionPlan& plan, const Model& source,
                           const ModelSpec& target) {
  ConversionRecord record;
  record.set_specs(plan.spec, plan.grouped, target);
  record.pool = name_of(plan.request.pooling.method);
  record.grouping = plan.request.grouping;
  record.query_order = query_order_of(plan);
  record.source_fingerprint = plan.source_fingerprint;
  if (plan.request.pooling.method == PoolMethod::kRandom) {
    record.pool_seed = plan.request.pooling.seed;
  }
  if (plan.request.pooling.solves_elsewhere()) {
    record.pool_device = plan.request.pooling.device_kind();
  }
  if (plan.request.dtype) {
    record.dtype = name_of(*plan.request.dtype);
  }
  if (plan.request.refiner) {
    record.refit = plan.request.refiner->recipe();
  }
  if (plan.request.pooling.distillation) {
    record.distill = *plan.request.pooling.distillation;
  }
  record_statistics(record, plan);
  if (Json steps = record_of(source).steps(); !steps.empty()) {
    record.history = std::move(steps);
  }
  return record;
}

DType dtype_of_most_matrices(const ConversionPlan& plan) {
  std::map<DType, std::int64_t> matrices;
  for (const TensorStep& step : plan.steps) {
    matrices[step.output.dtype] += step.output.shape.size() >= 2 ? 1 : 0;
  }
  const auto most =
      std::ranges::max_element(matrices, {}, [](const auto& each) { return each.second; });
  return most == matrices.end() ? DType::kF32 : most->first;
}

// By its number in llama.cpp's enumeration of file types.
std::uint32_t gguf_file_type(const ConversionPlan& plan) {
  switch (dtype_of_most_matrices(plan)) {
    case DType::kF16: return 1;
    case DType::kQ8_0: return 7;
    case DType::kBF16: return 32;
    default: return 0;
  }
}

// Replaces each dtype that `part`, at `path` in the text, names for weights. Returns whether it
// names one itself.
bool replace_dtypes(std::string& config_text, const Json& part, std::vector<std::string> path,
                    const std::string& value) {
  bool found = false;
  for (const auto& [key, member] : part.items()) {
    path.push_back(key);
    if ((key == "dtype" || key == "torch_dtype") && member.is_string()) {
      config_text = with_member(config_text, path, value);
      found = true;
    } else if (member.is_object() && key != kRecordKey && key != "quantization_config") {
      replace_dtypes(config_text, member, path, value);
    }
    path.pop_back();
  }
  return found;
}

// Loaders round or widen weights to the dtype that the config names.
std::string config_with_dtype(std::string config_text, const ConversionPlan& plan) {
  const std::map<DType, std::string> names{
      {DType::kF32, "float32"}, {DType::kF16, "float16"}, {DType::kBF16, "bfloat16"}};
  const auto name = names.find(dtype_of_most_matrices(plan));
  if (name == names.end()) {
    return config_text;
  }
  const std::string value = '"' + name->second + '"';
  const Json config = parse_json_object(config_text, "config.json");
  return replace_dtypes(config_text, config, {}, value)
             ? config_text
             : with_member(config_text, {"torch_dtype"}, value);
}

// Whether the conversion decides a dtype, which leaves nothing of the source's to restore.
bool chooses_dtype(const ConversionPlan& plan) {
  return plan.request.dtype && !is_block_type(*plan.request.dtype);
}

// The metadata of a GGUF file, including that of the directory it was made from.
GgufMetadata gguf_with_record(GgufMetadata metadata, const Model& source,
                              const ConversionPlan& plan, const ConversionRecord& record) {
  metadata = metadata_with_record(std::move(metadata), record);
  if (source.convention == Convention::kHuggingFace) {
    record_source(
        metadata, source,
        config_with_record(config_with_changed_heads(source.config_text, plan.spec, plan.grouped),
                           record_of(plan, source, plan.grouped)));
  }
  if (chooses_dtype(plan)) {
    metadata.remove_if([](std::string_view key) { return key == kSourceDtypesKey; });
  }
  if (!metadata.contains("general.file_type")) {
    metadata.set_u32("general.file_type", gguf_file_type(plan));
  }
  return metadata;
}

// Fills in the plan's metadata, and the record of the conversion in its config or GGUF metadata.
// The rest of the plan must be set.
void add_record(ConversionPlan& plan, const Model& source) {
  const ConversionRecord record = record_of(plan, source, plan.target);
  plan.metadata = metadata_with_record(source.checkpoint.metadata(), record);
  if (!is_single_file(plan.container)) {
    if (chooses_dtype(plan) || (source.gguf && !source.gguf->contains(kSourceDtypesKey))) {
      plan.config_text = config_with_dtype(std::move(plan.config_text), plan);
    }
    plan.config_text = config_with_record(
        config_with_changed_heads(plan.config_text, plan.spec, plan.target), record);
  } else if (plan.container == Container::kGguf) {
    plan.gguf = gguf_with_record(std::move(*plan.gguf), source, plan, record);
  }
}

// The source's own architecture, asked for by its name, is the form that it has, unless it has a
// name that stock loaders refuse.
ConversionRequest with_own_form(const Model& source, ConversionRequest request) {
  const std::string& own = source.spec.architecture;
  const std::string type = stock_model_type(source.config);
  if (source.convention == Convention::kHuggingFace && source.spec.whole_model.empty() &&
      request.positions == PositionChange::kKeep && !has_alibi_names(source.config) &&
      architecture_of_model_type(type) == own &&
      (request.target == own || request.target == type)) {
    request.target = "same";
  }
  return request;
}

// `written`: whether loaders will see the result.
ConversionPlan make_plan(const Model& source, const ConversionRequest& asked, bool written) {
  const ConversionRequest request = with_own_form(source, asked);
  const Checkpoint& checkpoint = source.checkpoint;
  check_tensors(source.spec, checkpoint);
  check_output_names(checkpoint);
  check_order(request.order, source.spec);
  ConversionPlan plan = begin_plan(source, request);
  check_can_pool(plan.spec, plan.request.pooling.method);
  check_can_refine(plan);
  check_part(source.spec, request, plan.container);
  check_head(source, plan.grouped, request, plan.container);
  Target target =
      choose_target(source, plan.grouped, plan.container, request.target, request.stored_kv_heads);
  if (written) {
    keep_from_stock_loaders(target, plan.container, request.target);
    choose_loader_code(target, source, plan.container, request.loader);
  }
  if (written && !is_single_file(plan.container)) {
    keep_origin(target, source);
  }
  plan.target = std::move(target.spec);
  static_cast<ResultFiles&>(plan) = std::move(target);
  plan_steps(plan, source);
  count_bytes(plan, checkpoint);
  add_record(plan, source);
  if (!is_single_file(plan.container)) {
    append(plan.notes, notes_on_companions(source));
  }
  add_notes(plan, checkpoint);
  return plan;
}

}  // namespace

std::uint64_t kv_bytes_per_token(const std::vector<std::int64_t>& kv_heads, std::int64_t head_dim,
                                 DType dtype) {
  const auto heads = std::accumulate(kv_heads.begin(), kv_heads.end(), std::uint64_t{0});
  return 2 * heads * static_cast<std::uint64_t>(head_dim) * bits_of(dtype) / 8;
}

ConversionPlan plan_conversion(const Model& source, const ConversionRequest& request) {
  return make_plan(source, request, true);
}

ConversionPlan plan_reference(const Model& source, const ConversionRequest& request) {
  return make_plan(source, request, false);
}

}  // namespace regroup
