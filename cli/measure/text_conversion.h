// `regroup convert --text`: calibration, refitting and evaluation from a text, in one command.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/measure/data_origin.h"
#include "cli/measure/refit_options.h"
#include "cli/shell/console.h"
#include "converter/convert/conversion_plan.h"
#include "formats/base/staged_directory.h"
#include "formats/model/model.h"

namespace regroup {

struct TextOptions {
  TextInput input;
  bool samples = false;                               ///< --sample: the source writes the text
  std::string effort = "normal";                      ///< quick, normal or thorough
  std::optional<std::int64_t> tokens = std::nullopt;  ///< to convert with; none: by the effort
  std::optional<std::int64_t> distill_steps = std::nullopt;  ///< none: by the effort
  std::optional<double> distill_rate = std::nullopt;         ///< see DistillSettings
  std::optional<double> distill_attention = std::nullopt;    ///< see DistillSettings

  bool given() const { return samples || !input.files.empty(); }

  /// Whether distillation is part of the conversion: unless it was asked for 0 steps.
  bool distills() const { return distill_steps.value_or(1) > 0; }
};

/// Tokens of the text and statistics of the source over them.
struct PreparedText {
  std::unique_ptr<StagedDirectory> files;  ///< holds the files; its destructor removes them
  std::string tokens;                      ///< a token file of the windows that convert uses
  std::string held_out_tokens;             ///< the token file for evaluation
  std::string statistics;                  ///< of calibrate_on_text(), or empty
  std::int64_t context = 0;                ///< tokens in a window
  std::int64_t windows = 0;                ///< in `tokens`
  std::int64_t held_out = 0;               ///< windows in `held_out_tokens`, the last of the text
  std::int64_t refit_steps = 0;            ///< 0: no refitting
  std::int64_t distill_steps = 0;          ///< 0: no distillation
  std::optional<double> distill_rate = std::nullopt;
  std::optional<double> distill_attention = std::nullopt;
  std::string learning, judging;  ///< token files of distillation, parts of `tokens`
  std::string device;             ///< that evaluates
};

/// Whether refitting is part of the conversion: not with the least effort; with the usual one, only
/// where nothing is distilled, since distillation gains more in the same time (docs/results.md).
bool refits_by_default(const TextOptions& text);

/// Tokenizes the text, up to 16 times as much of it as the effort uses, and takes windows from all
/// over that; the last ones are held out. Throws kUsage if there is no tokenizer for the
/// model, kBadInput for a text that is too short.
PreparedText prepare_text(const Model& source, const TextOptions& text, const RefitOptions& refit,
                          const std::string& destination, const Console& console);

/// Calibrates the source on the text, and sets text.statistics.
void calibrate_on_text(const Model& source, const RefitOptions& refit, PreparedText& text,
                       const Console& console);

/// Compares the source, the mean of its heads (`mean`, a plan that is not executed) and the result
/// on the held-out windows.
HeldOut compare_on_text(const Model& source, const PreparedText& text, const ConversionPlan& mean,
                        const std::string& result, const Console& console);

}  // namespace regroup
