// The record that regroup leaves in a model: what the last conversion and the last training did,
// and which steps went before.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "formats/base/json.h"
#include "formats/spec/model_spec.h"
#include "formats/tensors/gguf_metadata.h"

namespace regroup {

// The names of all facts stand in conversion_record.cpp alone. docs/formats.md describes them.

/// The member of config.json that holds the record, and the prefix of the same facts as metadata.
inline constexpr const char* kRecordKey = "regroup";
inline constexpr std::string_view kRecordPrefix = "regroup.";

/// The keys of the source's config and dtypes in a GGUF file's metadata, which are no facts of a
/// conversion.
inline constexpr std::string_view kSourceConfigKey = "regroup.config";
inline constexpr std::string_view kSourceDtypesKey = "regroup.dtypes";

/// Whether a metadata key belongs to a record: "regroup.pool" and the like, but not these two.
bool is_conversion_fact(std::string_view key);

/// A fact in a record. Records are files' contents, so that any fact may be of any type.
template <typename T>
struct Fact {
  std::string_view key = {};
  Json stored = nullptr;  ///< null: not recorded
  std::optional<T> value = std::nullopt;

  bool recorded() const { return !stored.is_null(); }
  template <typename U>
    requires std::is_constructible_v<T, U>
  Fact& operator=(U&& given) {
    stored = value.emplace(std::forward<U>(given));
    return *this;
  }
};

/// Kv heads by role: one number for all layers or one per layer. Models without an encoder have one
/// role, without a name.
using KvHeads = std::vector<std::pair<std::string, std::vector<std::uint64_t>>>;

/// Checksums of stored tensors by name, see docs/formats.md.
using TensorChecksums = std::map<std::string, std::string>;

/// How the result was refitted or distilled on a text.
struct Recipe {
  std::optional<std::uint64_t> tokens = {}, context = {}, batch = {}, steps = {};
  std::optional<std::uint64_t> own_tokens = {};  ///< of these, that the source wrote itself
  std::optional<std::uint64_t> tokens_per_step = {};
  std::optional<Json> learning_rate = {};  ///< a number, or "auto": found for each attention
};

/// What distillation achieved on held-out text.
struct DistillOutcome {
  std::optional<double> learning_rate = {}, relative_learning_rate = {}, attention_weight = {};
  std::optional<std::string> measure = {};  ///< "kl_divergence" or "hidden_state_error"
  std::optional<double> before = {}, after = {};
  std::optional<bool> kept = {};  ///< whether the trained weights are in the result
};

/// The measurements of one attention. Shares, where 1 is all; none if not measured.
struct RecordedLayer {
  std::optional<std::string> attention = {};  ///< its role
  std::optional<std::uint64_t> layer = {};
  std::optional<double> key_energy = {}, value_energy = {};   ///< kept
  std::optional<double> error_before = {}, error_after = {};  ///< of its output, by refitting
  std::optional<double> learning_rate = {};                   ///< of refitting
};

/// One model on text that the conversion did not use.
struct HeldOutModel {
  std::optional<std::string> model = {};  ///< "source", "mean" or "result"
  std::optional<double> loss = {};        ///< nats per token; none for models that cannot predict
  std::optional<double> cosine = {};      ///< of last hidden states with the source's
  /// KL of the source's predictions from the model's, nats per token: on this text, and on text
  /// that the source wrote itself.
  std::optional<double> divergence = {}, own_divergence = {};
};

/// How the source and the result go on after the same words.
struct HeldOutAnswer {
  std::optional<std::string> prompt = {}, source = {}, result = {};
};

struct HeldOut {
  std::optional<std::uint64_t> tokens = {}, context = {};
  std::optional<std::uint64_t> own_tokens = {};  ///< that the source wrote, held out, too
  std::optional<std::vector<HeldOutModel>> models = {};
  std::optional<std::vector<HeldOutAnswer>> answers = {};
};

struct TrainingRecord {
  std::optional<std::string> version = {};
  std::optional<std::uint64_t> steps = {}, tokens = {}, skipped_steps = {};
  Json recipe = Json::object();  ///< of the run, written as further members
  std::optional<std::uint64_t> sequence_length = {};
  std::optional<double> eval_loss_before = {}, eval_loss = {};  ///< nats per token
  std::optional<std::uint64_t> eval_tokens = {};                ///< none: nothing was evaluated
};

void to_json(Json& json, const Recipe& recipe);
void to_json(Json& json, const DistillOutcome& outcome);
void to_json(Json& json, const RecordedLayer& layer);
void to_json(Json& json, const HeldOutModel& model);
void to_json(Json& json, const HeldOutAnswer& answer);
void to_json(Json& json, const HeldOut& held_out);
void to_json(Json& json, const TrainingRecord& training);

struct ConversionRecord {
  Fact<std::string> version;  ///< of regroup
  Fact<KvHeads> source_kv_heads, kv_heads;
  Fact<KvHeads> stored_kv_heads;  ///< if heads are stored repeatedly
  Fact<std::string> pool, grouping;
  Fact<Json> query_order;                ///< of the source's heads; see recorded_request.cpp
  Fact<std::string> source_fingerprint;  ///< fingerprint_of() the source
  Fact<std::uint64_t> pool_seed;         ///< of PoolMethod::kRandom
  Fact<std::string> pool_device;         ///< the kind of device, unless it is the CPU
  Fact<std::string> dtype;               ///< as requested
  Fact<Recipe> refit, distill;
  Fact<std::uint64_t> calibration_tokens;
  Fact<std::string> calibration;  ///< the fingerprint of the statistics
  Fact<bool> calibration_kept;    ///< always false, see DiscardedStatistics
  Fact<std::string> source_architecture, source_positions, positions;  ///< if they changed
  Fact<Json> history;                                                  ///< see steps()
  Fact<Json> alibi;  ///< read by read_recorded_slopes()
  Fact<std::vector<RecordedLayer>> layers;
  Fact<TensorChecksums> checksums;  ///< of tensors that are not computed again for verification
  Fact<DistillOutcome> distilled;
  Fact<HeldOut> held_out;
  Fact<TrainingRecord> training;  ///< after the conversion
  // In metadata only, for weight files without a config.
  Fact<std::string> architecture;
  Fact<std::uint64_t> query_heads, head_dim;
  Fact<Json> alibi_bias_max, alibi_slopes, alibi_encoder_slopes;

