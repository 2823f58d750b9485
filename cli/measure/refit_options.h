// Options of `regroup convert --refit`, the refiner they describe, and the check that the model
// predicts a text: what is computed from another one would be of no use.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cli/shell/console.h"
#include "converter/convert/attention_pooler.h"
#include "formats/model/model.h"

namespace regroup {

struct RefitOptions {
  std::string data;          ///< a token file; empty: no refitting
  std::int64_t context = 0;  ///< tokens in a window; 0: 512, or the model's positions if fewer
  std::int64_t batch = 2;    ///< windows in a step
  std::int64_t steps = 200;  ///< per attention
  std::int64_t max_tokens = 131'072;
  std::optional<double> learning_rate;  ///< none: found for each attention
  std::string device = "cpu";
  int threads = 0;  ///< 0: one per core
};

/// Tokens in a window: options.context, or its default for that model.
std::int64_t context_of(const Model& source, const RefitOptions& options);

/// Throws kUsage naming `option` if regroup cannot compute the model.
void check_computable(const char* option, const Model& source);

/// The device that solves for heads, as Pooling names it. Throws kUsage for an unknown name,
/// kEnvironment if this machine has no such device.
std::string solving_device(const RefitOptions& options);

/// The refiner for these options. Keeps references to `source` and `stop`.
std::shared_ptr<AttentionRefiner> make_refiner(const Model& source, const RefitOptions& options,
                                               const std::atomic<bool>& stop);

/// Throws kBadInput if the source predicts the tokens in `data`, given with `option`, no better
/// than chance (TextChance), naming both losses and kAnyTextOption. Models that do not predict the
/// next token are not checked.
void check_is_predicted(const Model& source, const std::filesystem::path& data, const char* option,
                        const RefitOptions& compute, const Console& console);

/// Turns the check off.
inline constexpr const char* kAnyTextOption = "--allow-any-text";
inline constexpr const char* kAnyTextHelp =
    "use the text even if the model predicts it no better than chance";

}  // namespace regroup
