// `regroup convert --text` of a random model, for tests.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "formats/base/json.h"
#include "tests/child_program.h"
#include "tests/uptrain/model_and_text.h"

namespace regroup {

struct TextConversion : ModelAndText {
  std::string output = (directory / "out").string();

  ProgramResult convert(const std::vector<std::string>& more, const char* context = "32") const {
    std::vector<std::string> arguments{"convert",
                                       "--allow-any-text",
                                       model,
                                       output,
                                       "--kv-heads",
                                       "1",
                                       "--text",
                                       text,
                                       "--refit-steps",
                                       "20",
                                       "--refit-context",
                                       context};
    if (std::find(more.begin(), more.end(), "--distill-steps") == more.end()) {
      arguments.insert(arguments.end(), {"--distill-steps", "0"});
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  }

  // Trains the model on the text until it predicts it.
  void train() {
    const std::string tokens = (directory / "tokens.bin").string();
    const std::string learnt = (directory / "learnt").string();
    REQUIRE(run_program({"tokenize", text, "--tokenizer", "bytes", "-o", tokens}).exit_code == 0);
    REQUIRE(run_program({"uptrain", model, "--data", tokens, "--steps", "150", "--sequence", "32",
                         "--batch", "8", "--lr", "0.01", "-o", learnt})
                .exit_code == 0);
    model = learnt;
  }
};

/// Of a report's models: source, mean, result.
inline double loss_of(const Json& report, std::size_t row) {
  return report["held_out"]["models"][row]["loss"].get<double>();
}

}  // namespace regroup
