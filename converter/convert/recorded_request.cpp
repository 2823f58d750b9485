#include "converter/convert/recorded_request.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <string>
#include <string_view>

#include "converter/convert/model_card.h"
#include "converter/convert/provenance.h"
#include "converter/convert/tensor_parts.h"
#include "formats/base/error.h"
#include "formats/base/json.h"
#include "formats/base/printable.h"
#include "formats/families/loader_code.h"
#include "formats/tensors/dtype.h"
#include "formats/version.h"

namespace regroup {

std::string recorded_word(const Json& facts, const char* key, const std::string& usual,
                          const std::string& where) {
  const Json word = facts.value(key, Json(usual));
  if (!word.is_string()) {
    throw_bad_input("{}: its recorded {} is {}, must be text", where, key, printable_json(word));
  }
  return word.get<std::string>();
}

std::uint64_t recorded_seed(const Json& facts, const std::string& where) {
  const Json seed = facts.value("pool_seed", Json(0U));
  if (!seed.is_number_unsigned()) {
    throw_bad_input("{}: its recorded pool_seed is {}, must be a number from 0", where,
                    printable_json(seed));
  }
  return seed.get<std::uint64_t>();
}

std::string recorded_device(const Json& facts, const std::string& where) {
  const std::string device = recorded_word(facts, "pool_device", "cpu", where);
  if (device.empty() || device.find_first_not_of("abcdefghijklmnopqrstuvwxyz") < device.size()) {
    throw_bad_input("{}: its recorded pool_device is \"{}\", must be a kind of device such as cuda",
                    where, printable(device));
  }
  return device;
}

namespace {

// The type that most matrices of a result have.
std::optional<DType> usual_dtype(const Checkpoint& result) {
  std::map<DType, std::size_t> matrices;
  for (const TensorInfo& tensor : result.tensors()) {
    matrices[tensor.dtype] += tensor.shape.size() == 2 && can_encode(tensor.dtype) ? 1 : 0;
  }
  const auto most = std::max_element(matrices.begin(), matrices.end(),
                                     [](auto& a, auto& b) { return a.second < b.second; });
  return most != matrices.end() && most->second > 0 ? std::optional(most->first) : std::nullopt;
}

// If most matrices have another type than in `plan`, which was made without a requested type: that
// type.
std::optional<DType> asked_dtype(const ConversionPlan& plan, const Checkpoint& result) {
  std::map<DType, std::size_t> others;
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
  const auto most = std::max_element(others.begin(), others.end(),
                                     [](auto& a, auto& b) { return a.second < b.second; });
  return most != others.end() && 2 * most->second > matrices ? std::optional(most->first)
                                                             : std::nullopt;
}

}  // namespace

std::optional<DType> requested_dtype(const ConversionRequest& request, const Json& facts,
                                     const Model& source, const Model& result) {
  if (facts.contains("dtype")) {
    const Json& recorded = facts.at("dtype");
    const auto dtype = recorded == name_of(DType::kQ8_0) ? std::optional(DType::kQ8_0)
                       : recorded.is_string() ? dtype_from_name(recorded.get<std::string>())
                                              : std::nullopt;
    if (!dtype || !can_encode(*dtype)) {
      throw_bad_input("{}: its recorded dtype is {}, must be one that --dtype takes, such as F16",
                      printable(result.path.string(), 0), printable_json(recorded));
    }
    return dtype;
  }
  const auto& tensors = source.checkpoint.tensors();
  const bool quantised = std::any_of(tensors.begin(), tensors.end(), [](const TensorInfo& tensor) {
    return is_block_type(tensor.dtype);
  });
  return quantised && request.container != Container::kGguf
             ? usual_dtype(result.checkpoint)
             : asked_dtype(plan_conversion(source, request), result.checkpoint);
}

namespace {

std::string where(const Model& model) { return printable(model.path.string(), 0); }

// Checks that all facts determine a request or follow from it. Any other key is of a step that this
// version does not know.
void check_known(const Json& facts, const Model& result) {
  for (const auto& [key, value] : facts.items()) {
    if (key == kTrainingKey) {
      throw_usage("{}: was trained after its conversion, which cannot be recomputed",
                  where(result));
    }
    if (!is_known_fact(key)) {
      throw_usage("{}: records \"{}\", which cannot be recomputed", where(result), printable(key));
    }
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
void check_version(const Json& facts, const Model& result) {
  const Json version = facts.value("version", Json(nullptr));
  const auto numbers =
      version.is_string() ? numbers_of(version.get_ref<const std::string&>()) : std::nullopt;
  if (!numbers) {
    throw_bad_input("{}: records version {}, which is not a version of regroup", where(result),
                    printable_json(version));
  }
  if (*numbers > numbers_of(kVersion)) {
    throw_usage(
        "{}: was written by regroup {}, this is {}: verify it with that version or a later one",
        where(result), version.get<std::string>(), kVersion);
  }
}

// Represents the refiner of an existing result. A result records only its recipe, so it cannot
// refine.
class RecordedRefiner : public AttentionRefiner {
 public:
  RecordedRefiner(std::string recipe, std::string result)
      : recipe_(std::move(recipe)), result_(std::move(result)) {}

  RefinementReport refine(AttentionRole, std::size_t, std::span<const std::int64_t>,
                          AttentionHeads&) override {
    throw_usage("{}: was refitted after pooling, which cannot be recomputed", result_);
  }
  std::string recipe() const override { return recipe_; }
  double training_token_equivalents(const ModelSpec&) const override { return 0.0; }

 private:
  std::string recipe_, result_;
};

// A result that stock loaders load and misread is wrong, even if it can be recomputed.
void check_loaders_agree(const Model& result) {
  const std::vector<std::string> misread = misread_by_loaders(result.spec, result.config);
  if (!misread.empty() && loaders_take_heads(result.spec)) {
    throw Error(ErrorKind::kDifference, fmt::format("{}: loaders accept its model_type, but {}",
                                                    where(result), misread.front()));
  }
}

// A number or a list of numbers, as in --kv-heads.
std::vector<std::int64_t> heads_in(const Json& recorded, const Model& result) {
  const auto is_count = [](const Json& value) { return value.is_number_unsigned(); };
  if (is_count(recorded)) {
    return {recorded.get<std::int64_t>()};
  }
  if (!recorded.is_array() || !std::all_of(recorded.begin(), recorded.end(), is_count)) {
    throw_bad_input("{}: recorded kv_heads are {}, a number or a list of them is needed",
                    where(result), printable_json(recorded));
  }
  return recorded.get<std::vector<std::int64_t>>();
}

// Reads the kv heads. In an encoder-decoder, one request must have grouped all roles with fewer
// heads.
void read_heads(ConversionRequest& request, const Json& facts, const Model& source,
                const Model& result) {
  const Json heads = facts.value("kv_heads", Json(nullptr));
  if (!source.spec.has_encoder()) {
    request.kv_heads = heads_in(heads, result);
    return;
  }
  request.roles.clear();
  for (const AttentionRole role : source.spec.roles()) {
    const Json before = Json::parse(per_layer_json(source.spec.kv_heads_of(role)));
    const std::string key(name_of(role));
    const Json after = heads.is_object() ? heads.value(key, Json(nullptr)) : Json(nullptr);
    if (after == before) {
      continue;
    }
    const auto asked = heads_in(after, result);
    if (!request.roles.empty() && asked != request.kv_heads) {
      throw_usage(
          "{}: its attentions were grouped in separate conversions, which cannot be recomputed in "
          "one",
          where(result));
    }
    request.kv_heads = asked;
    request.roles.push_back(role);
  }
}

void read_grouping(ConversionRequest& request, const Json& facts, const Model& source,
                   const Model& result) {
  request.grouping = recorded_word(facts, "grouping", "contiguous", where(result));
  if (request.grouping != "contiguous" && request.grouping != "similar") {
    throw_usage("{}: records grouping \"{}\", allowed are contiguous and similar", where(result),
                printable(request.grouping));
  }
  const Json order = facts.value("query_order", Json(nullptr));
  request.order = recorded_order(order, source.spec, where(result));
}

// Requires the statistics that the result was pooled with.
void check_calibration(const Json& facts, const Model& result, const Calibration* calibration) {
  const Json tokens = facts.at("calibration_tokens");
  if (calibration == nullptr) {
    throw_usage("{}: was pooled with statistics of {} tokens: --calibration FILE is needed",
                where(result), printable_json(tokens));
  }
  if (Json::parse(calibration->tokens(), nullptr, false) != tokens) {
    throw_usage("{}: was pooled with statistics of {} tokens, those given are of {}", where(result),
                printable_json(tokens), printable(calibration->tokens()));
  }
  const Json fingerprint = calibration->fingerprint();
  const Json recorded = facts.value("calibration", fingerprint);
  if (recorded != fingerprint) {
    throw_usage(
        "{}: was pooled with other statistics: their fingerprint is {}, that of those given {}",
        where(result), printable_json(recorded), printable_json(fingerprint));
  }
}

DiscardedStatistics discarded_statistics(const Json& facts, const Model& result,
                                         const Calibration* calibration) {
  if (calibration != nullptr) {
    throw_usage("{}: its statistics were made by --text and not kept; verify without --calibration",
                where(result));
  }
  return {printable_json(facts.value("calibration_tokens", Json()), 0),
          printable_json(facts.value("calibration", Json()), 0)};
}

PoolMethod recorded_method(const Json& facts, const Model& result) {
  const std::string name = recorded_word(facts, "pool", "", where(result));
  if (name == "aligned" || name == "select") {
    throw_usage(
        "{}: was pooled by method {} of an earlier version; this version does not compute it, so "
        "the result cannot be verified",
        where(result), name);
  }
  return parse_pool_method(name);
}

void read_pooling(ConversionRequest& request, const Json& facts, const Model& result,
                  std::shared_ptr<const Calibration> calibration) {
  request.pooling.method = recorded_method(facts, result);
  request.pooling.seed = recorded_seed(facts, where(result));
  request.pooling.device = recorded_device(facts, where(result));
  if (facts.contains(kCalibrationKeptKey)) {
    request.pooling.discarded_statistics = discarded_statistics(facts, result, calibration.get());
  } else if (facts.contains("calibration_tokens")) {
    check_calibration(facts, result, calibration.get());
    request.calibration = std::move(calibration);
  }
  if (facts.contains(kDistillKey)) {
    request.pooling.distillation = printable_json(facts.at(kDistillKey), 0);
  }
  if (facts.contains("refit")) {
    request.refiner =
        std::make_shared<RecordedRefiner>(printable_json(facts.at("refit"), 0), where(result));
  }
}

void read_target(ConversionRequest& request, const Json& facts, const Model& source,
                 const Model& result) {
  request.container = container_of(result);
  if (facts.contains("source_positions")) {
    request.positions = PositionChange::kAlibi;
  } else if (facts.contains("source_architecture") && !is_single_file(*request.container) &&
             source.convention == Convention::kHuggingFace) {
    request.target = result.spec.architecture;
  }
  if (facts.contains("stored_kv_heads")) {
    const std::vector<std::int64_t>& stored = result.spec.kv_heads;
    request.target = "expanded";
    request.stored_kv_heads = *std::max_element(stored.begin(), stored.end());
  }
}

ConversionRequest request_in(const Json& facts, const Model& source, const Model& result,
                             std::shared_ptr<const Calibration> calibration) {
  check_known(facts, result);
  check_loaders_agree(result);
  check_version(facts, result);
  const Json before = Json::parse(kv_heads_json(source.spec));
  if (facts.value("source_kv_heads", Json(nullptr)) != before) {
    throw_usage("{}: was made from a model with {} kv heads, {} has {}", where(result),
                printable_json(facts.value("source_kv_heads", Json(nullptr))), where(source),
                printable_json(before));
  }
  ConversionRequest request;
  request.allow_nonfinite = true;
  read_heads(request, facts, source, result);
  read_grouping(request, facts, source, result);
  read_pooling(request, facts, result, std::move(calibration));
  read_target(request, facts, source, result);
  request.loader =
      has_loader_code(result.config) ? LoaderChoice::kTransformers : LoaderChoice::kNone;
  request.dtype = requested_dtype(request, facts, source, result);
  return request;
}

}  // namespace

ConversionRequest recorded_request(const Model& source, const Model& result,
                                   std::shared_ptr<const Calibration> calibration) {
  const Json facts = record_of(result).facts();
  if (!facts.is_object()) {
    throw_usage("{}: records no conversion by regroup", where(result));
  }
  try {
    return request_in(facts, source, result, std::move(calibration));
  } catch (const Json::exception&) {  // a value does not have the type that regroup writes
    throw_bad_input("{}: its record of the conversion is damaged: {}", where(result),
                    printable_json(facts));
  }
}

}  // namespace regroup
