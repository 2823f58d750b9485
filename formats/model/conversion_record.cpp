#include "formats/model/conversion_record.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/spec/config_writers.h"
#include "formats/version.h"

namespace regroup {

namespace {

// Where and how a fact is written.
enum Form : unsigned {
  kCompact = 0,         // as JSON, in config.json and in metadata
  kText = 1,            // in metadata as plain text
  kConfigOnly = 2,      // not in metadata
  kMetadataOnly = 4,    // not in config.json
  kLong = 8,            // not kept by the steps of a history
  kSpaced = 16,         // with a space after each comma
  kSpacedMembers = 32,  // the same, but not inside of members
  kLines = 64,          // an entry in each line
  kIndented = 128,      // a member in each line
};

template <typename T>
struct FactRow {
  const char* key;
  Fact<T> ConversionRecord::* fact;
  unsigned form = kCompact;
};
// Clang 14 does not deduce from an aggregate's members.
template <typename T>
FactRow(const char*, Fact<T> ConversionRecord::*) -> FactRow<T>;
template <typename T>
FactRow(const char*, Fact<T> ConversionRecord::*, unsigned) -> FactRow<T>;

// All facts, in the order in which they are written.
using Record = ConversionRecord;
constexpr std::tuple kFacts{
    FactRow{"version", &Record::version, kText},
    FactRow{"source_kv_heads", &Record::source_kv_heads, kSpaced},
    FactRow{"kv_heads", &Record::kv_heads, kSpaced},
    FactRow{"pool", &Record::pool, kText},
    FactRow{"grouping", &Record::grouping, kText},
    FactRow{"query_order", &Record::query_order, kLong},
    FactRow{"source_fingerprint", &Record::source_fingerprint},
    FactRow{"pool_seed", &Record::pool_seed},
    FactRow{"pool_device", &Record::pool_device},
    FactRow{"dtype", &Record::dtype},
    FactRow{"refit", &Record::refit},
    FactRow{"distill", &Record::distill},
    FactRow{"calibration_tokens", &Record::calibration_tokens},
    FactRow{"calibration", &Record::calibration},
    FactRow{"calibration_kept", &Record::calibration_kept},
    FactRow{"stored_kv_heads", &Record::stored_kv_heads, kSpaced},
    FactRow{"source_architecture", &Record::source_architecture},
    FactRow{"source_positions", &Record::source_positions},
    FactRow{"positions", &Record::positions},
    FactRow{"history", &Record::history, kLong},
    FactRow{"alibi", &Record::alibi, kLong | kConfigOnly | kSpacedMembers},
    FactRow{"layers", &Record::layers, kLong | kConfigOnly | kLines},
    FactRow{"checksums", &Record::checksums, kLong | kLines},
    FactRow{"distilled", &Record::distilled, kConfigOnly},
    FactRow{"held_out", &Record::held_out, kConfigOnly},
    FactRow{"uptrain", &Record::training, kLong | kConfigOnly | kIndented},
    FactRow{"architecture", &Record::architecture, kMetadataOnly | kText},
    FactRow{"query_heads", &Record::query_heads, kMetadataOnly},
    FactRow{"head_dim", &Record::head_dim, kMetadataOnly},
    FactRow{"alibi_bias_max", &Record::alibi_bias_max, kMetadataOnly},
    FactRow{"alibi_slopes", &Record::alibi_slopes, kMetadataOnly},
    FactRow{"alibi_encoder_slopes", &Record::alibi_encoder_slopes, kMetadataOnly}};

// The members of a fact that is an object, in the order in which they are written.
template <typename T>
constexpr auto kMembers = std::tuple<>();

template <>
constexpr auto kMembers<Recipe> = std::tuple{std::pair{"tokens", &Recipe::tokens},
                                             std::pair{"own_tokens", &Recipe::own_tokens},
                                             std::pair{"context", &Recipe::context},
                                             std::pair{"batch", &Recipe::batch},
                                             std::pair{"steps", &Recipe::steps},
                                             std::pair{"tokens_per_step", &Recipe::tokens_per_step},
                                             std::pair{"learning_rate", &Recipe::learning_rate}};
template <>
constexpr auto kMembers<DistillOutcome> =
    std::tuple{std::pair{"learning_rate", &DistillOutcome::learning_rate},
               std::pair{"relative_learning_rate", &DistillOutcome::relative_learning_rate},
               std::pair{"attention_weight", &DistillOutcome::attention_weight},
               std::pair{"measure", &DistillOutcome::measure},
               std::pair{"before", &DistillOutcome::before},
               std::pair{"after", &DistillOutcome::after},
               std::pair{"kept", &DistillOutcome::kept}};
template <>
constexpr auto kMembers<RecordedLayer> =
    std::tuple{std::pair{"attention", &RecordedLayer::attention},
               std::pair{"layer", &RecordedLayer::layer},
               std::pair{"key_energy_kept", &RecordedLayer::key_energy},
               std::pair{"value_energy_kept", &RecordedLayer::value_energy},
               std::pair{"output_error_before_refit", &RecordedLayer::error_before},
               std::pair{"output_error_after_refit", &RecordedLayer::error_after},
               std::pair{"refit_learning_rate", &RecordedLayer::learning_rate}};
template <>
constexpr auto kMembers<HeldOutModel> =
    std::tuple{std::pair{"model", &HeldOutModel::model}, std::pair{"loss", &HeldOutModel::loss},
               std::pair{"divergence", &HeldOutModel::divergence},
               std::pair{"own_divergence", &HeldOutModel::own_divergence},
               std::pair{"cosine", &HeldOutModel::cosine}};
template <>
constexpr auto kMembers<HeldOutAnswer> = std::tuple{std::pair{"prompt", &HeldOutAnswer::prompt},
                                                    std::pair{"source", &HeldOutAnswer::source},
                                                    std::pair{"result", &HeldOutAnswer::result}};
template <>
constexpr auto kMembers<HeldOut> =
    std::tuple{std::pair{"tokens", &HeldOut::tokens}, std::pair{"context", &HeldOut::context},
               std::pair{"own_tokens", &HeldOut::own_tokens}, std::pair{"models", &HeldOut::models},
               std::pair{"answers", &HeldOut::answers}};
template <>
constexpr auto kMembers<TrainingRecord> =
    std::tuple{std::pair{"version", &TrainingRecord::version},
               std::pair{"steps", &TrainingRecord::steps},
               std::pair{"tokens", &TrainingRecord::tokens},
               std::pair{"skipped_steps", &TrainingRecord::skipped_steps},
               std::pair{"", &TrainingRecord::recipe},  // its members stand here
               std::pair{"sequence_length", &TrainingRecord::sequence_length},
               std::pair{"eval_loss_before", &TrainingRecord::eval_loss_before},
               std::pair{"eval_loss", &TrainingRecord::eval_loss},
               std::pair{"eval_tokens", &TrainingRecord::eval_tokens}};

template <typename Use>
void for_each_fact(Use use) {
  std::apply([&](const auto&... row) { (use(row), ...); }, kFacts);
}

template <typename Object, typename Use>
void for_each_member(Object& object, Use use) {
  std::apply([&](const auto&... row) { (use(row.first, object.*row.second), ...); },
             kMembers<std::remove_const_t<Object>>);
}

bool is_checksum(const Json& value) {
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  return text.size() == 16 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// The heads of one role; none if they are no number and no list of numbers.
std::vector<std::uint64_t> heads_in(const Json& json) {
  const Json list = json.is_array() ? json : Json::array({json});
  const bool counts =
      std::ranges::all_of(list, [](const Json& count) { return count.is_number_unsigned(); });
  return counts ? list.get<std::vector<std::uint64_t>>() : std::vector<std::uint64_t>();
}

template <typename T>
void read(const Json& json, std::optional<T>& value);

// Entries of another type are read as empty.
template <typename T>
std::vector<T> list_in(const Json& json) {
  std::vector<T> list;
  for (const Json& entry : json) {
    std::optional<T> value;
    read(entry, value);
    list.push_back(std::move(value).value_or(T()));
  }
  return list;
}

template <typename T>
void read(const Json& json, std::optional<std::vector<T>>& value) {
  if (json.is_array()) {
    value = list_in<T>(json);
  }
}

void read(const Json& json, std::optional<KvHeads>& value) {
  KvHeads heads;
  const Json roles = json.is_object() ? json : Json{{"", json}};
  for (const auto& [role, counts] : roles.items()) {
    heads.emplace_back(role.empty() ? "" : plain_word(role), heads_in(counts));
    if (heads.back().second.empty()) {
      return;
    }
  }
  value = heads.empty() ? std::nullopt : std::optional(std::move(heads));
}

void read(const Json&, Json&) {}  // the recipe of a training is only written

void read(const Json& json, std::optional<TensorChecksums>& value) {
  if (json.is_object() && std::ranges::all_of(json, is_checksum)) {
    value = json.get<TensorChecksums>();
  }
}

// Leaves `value` empty if `json` is null or of another type.
template <typename T>
void read(const Json& json, std::optional<T>& value) {
  if constexpr (!std::is_same_v<decltype(kMembers<T>), const std::tuple<>>) {
    if (json.is_object()) {
      for_each_member(value.emplace(),
                      [&](const char* key, auto& member) { read(member_of(json, key), member); });
    }
  } else if (!json.is_null() && (std::is_same_v<T, Json> || json.type() == Json(T()).type() ||
                                 (std::is_same_v<T, double> && json.is_number()))) {
    value = json.get<T>();
  }
}

template <typename T>
void set(Fact<T>& fact, const Json& json) {
  fact.stored = json;
  fact.value.reset();
  read(json, fact.value);
}

// What check_types() asks for.
template <typename T>
constexpr std::string_view kNeeded =
    std::is_same_v<T, std::string>       ? "text"
    : std::is_same_v<T, std::uint64_t>   ? "a number from 0"
    : std::is_same_v<T, bool>            ? "true or false"
    : std::is_same_v<T, KvHeads>         ? "a number or a list of them"
    : std::is_same_v<T, TensorChecksums> ? "an object of 16 hexadecimal digits each"
                                         : "as this version writes it";

// `nulls`: members without a value are null, otherwise they are left out.
template <typename Object>
Json object_of(const Object& object, bool nulls = false) {
  Json json = Json::object();
  for_each_member(object, [&](const char* key, const auto& member) {
    if constexpr (std::is_same_v<decltype(member), const Json&>) {
      json.update(member);
    } else if (member || nulls) {
      json[key] = or_null(member);
    }
  });
  return json;
}

}  // namespace

void to_json(Json& json, const Recipe& recipe) { json = object_of(recipe); }
void to_json(Json& json, const DistillOutcome& outcome) { json = object_of(outcome); }
void to_json(Json& json, const RecordedLayer& layer) { json = object_of(layer); }
void to_json(Json& json, const HeldOutModel& model) {
  json = object_of(model);
  if (!model.loss) {
    json["loss"] = nullptr;
  }
}
void to_json(Json& json, const HeldOutAnswer& answer) { json = object_of(answer); }
void to_json(Json& json, const HeldOut& held_out) { json = object_of(held_out); }
void to_json(Json& json, const TrainingRecord& training) {
  json = object_of(training, training.eval_tokens.has_value());  // a loss may not be finite
}

namespace {

constexpr std::size_t kMostFactBytes = 1024;

// The facts of one step that its successors keep.
Json kept_facts(const Json& facts) {
  Json kept = Json::object();
  for (const auto& [key, value] : facts.items()) {
    Json part = value;
    if (part.is_object()) {
      part.erase("answers");  // they are long, and later warnings need only the losses
    }
    const std::string text = line_of_json(part);
    if (text.size() <= kMostFactBytes) {
      kept[key] = Json::parse(text);
    }
  }
  for_each_fact([&](const auto& row) {
    if ((row.form & kLong) != 0) {
      kept.erase(row.key);
    }
  });
  return kept;
}

Json objects_in(const Json& list) {
  Json objects = Json::array();
  if (list.is_array()) {
    std::ranges::copy_if(list, std::back_inserter(objects), &Json::is_object);
  }
  return objects;
}

Json slopes_json(const ModelSpec& spec, AttentionRole role = AttentionRole::kSelf) {
  const auto slopes = alibi_slopes_per_layer(spec, role);
  return all_equal(slopes) ? Json(slopes.front()) : Json(slopes);
}

}  // namespace

ConversionRecord::ConversionRecord() {
  for_each_fact([&](const auto& row) { (this->*row.fact).key = row.key; });
}

ConversionRecord::ConversionRecord(const Json& facts) : ConversionRecord() {
  if (facts.is_object()) {
    facts_ = facts;
    for_each_fact([&](const auto& row) { set(this->*row.fact, member_of(facts, row.key)); });
  }
}

ConversionRecord ConversionRecord::in_config(const Json& config) {
  return ConversionRecord(member_of(config, kRecordKey));
}

bool is_conversion_fact(std::string_view key) {
  return key.starts_with(kRecordPrefix) && key != kSourceConfigKey && key != kSourceDtypesKey;
}

ConversionRecord ConversionRecord::in_metadata(const std::map<std::string, std::string>& metadata) {
  Json facts;
  for (const auto& [key, value] : metadata) {
    if (is_conversion_fact(key)) {
      const Json parsed = Json::parse(value, nullptr, false);
      facts[key.substr(kRecordPrefix.size())] = parsed.is_discarded() ? Json(value) : parsed;
    }
  }
  return ConversionRecord(facts);
}

void ConversionRecord::set_specs(const ModelSpec& source, const ModelSpec& grouped,
                                 const ModelSpec& target) {
  const auto heads_of = [](const ModelSpec& spec) { return Json::parse(kv_heads_json(spec)); };
  version = kVersion;
  set(source_kv_heads, heads_of(source));
  set(kv_heads, heads_of(grouped));
  if (heads_of(target) != heads_of(grouped)) {
    set(stored_kv_heads, heads_of(target));
  }
  if (source.architecture != target.architecture) {
    source_architecture = source.architecture;
  }
  if (source.positions != grouped.positions) {
    source_positions = name_of(source.positions);
    positions = name_of(grouped.positions);
  }
  architecture = target.architecture;
  query_heads = target.query_heads;
  head_dim = target.head_dim;
  if (target.positions == PositionKind::kAlibi) {
    alibi_bias_max = Json(target.alibi.bias_max);
    alibi_slopes = slopes_json(target);
    alibi = Json{{"bias_max", alibi_bias_max.stored}, {"slopes", alibi_slopes.stored}};
    if (target.has_encoder()) {
      alibi_encoder_slopes = slopes_json(target, AttentionRole::kEncoder);
      (*alibi.value)["encoder_slopes"] = alibi_encoder_slopes.stored;
      alibi = Json(*alibi.value);
    }
  }
}

std::vector<std::pair<std::string, Json>> ConversionRecord::unknown() const {
  std::vector<std::pair<std::string, Json>> found;
  for (const auto& [key, value] : facts_.items()) {
    bool known = false;
    for_each_fact([&, &name = key](const auto& row) { known = known || name == row.key; });
    if (!known) {
      found.emplace_back(key, value);
    }
  }
  return found;
}

void ConversionRecord::check_types(const std::string& where) const {
  const auto check = [&]<typename T>(const Fact<T>& fact) {
    if (fact.recorded() && !fact.value) {
      throw_bad_input("{}: its recorded {} is {}, must be {}", where, fact.key,
                      printable_json(fact.stored), kNeeded<T>);
    }
  };
  for_each_fact([&](const auto& row) { check(this->*row.fact); });
}

Json ConversionRecord::earlier_steps() const {
  Json steps = objects_in(history.stored);
  if (converted() && trained()) {  // the last conversion is in this record, too
    const auto conversion = std::find_if(steps.rbegin(), steps.rend(), [&](const Json& step) {
      return !step.contains(training.key);
    });
    if (conversion != steps.rend() &&
        ConversionRecord(*conversion).kv_heads.stored == kv_heads.stored) {
      steps.erase(std::next(conversion).base());
    }
  }
  return steps;
}

Json ConversionRecord::steps() const {
  Json steps = objects_in(history.stored);
  if (converted() && !(trained() && history.recorded())) {  // otherwise it is in the history
    steps.push_back(kept_facts(facts_));
  }
  if (trained()) {
    steps.push_back({{training.key, kept_facts(training.stored)}});
  }
  return bounded_history(steps);
}

namespace {

// The entries of a list or object with `gap` before each and `end` after the last; those inside of
// them the same to that depth.
std::string joined(const Json& json, const char* gap, const char* end, int depth) {
  if (depth == 0 || !json.is_structured()) {
    return json.dump();
  }
  std::string text;
  for (const auto& [key, value] : json.items()) {
    text += fmt::format("{}{}{}{}", text.empty() ? "" : ",", text.empty() && *gap == ' ' ? "" : gap,
                        json.is_object() ? Json(key).dump() + ": " : "",
                        joined(value, gap, end, depth - 1));
  }
  return json.is_object() ? fmt::format("{{{}{}}}", text, end) : fmt::format("[{}{}]", text, end);
}

// Measurements to six digits, because further ones differ between machines.
Json rounded(Json json) {
  for (Json& value : json) {
    if (value.is_structured()) {
      value = rounded(value);
    } else if (value.is_number_float()) {
      value = Json::parse(fmt::format("{:.6g}", value.get<double>()), nullptr, false);
    }
  }
  return json;
}

std::string config_text_of(const Json& json, unsigned form) {
  if ((form & kLines) != 0) {
    return joined(rounded(json), "\n      ", "\n    ", 1);
  }
  if ((form & kIndented) == 0) {
    return joined(json, " ", "", (form & kSpaced) != 0 ? 2 : (form & kSpacedMembers) != 0 ? 1 : 0);
  }
  std::string text = json.dump(2);
  for (std::size_t at = text.find('\n'); at != text.npos; at = text.find('\n', at + 1)) {
    text.insert(at + 1, "    ");
  }
  return text;
}

// "regroup.*" keys and their texts.
std::map<std::string, std::string> metadata_of(const ConversionRecord& record) {
  std::map<std::string, std::string> metadata;
  for_each_fact([&](const auto& row) {
    const Json& stored = (record.*row.fact).stored;
    if ((row.form & kConfigOnly) == 0 && !stored.is_null()) {
      metadata[std::string(kRecordPrefix) + row.key] =
          (row.form & kText) != 0 ? stored.get<std::string>()
                                  : config_text_of(stored, row.form & kSpaced);
    }
  });
  return metadata;
}

}  // namespace

std::string config_with_record(const std::string& config_text, const ConversionRecord& record) {
  std::string block;
  for_each_fact([&](const auto& row) {
    const Json& stored = (record.*row.fact).stored;
    const bool always = row.key == record.query_order.key;  // null: no head moved
    if ((row.form & kMetadataOnly) == 0 && (always || !stored.is_null())) {
      block += fmt::format("{}\n    \"{}\": {}", block.empty() ? "" : ",", row.key,
                           config_text_of(stored, row.form));
    }
  });
  return with_member(config_text, {kRecordKey}, "{" + block + "\n  }");
}

std::string config_with_facts(const std::string& config_text, const ConversionRecord& facts) {
  std::string text = config_text;
  for_each_fact([&](const auto& row) {
    const auto& fact = facts.*row.fact;
    if (fact.recorded()) {
      text = with_member(text, {kRecordKey, row.key}, config_text_of(fact.stored, row.form));
    }
  });
  return text;
}

std::map<std::string, std::string> metadata_with_record(std::map<std::string, std::string> metadata,
                                                        const ConversionRecord& record) {
  std::erase_if(metadata, [](const auto& entry) { return is_conversion_fact(entry.first); });
  metadata.merge(metadata_of(record));
  return metadata;
}

GgufMetadata metadata_with_record(GgufMetadata metadata, const ConversionRecord& record) {
  metadata.remove_if(is_conversion_fact);
  return metadata_with_facts(std::move(metadata), record);
}

GgufMetadata metadata_with_facts(GgufMetadata metadata, const ConversionRecord& facts) {
  for (const auto& [key, value] : metadata_of(facts)) {
    metadata.set_string(key, value);
  }
  return metadata;
}

std::vector<std::uint64_t> heads_of(const std::optional<KvHeads>& heads, const ModelSpec& spec,
                                    AttentionRole role) {
  for (const auto& [name, counts] : heads.value_or(KvHeads())) {
    if (name == (spec.has_encoder() ? name_of(role) : "")) {
      return counts;
    }
  }
  return {};
}

std::vector<RecordedLayer> layers_in(const Json& layers, const std::string& where) {
  if (!layers.is_array()) {
    throw_bad_input("{}: layers is a JSON {}, must be a list", where, layers.type_name());
  }
  std::vector<RecordedLayer> found = list_in<RecordedLayer>(layers);
  if (std::ranges::any_of(found, [](const RecordedLayer& layer) { return !layer.layer; })) {
    throw_bad_input("{}: an entry of layers has no number \"layer\"", where);
  }
  return found;
}

std::optional<double> mean_of(const std::optional<std::vector<RecordedLayer>>& layers,
                              std::optional<double> RecordedLayer::* measurement) {
  double sum = 0.0, count = 0.0;
  for (const RecordedLayer& layer : layers.value_or(std::vector<RecordedLayer>())) {
    sum += (layer.*measurement).value_or(0.0);
    count += layer.*measurement ? 1.0 : 0.0;
  }
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

std::string plain_word(const std::optional<std::string>& word) {
  const std::string text = word.value_or("");
  const bool plain = std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
  });
  return plain && !text.empty() && text.size() <= 40 ? text : std::string(kNotRecorded);
}

}  // namespace regroup
