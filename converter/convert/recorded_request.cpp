#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <string_view>

#include "converter/convert/tensor_parts.h"
#include "converter/convert/verify_conversion.h"
#include "formats/base/error.h"
#include "formats/base/json.h"
#include "formats/base/printable.h"
#include "formats/families/loader_code.h"
#include "formats/tensors/dtype.h"
#include "formats/version.h"

namespace regroup {

namespace {

using DTypeCounts = std::map<DType, std::size_t>;

// The type that most matrices of a result have.
std::optional<DType> usual_dtype(const Checkpoint& result) {
  DTypeCounts matrices;
  for (const TensorInfo& tensor : result.tensors()) {
    matrices[tensor.dtype] += tensor.shape.size() == 2 && can_encode(tensor.dtype) ? 1 : 0;
  }
  const auto most = std::ranges::max_element(matrices, {}, &DTypeCounts::value_type::second);
  return most != matrices.end() && most->second > 0 ? std::optional(most->first) : std::nullopt;
}

// If most matrices have another type than in `plan`, which was made without a requested type: that
// type.
std::optional<DType> asked_dtype(const ConversionPlan& plan, const Checkpoint& result) {
  DTypeCounts others;
  std::size_t matrices = 0;
  for (const TensorStep& step : plan.steps) {
    const TensorInfo* tensor = result.find(step.output.name);
    if (tensor == nullptr || step.output.shape.size() != 2 || !can_decode(step.output.dtype)) {
      continue;
    }
    ++matrices;
    if (tensor->dtype != step.output.dtype && can_encode(tensor->dtype)) {
      ++others[tensor->dtype];
    }
  }
  const auto most = std::ranges::max_element(others, {}, &DTypeCounts::value_type::second);
  return most != others.end() && 2 * most->second > matrices ? std::optional(most->first)
                                                             : std::nullopt;
}

// The recorded dtype; none if no dtype was requested. Earlier versions did not record it. It is
// then inferred from the tensors and `request`, which holds the rest of the request.
std::optional<DType> requested_dtype(const ConversionRequest& request,
                                     const ConversionRecord& record, const Model& source,
                                     const Model& result) {
  if (record.dtype.recorded()) {
    const std::string& recorded = record.dtype.value.value();
    const auto dtype = recorded == name_of(DType::kQ8_0) ? DType::kQ8_0 : dtype_from_name(recorded);
    if (!dtype || !can_encode(*dtype)) {
      throw_bad_input("{}: its recorded dtype is {}, must be one that --dtype takes, such as F16",
                      printable_path(result.path), printable_json(record.dtype.stored));
    }
    return dtype;
  }
  const auto& tensors = source.checkpoint.tensors();
  const bool quantised = std::ranges::any_of(tensors, is_block_type, &TensorInfo::dtype);
  return quantised && request.container != Container::kGguf
             ? usual_dtype(result.checkpoint)
             : asked_dtype(plan_conversion(source, request), result.checkpoint);
}

std::string where(const Model& model) { return printable_path(model.path); }

// Checks that all facts determine a request or follow from it. Any other key is of a step that this
// version does not know.
void check_known(const ConversionRecord& record, const Model& result) {
  if (record.training.recorded()) {
    throw_usage(
        "{}: was trained after its conversion, which cannot be recomputed; --logits compares its "
        "predictions with the source's",
        where(result));
  }
  if (const auto unknown = record.unknown(); !unknown.empty()) {
    throw_usage("{}: records \"{}\", which cannot be recomputed", where(result),
                printable(unknown.front().first));
  }
}

using VersionNumbers = std::array<int, 3>;

std::optional<VersionNumbers> numbers_of(std::string_view version) {
  VersionNumbers numbers{};
  const char* at = version.data();
  const char* end = at + version.size();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0 && (at == end || *at++ != '.')) {
      return std::nullopt;
    }
    const auto [next, fault] = std::from_chars(at, end, numbers[i]);
    if (fault != std::errc() || numbers[i] < 0) {
      return std::nullopt;
    }
    at = next;
  }
  return at == end ? std::optional(numbers) : std::nullopt;
}

