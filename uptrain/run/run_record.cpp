#include "uptrain/run/run_record.h"

#include <filesystem>

#include "formats/base/error.h"
#include "formats/model/model.h"
#include "formats/version.h"
#include "uptrain/data/data_loader.h"

namespace regroup {

namespace {

// Null if the file is not named, or cannot be read: run_uptraining() says so.
Json digest_if_readable(const std::filesystem::path& path) {
  try {
    return path.empty() ? Json() : Json(digest_of(TokenFile::open(path)));
  } catch (const Error& fault) {
    if (fault.kind() == ErrorKind::kInterrupted) {
      throw;
    }
    return {};
  }
}

}  // namespace

Json asked_of_rank(const UptrainPlan& plan, const Model& source, bool resume) {
  const UptrainSettings& settings = plan.settings;
  Json asked = plan.recipe;
  asked.update({{"version", kVersion},
                {"model", fingerprint_of(source)},
                {"resume", resume},
                {"device", settings.device.is_cpu() ? "cpu" : "cuda"},
                {"memory", name_of(plan.memory_choice.mode)},
                {"shard", settings.sharding.weights ? "full" : "optimizer"},
                {"replicate", settings.sharding.copies},
                {"sequence_parallel", settings.sequence_ranks},
                {"activation_checkpointing", settings.recomputing},
                {"save_every", settings.save_every},
                {"eval_every", settings.eval_every},
                {"eval_data_digest", digest_if_readable(settings.eval_data)},
                {"eval_max_tokens", settings.eval_max_tokens.value_or(0)}});
  return asked;
}

std::string config_of_result(const UptrainPlan& plan, const Model& source,
                             const TrainingProgress& progress,
                             const std::optional<Evaluation>& after) {
  Json block = {{"version", kVersion},
                {"steps", plan.steps},
                {"tokens", plan.tokens},
                {"skipped_steps", progress.skipped}};
  for (const auto& [key, value] : plan.recipe.items()) {
    if (key != "steps" && key != "data_bytes" && !key.ends_with("_digest") && !value.is_null()) {
      block[key] = value;
    }
  }
  block["sequence_length"] = plan.sequence_length;  // also if it was not set explicitly
  if (after) {
    block["eval_loss_before"] = number_or_null(progress.loss_before);
    block["eval_loss"] = number_or_null(after->loss);
    block["eval_tokens"] = after->tokens;
  }
  std::string text = block.dump(2);
  for (std::size_t at = text.find('\n'); at != text.npos; at = text.find('\n', at + 1)) {
    text.insert(at + 1, "    ");  // the indentation in the file
  }
  const Json history = record_of(source).steps();
  const std::string config =
      history.empty() ? source.config_text
                      : with_member(source.config_text, {kRecordKey, kHistoryKey}, history.dump());
  return with_member(config, {kRecordKey, kTrainingKey}, text);
}

}  // namespace regroup
