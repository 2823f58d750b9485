// The record that regroup leaves in a model: what the last conversion and training did, the steps
// before, and these facts in words.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "formats/base/json.h"

namespace regroup {

// The record that regroup leaves in a model: what the last conversion and the last training did,
// and which steps went before. Read here alone; converter/convert/provenance.cpp and uptrain/run/
// write it.

/// The member of config.json that holds the record, and the prefix of the same facts as metadata.
inline constexpr const char* kRecordKey = "regroup";
inline constexpr std::string_view kRecordPrefix = "regroup.";

/// Members of the record. fingerprint_of() the source:
inline constexpr const char* kSourceFingerprintKey = "source_fingerprint";
/// Always false: statistics were not kept, see DiscardedStatistics.
inline constexpr const char* kCalibrationKeptKey = "calibration_kept";
/// How the pooled attentions were trained together, see Pooling::distillation.
inline constexpr const char* kDistillKey = "distill";
/// What that achieved: "learning_rate", "measure" (kl_divergence or hidden_state_error), "before",
/// "after" and "kept", whether the trained weights are in the result.
inline constexpr const char* kDistilledKey = "distilled";
/// The losses on held-out text: "tokens", "context" and "models", a list of {"model", "loss" (null
/// if it cannot predict), "cosine"}.
inline constexpr const char* kHeldOutKey = "held_out";
/// Measurements of each layer, see json_of(LayerReport).
inline constexpr const char* kLayersKey = "layers";
/// Checksums of tensors that are not recomputed for verification.
inline constexpr const char* kChecksumsKey = "checksums";
/// The training after the conversion.
inline constexpr const char* kTrainingKey = "uptrain";
/// All steps before the last one, oldest first: the facts of a conversion, or {"uptrain": facts}.
/// The first entry may be {"left_out": number of older steps}.
inline constexpr const char* kHistoryKey = "history";
inline constexpr const char* kLeftOutKey = "left_out";

/// The keys of the source's config and dtypes in a GGUF file's metadata, which are no facts of a
/// conversion.
inline constexpr std::string_view kSourceConfigKey = "regroup.config";
inline constexpr std::string_view kSourceDtypesKey = "regroup.dtypes";

/// Whether a metadata key belongs to a record: "regroup.pool" and the like, but not keys by which a
/// GGUF file records its source directory.
bool is_conversion_fact(std::string_view key);

/// Whether this version writes a fact of this name. Any other is a later version's or a stranger's.
bool is_known_fact(std::string_view name);

/// One fact from metadata: JSON, or else plain text.
Json recorded_fact(const std::string& text);

/// Facts may have any type: they come from a file.
class ConversionRecord {
 public:
  ConversionRecord() = default;
  /// `facts`: the object under kRecordKey. Anything else is no record.
  explicit ConversionRecord(Json facts);

  static ConversionRecord in_config(const Json& config);
  static ConversionRecord in_metadata(const std::map<std::string, std::string>& metadata);

  /// As they are stored; null if nothing is recorded.
  const Json& facts() const { return facts_; }
  bool has(std::string_view key) const { return facts_.is_object() && facts_.contains(key); }
  /// Null if there is no such fact.
  const Json& at(std::string_view key) const;
  bool converted() const { return has("kv_heads"); }
  bool trained() const { return at(kTrainingKey).is_object(); }

  /// What went before the last step, as far as it is recorded: the list under kHistoryKey.
  Json history() const;

  /// All steps with the last one: the history of what is made from this model next. Facts that are
  /// long (checksums, measurements of layers, orders of heads) are left out. At most 32 steps and
  /// 64 KiB: the oldest are only counted.
  Json steps() const;

 private:
  Json facts_;  // an object or null
};

/// The member `key` of `object`; null if it is no object or has no such member.
const Json& member_of(const Json& object, std::string_view key);

// Facts of a record in words. A record is a stranger's text: only plain words, numbers and heads
// are shown, so that they are safe in Markdown, HTML and a terminal.

inline constexpr std::string_view kNotRecorded = "not recorded";

/// A word of small letters, digits and "-._", at most 40 of them; otherwise kNotRecorded.
std::string plain_word(const Json& value);

/// A number from 0 on.
std::string plain_count(const Json& value);

/// A number with four decimals.
std::string plain_loss(const Json& value);

/// Kv heads: "8", "8, 4" (by layer) or, of an encoder-decoder, "decoder 8, encoder 4".
std::string plain_heads(const Json& value);

/// One entry of ConversionRecord::steps(): "converted from 8 kv heads to 4 (mean, contiguous)",
/// "trained in 40 steps on 20480 tokens, held-out loss 3.1000 to 2.9000".
std::string text_of_step(const Json& step);

/// The losses under kHeldOutKey: "source 3.0512, mean 10.5801, result 3.6540 nats per token on 8192
/// tokens", or for models that cannot predict the cosines to the source. Empty if none is recorded.
std::string text_of_held_out(const Json& held_out);

/// What distillation achieved, a fact under kDistilledKey: "divergence from the source 0.9000 ->
/// 0.3000 nats per token on held-out text". Empty if none is recorded.
std::string text_of_distilled(const Json& distilled);

}  // namespace regroup