// A later version may have used steps that this one does not know.
void check_version(const ConversionRecord& record, const Model& result) {
  const auto numbers = numbers_of(record.version.value.value_or(""));
  if (!numbers) {
    throw_bad_input("{}: records version {}, which is not a version of regroup", where(result),
                    printable_json(record.version.stored));
  }
  if (*numbers > numbers_of(kVersion)) {
    throw_usage(
        "{}: was written by regroup {}, this is {}: verify it with that version or a later one",
        where(result), *record.version.value, kVersion);
  }
}

// Represents the refiner of an existing result. A result records only its recipe, so it cannot
// refine.
class RecordedRefiner : public AttentionRefiner {
 public:
  RecordedRefiner(const Recipe& recipe, std::string result)
      : recipe_(recipe), result_(std::move(result)) {}

  RefinementReport refine(AttentionRole, std::size_t, std::span<const std::int64_t>,
                          AttentionHeads&) override {
    throw_usage("{}: was refitted after pooling, which cannot be recomputed", result_);
  }
  Recipe recipe() const override { return recipe_; }
  double training_token_equivalents(const ModelSpec&) const override { return 0.0; }

 private:
  Recipe recipe_;
  std::string result_;
};

// A result that stock loaders load and misread is wrong, even if it can be recomputed.
void check_loaders_agree(const Model& result) {
  const std::vector<std::string> misread = misread_by_loaders(result.spec, result.config);
  if (!misread.empty() && loaders_take_heads(result.spec)) {
    throw Error(ErrorKind::kDifference, fmt::format("{}: loaders accept its model_type, but {}",
                                                    where(result), misread.front()));
  }
}

// The recorded kv heads of one role. Layers without attention have none.
std::vector<std::int64_t> heads_in(const Fact<KvHeads>& recorded, const ModelSpec& spec,
                                   AttentionRole role, const Model& result) {
  const std::vector<std::uint64_t> heads = heads_of(recorded.value, spec, role);
  if (heads.empty()) {
    throw_bad_input("{}: recorded kv_heads are {}, a number or a list of them is needed",
                    where(result), printable_json(recorded.stored));
  }
  const std::uint64_t most = *std::ranges::max_element(heads);
  if (most < 1 || most > static_cast<std::uint64_t>(spec.query_heads)) {
    throw_bad_input("{}: recorded kv_heads are {}, from 1 to {} are possible", where(result),
                    printable_json(recorded.stored), spec.query_heads);
  }
  return {heads.begin(), heads.end()};
}

// Reads the kv heads. In an encoder-decoder, one request must have grouped all roles with fewer
// heads.
void read_heads(ConversionRequest& request, const ConversionRecord& record, const Model& source,
                const Model& result) {
  const auto heads_after = [&](AttentionRole role) {
    return heads_in(record.kv_heads, source.spec, role, result);
  };
  if (!source.spec.has_encoder()) {
    request.kv_heads = heads_after(AttentionRole::kSelf);
    return;
  }
  request.roles.clear();
  for (const AttentionRole role : source.spec.roles()) {
    const auto asked = heads_after(role);
    if (asked == heads_in(record.source_kv_heads, source.spec, role, result)) {
      continue;
    }
    if (!request.roles.empty() && asked != request.kv_heads) {
      throw_usage(
          "{}: its attention layers were grouped in separate conversions, which cannot be "
          "recomputed in one",
          where(result));
    }
    request.kv_heads = asked;
    request.roles.push_back(role);
  }
}

using Heads = std::vector<std::int64_t>;

