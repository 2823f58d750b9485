// Options of `regroup convert` and `regroup expand`, the refiner they describe, and the check that
// the model predicts a text: what is computed from another one would be of no use.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cli/shell/command.h"
#include "cli/shell/console.h"
#include "cli/shell/text_input.h"
#include "converter/convert/conversion_plan.h"
#include "formats/model/model.h"

namespace regroup {

/// What is known only from the model, the text or the budget is added to it as convert goes on.
struct ConvertOptions {
  /// --refit, after pooling.
  struct Refit {
    std::string data;          ///< a token file; empty: no refitting
    std::int64_t context = 0;  ///< tokens in a window; 0: see choose_windows()
    std::int64_t batch = 0;    ///< windows in a step; 0: see choose_windows()
    std::int64_t steps = 200;  ///< per attention
    std::int64_t max_tokens = 131'072;
    std::optional<double> learning_rate;  ///< none: found for each attention
  };

  /// --kv-budget
  struct Budget {
    std::string budget;  ///< "64KiB" per token, or "25%" of the source's; empty: none
    std::string data;    ///< a token file on which layers are measured
    std::int64_t max_tokens = 2048;

    bool given() const { return !budget.empty(); }
  };

  /// --text and --sample
  struct Text {
    TextInput input;
    bool samples = false;                       ///< --sample: the source writes the text
    std::optional<double> own_share;            ///< of the text; none: half, if it writes text
    std::string effort = "normal";              ///< quick, normal, thorough or a number of tokens
    std::optional<std::int64_t> tokens;         ///< to convert with; none: by the effort
    std::optional<std::int64_t> distill_steps;  ///< none: by the effort
    std::optional<double> distill_rate;         ///< see DistillSettings
    std::optional<double> distill_attention;    ///< see DistillSettings
    bool resume = false;                        ///< a stopped distillation goes on

    bool given() const { return samples || !input.files.empty(); }

    /// Whether distillation is part of the conversion: unless it was asked for 0 steps.
    bool distills() const { return distill_steps.value_or(1) > 0; }
  };

  std::optional<Command> command;
  ConversionRequest request;
  std::string source;
  std::string destination;
  std::string layout;
  std::string attention = "self,cross";
  std::string grouping = "contiguous";  ///< as asked for; that of the request is how it was done
  std::string calibration;
  Refit refit;  ///< context and batch also of all else that runs the model
  Budget budget;
  Text text;
  std::string device = "cpu";
  int threads = 0;  ///< 0: one per core
  bool measure = false;
  bool any_text = false;
  bool skip_logits_check = false;
  bool dry_run = false;
  bool json = false;

  bool given(const char* option) const { return command->given(option); }

  /// Whether heads are solved for, compared or measured, which statistics of a text serve.
  bool takes_statistics() const {
    return needs_solver(request.pooling.method) || measure || grouping == "similar";
  }
  /// Whether --text measures these statistics, since none are given.
  bool calibrates() const { return calibration.empty() && takes_statistics(); }
};

/// `options` must outlive `command`.
void add_convert_options(Command command, ConvertOptions& options);
void add_expand_options(Command command, ConvertOptions& options);

/// Completes the request that the options describe. Throws kUsage if it is empty or invalid.
void set_convert_request(ConvertOptions& options);
void set_expand_request(ConvertOptions& options);

/// Sets the windows that were not given: two of 512 tokens, of encoders eight of 128, and none
/// longer than the model's positions.
void choose_windows(const Model& source, ConvertOptions::Refit& options);

/// Throws kUsage for an option that has no effect on this model, and for a destination with the
/// extension of another kind of file.
void check_effects(const ConvertOptions& options, const Model& source, const ConversionPlan& plan);

/// Throws kUsage naming `option` if regroup cannot compute the model.
void check_computable(const char* option, const Model& source);

/// The device that solves for heads, as Pooling names it. Throws kUsage for an unknown name,
/// kEnvironment if this machine has no such device.
std::string solving_device(const ConvertOptions& options);

/// The refiner for these options. Keeps references to `source` and `stop`.
std::shared_ptr<AttentionRefiner> make_refiner(const Model& source, const ConvertOptions& options,
                                               const std::atomic<bool>& stop);

/// Throws kBadInput if the source predicts the tokens in `data`, given with `option`, no better
/// than chance (TextChance), naming both losses and kAnyTextOption. Models that do not predict the
/// next token are not checked.
void check_is_predicted(const Model& source, const std::filesystem::path& data, const char* option,
                        const ConvertOptions& options, const Console& console);

/// Turns the check off.
inline constexpr const char* kAnyTextOption = "--allow-any-text";
inline constexpr const char* kAnyTextHelp =
    "use the text even if the model predicts it no better than chance";

}  // namespace regroup
