// `regroup convert --text`: calibration, refitting, distillation and evaluation from a text, in
// one command.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cli/measure/conversion_options.h"
#include "cli/shell/console.h"
#include "converter/convert/conversion_plan.h"
#include "formats/base/staged_directory.h"
#include "formats/model/conversion_record.h"
#include "formats/model/model.h"
#include "formats/vocabulary/vocabulary.h"

namespace regroup {

/// Tokens of the text.
struct PreparedText {
  std::unique_ptr<StagedDirectory> files;  ///< holds the files; its destructor removes them
  std::string tokens;                      ///< a token file of the windows that convert uses
  std::string own;                         ///< of the source's own text, whole; may be empty
  std::string own_held_out_tokens;         ///< of the same; may be empty
  std::optional<ChatForm> chat;            ///< of that text
  std::string held_out_tokens;             ///< the token file for evaluation
  std::int64_t context = 0;                ///< tokens in a window, with those of `frame`
  InputFrame frame;                        ///< of each window
  std::int64_t windows = 0;                ///< in `tokens`
  std::int64_t own_windows = 0;            ///< of these, written by the source
  std::int64_t own_held_out = 0;           ///< windows in `own_held_out_tokens`
  std::int64_t held_out = 0;               ///< windows in `held_out_tokens`, the last of the text
  std::int64_t distill_steps = 0;          ///< 0: no distillation
  std::string learning, judging;           ///< token files of distillation, parts of `tokens`
};

/// Prepares the text of --text or --sample, and sets the method and the options that it implies
/// unless they are given. Tokenizes up to 16 times as much of the text as the effort uses, and
/// takes windows from all over that; the last ones are held out. Unless in a dry run, lets the
/// source write its share of the text and measures the statistics that nothing else gives. Throws
/// kUsage for options without effect or if there is no tokenizer for the model, kBadInput for a
/// text that is too short or that the model does not predict, and what sample() throws. A resumed
/// conversion takes the source's own text from its run.
PreparedText prepare_text(const Model& source, ConvertOptions& options, Console& console);

/// Compares the source, the mean of its heads (`mean`, a plan that is not executed) and the result
/// on the held-out windows, and on those of the source's own text. Lets source and result answer,
/// see HeldOut::answers.
HeldOut compare_on_text(const Model& source, const ConvertOptions& options,
                        const PreparedText& text, const ConversionPlan& mean,
                        const std::string& result, const Console& console);

/// "about 12 min (sample 3 min, distill 9 min); 2.8 GiB of memory": the time that each stage of a
/// conversion with the text is expected to take, by the machine's speed of matrix products, which
/// takes a second to measure, and the memory of distillation. `text`: before the source has written
/// its share of it.
std::string expected_cost(const Model& source, const ConvertOptions& options,
                          const PreparedText& text);

/// Weights that each token is multiplied with. Without an output head, the embedding is looked up.
std::int64_t weights_in_products(const Model& source);

/// How many of the tokens that a conversion uses its statistics are measured on. They hardly gain
/// from more (docs/defaults.md), which take their time; with distillation, a quarter of the text
/// does.
std::int64_t calibration_tokens(const Model& source, const ConvertOptions& options,
                                std::int64_t tokens);

/// Steps of refitting each attention, as asked for. By default 0 with the least effort; with the
/// usual one not 0 only where nothing is distilled, since distillation gains more in the same time
/// (docs/results.md).
std::int64_t refit_steps_of(const ConvertOptions& options);

/// The reason why the result of `plan` cannot be distilled on this machine; empty if it can.
std::string why_not_distilled(const Model& source, const ConversionPlan& plan,
                              const ConvertOptions& options);

/// Bytes that distillation takes, on the device and on the host.
double bytes_to_distill(const Model& source, const ConvertOptions& options);

/// Removes the run of a distillation of `source` whose result is published, if it has one.
void forget_distillation(const Model& source, const std::string& destination);

/// The recipe of distillation, for the record.
Recipe distillation_recipe(const PreparedText& text, const ConvertOptions& options);

/// Distils the result of `plan` in the directory `result`, records there what that achieved, with
/// new checksums, and returns this fact. A stopped distillation leaves its run beside
/// options.destination, see DistillStates. Throws what distill() throws.
DistillOutcome distill_on_text(const Model& source, const ConversionPlan& plan,
                               const PreparedText& text, const ConvertOptions& options,
                               const std::filesystem::path& result, const Console& console);

}  // namespace regroup