// The order of query heads in a JSON list, or none if it is not a permutation.
Heads permutation_in(const Json& recorded, std::int64_t count) {
  const auto is_head = [&](const Json& value) {
    return value.is_number_unsigned() &&
           value.get<std::uint64_t>() < static_cast<std::uint64_t>(count);
  };
  if (!recorded.is_array() || !std::ranges::all_of(recorded, is_head)) {
    return {};
  }
  Heads heads = recorded.get<Heads>();
  return is_permutation_of(count, heads) ? heads : Heads{};
}

// The order of kv heads. Every `readers`-th query head determines one.
Heads kv_heads_moved(const Heads& query_heads, std::int64_t readers) {
  Heads kv_heads;
  for (std::size_t i = 0; i < query_heads.size(); i += static_cast<std::size_t>(readers)) {
    kv_heads.push_back(query_heads[i] / readers);
  }
  return kv_heads;
}

bool set_layer(HeadOrder& order, const ModelSpec& source, AttentionRole role, std::size_t layer,
               const Json& recorded) {
  const Heads queries = permutation_in(recorded, source.query_heads);
  if (queries.empty() || queries == evenly_spaced(source.query_heads)) {
    return !queries.empty();  // also in layers without kv heads
  }
  const std::int64_t count = source.kv_heads_of(role)[layer];
  Heads kv_heads = count > 0 ? kv_heads_moved(queries, source.query_heads / count) : Heads{};
  if (!is_permutation_of(count, kv_heads)) {
    return false;
  }
  order.set(role, layer, std::move(kv_heads));
  return order.heads(role, layer, source.query_heads) == queries;
}

// The order that a record has: null, or the permutation of query heads per layer, or an object of
// these by role. Each permutation must move whole kv heads of the source with their queries.
HeadOrder recorded_order(const Json& recorded, const ModelSpec& source, const std::string& where) {
  HeadOrder order;
  if (recorded.is_null()) {
    return order;
  }
  for (const AttentionRole role : source.roles()) {
    const std::string key(name_of(role));
    const Json layers = !source.has_encoder()  ? recorded
                        : recorded.is_object() ? recorded.value(key, Json(nullptr))
                                               : Json(nullptr);
    const std::size_t count = source.stack(role).size();
    if (!layers.is_array() || layers.size() != count) {
      throw_bad_input("{}: recorded query_order: a list of {} {} layers is needed", where, count,
                      name_of(role));
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (!set_layer(order, source, role, i, layers[i])) {
        throw_bad_input(
            "{}: recorded query_order of {} layer {} is {}: a permutation of {} query heads that "
            "keeps those of a kv head together is needed",
            where, name_of(role), i, printable_json(layers[i]), source.query_heads);
      }
    }
  }
  return order;
}

void read_grouping(ConversionRequest& request, const ConversionRecord& record, const Model& source,
                   const Model& result) {
  request.grouping = record.grouping.value.value_or("contiguous");
  if (request.grouping != "contiguous" && request.grouping != "similar") {
    throw_usage("{}: records grouping \"{}\", allowed are contiguous and similar", where(result),
                printable(request.grouping));
  }
  request.order = recorded_order(record.query_order.stored, source.spec, where(result));
}

// Requires the statistics that the result was pooled with.
void check_calibration(const ConversionRecord& record, const Model& result,
                       const Calibration* calibration) {
  const std::uint64_t tokens = *record.calibration_tokens.value;
  if (calibration == nullptr) {
    throw_usage("{}: was pooled with statistics of {} tokens: --calibration FILE is needed",
                where(result), tokens);
  }
  if (calibration->tokens() != tokens) {
    throw_usage("{}: was pooled with statistics of {} tokens, those given are of {}", where(result),
                tokens, calibration->tokens());
  }
  const std::string recorded = record.calibration.value.value_or(calibration->fingerprint());
  if (recorded != calibration->fingerprint()) {
    throw_usage(
        "{}: was pooled with other statistics: their fingerprint is \"{}\", the given ones "
        "have \"{}\"",
        where(result), printable(recorded), calibration->fingerprint());
  }
}

