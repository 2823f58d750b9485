// regroup eval DIR --features FILE: models whose encoder reads spectra.
#pragma once

#include <cstdint>
#include <string>

#include "cli/options/command.h"
#include "cli/terminal/console.h"

namespace regroup {

struct SpeechEvalOptions {
  std::string model, features;
  std::int64_t batch = 8;
  std::string device, precision;
  std::string logits;  ///< the file to write, or empty: the loss
  bool json = false;
};

/// Adds --features, which excludes the options of `command` that choose text and windows of it.
void add_features_option(Command command, std::string& features);

void run_speech_eval(const SpeechEvalOptions& options, const Console& console);

}  // namespace regroup