  ConversionRecord();

  /// `facts`: the object under kRecordKey. Anything else is no record.
  explicit ConversionRecord(const Json& facts);

  static ConversionRecord in_config(const Json& config);
  static ConversionRecord in_metadata(const std::map<std::string, std::string>& metadata);

  /// Writes what follows from the specs of the source, of the result with its remaining kv heads,
  /// and of the result as stored.
  void set_specs(const ModelSpec& source, const ModelSpec& grouped, const ModelSpec& target);

  /// As it was read; null if nothing is recorded.
  const Json& facts() const { return facts_; }
  bool converted() const { return kv_heads.recorded(); }
  bool trained() const { return training.value.has_value(); }
  /// Whether the result has fewer kv heads than its source.
  bool pooled() const { return kv_heads.stored != source_kv_heads.stored; }
  bool keeps_distillation() const { return distilled.value && distilled.value->kept == true; }

  /// Facts that this version does not write: a later version's or a stranger's.
  std::vector<std::pair<std::string, Json>> unknown() const;

  /// Throws kBadInput, naming `where`, for a fact of another type than this version writes.
  void check_types(const std::string& where) const;

  /// What went before the last step, as far as it is recorded: a list of objects.
  Json earlier_steps() const;

  /// All steps with the last one: the history of what is made from this model next. Facts that are
  /// long (checksums, measurements of layers, orders of heads) are left out. At most 32 steps and
  /// 64 KiB: the oldest are only counted.
  Json steps() const;

 private:
  Json facts_;  // an object or null
};

/// `config_text` with this record instead of an earlier one. Every other byte stays.
std::string config_with_record(const std::string& config_text, const ConversionRecord& record);

/// `config_text` with these facts added to its record, or changed there.
std::string config_with_facts(const std::string& config_text, const ConversionRecord& facts);

/// `metadata` with this record, as "regroup.*" keys, instead of an earlier one.
std::map<std::string, std::string> metadata_with_record(std::map<std::string, std::string> metadata,
                                                        const ConversionRecord& record);
GgufMetadata metadata_with_record(GgufMetadata metadata, const ConversionRecord& record);

/// `metadata` with these facts added to its record, or changed there.
GgufMetadata metadata_with_facts(GgufMetadata metadata, const ConversionRecord& facts);

/// The recorded heads of an attention of `spec`; none if they are not recorded.
std::vector<std::uint64_t> heads_of(const std::optional<KvHeads>& heads, const ModelSpec& spec,
                                    AttentionRole role);

/// The measurements of layers in a report or record. Throws kBadInput, naming `where`, if it is no
/// list of layers with their numbers.
std::vector<RecordedLayer> layers_in(const Json& layers, const std::string& where);

/// The mean of a measurement over the layers that have it; none if none has.
std::optional<double> mean_of(const std::optional<std::vector<RecordedLayer>>& layers,
                              std::optional<double> RecordedLayer::* measurement);

/// The last 32 steps of a list, or fewer if they have more than 64 KiB, after an entry with the
/// number of older ones if there are any.
Json bounded_history(const Json& all);

/// JSON on one line. A stranger's text need not be UTF-8: other bytes become U+FFFD.
std::string line_of_json(const Json& json);

inline constexpr std::string_view kNotRecorded = "not recorded";

/// A word of small letters, digits and "-._", at most 40 of them; otherwise kNotRecorded.
std::string plain_word(const std::optional<std::string>& word);

}  // namespace regroup