PoolMethod recorded_method(const ConversionRecord& record, const Model& result) {
  const std::string name = record.pool.value.value_or("");
  if (name == "aligned" || name == "select") {
    throw_usage(
        "{}: was pooled by method {} of an earlier version; this version does not compute it, so "
        "the result cannot be verified",
        where(result), name);
  }
  return parse_pool_method(name);
}

// The kind of device that solved for heads, as LibTorch names it.
std::string recorded_device(const ConversionRecord& record, const Model& result) {
  const std::string device = record.pool_device.value.value_or("cpu");
  if (device.empty() || device.find_first_not_of("abcdefghijklmnopqrstuvwxyz") < device.size()) {
    throw_bad_input("{}: its recorded pool_device is \"{}\", must be a kind of device such as cuda",
                    where(result), printable(device));
  }
  return device;
}

void read_pooling(ConversionRequest& request, const ConversionRecord& record, const Model& result,
                  std::shared_ptr<const Calibration> calibration) {
  request.pooling.method = recorded_method(record, result);
  request.pooling.seed = record.pool_seed.value.value_or(0);
  request.pooling.device = recorded_device(record, result);
  if (record.calibration_kept.recorded()) {
    if (calibration != nullptr) {
      throw_usage(
          "{}: its statistics were made by --text and not kept; verify without --calibration",
          where(result));
    }
    request.pooling.discarded_statistics = {record.calibration_tokens.value.value_or(0),
                                            record.calibration.value.value_or("")};
  } else if (record.calibration_tokens.recorded()) {
    check_calibration(record, result, calibration.get());
    request.calibration = std::move(calibration);
  }
  request.pooling.distillation = record.distill.value;
  if (record.refit.value) {
    request.refiner = std::make_shared<RecordedRefiner>(*record.refit.value, where(result));
  }
}

void read_target(ConversionRequest& request, const ConversionRecord& record, const Model& source,
                 const Model& result) {
  request.container = container_of(result);
  if (record.source_positions.recorded()) {
    request.positions = PositionChange::kAlibi;
  } else if (record.source_architecture.recorded() && !is_single_file(*request.container) &&
             source.convention == Convention::kHuggingFace) {
    request.target = result.spec.architecture;
  }
  if (record.stored_kv_heads.recorded()) {
    const std::vector<std::int64_t>& stored = result.spec.kv_heads;
    request.target = "expanded";
    request.stored_kv_heads = *std::ranges::max_element(stored);
  }
}

// Requires a source with the recorded kv heads.
void check_source(const ConversionRecord& record, const Model& source, const Model& result) {
  ConversionRecord expected;
  expected.set_specs(source.spec, source.spec, source.spec);
  if (record.source_kv_heads.stored != expected.source_kv_heads.stored) {
    throw_usage("{}: was made from a model whose kv heads are {}; those of {} are {}",
                where(result), printable_json(record.source_kv_heads.stored), where(source),
                printable_json(expected.source_kv_heads.stored));
  }
}

}  // namespace

ConversionRequest recorded_request(const Model& source, const Model& result,
                                   std::shared_ptr<const Calibration> calibration) {
  const ConversionRecord record = record_of(result);
  if (record.facts().is_null()) {
    throw_usage("{}: records no conversion by regroup{}", where(result),
                record_of(source).converted() ? "; the source comes first, then its result" : "");
  }
  check_known(record, result);
  check_loaders_agree(result);
  check_version(record, result);
  check_source(record, source, result);
  record.check_types(where(result));
  ConversionRequest request;
  request.allow_nonfinite = true;
  read_heads(request, record, source, result);
  read_grouping(request, record, source, result);
  read_pooling(request, record, result, std::move(calibration));
  read_target(request, record, source, result);
  request.loader =
      has_loader_code(result.config) ? LoaderChoice::kTransformers : LoaderChoice::kNone;
  request.dtype = requested_dtype(request, record, source, result);
  return request;
}

}  // namespace regroup
