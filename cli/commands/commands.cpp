#include "cli/commands/commands.h"

#include <array>

#include "formats/base/ranges.h"

namespace regroup {
namespace {

constexpr std::array kWhole = std::to_array<WholeProgramCommand>({
    {"bench", "Measure how fast a model trains and decodes on this machine"},
    {"calibrate", "Measure the inputs of a model's attention layers, for convert --calibration"},
    {"eval", "Measure the loss and perplexity of a model on a text"},
    {"init", "Make a model with random weights for a config.json, to train from scratch"},
    {"sample", "Let a model continue a prompt, or write text to calibrate with"},
    {"teach", "Store a teacher's predictions, for uptrain --teacher-logits"},
    {"uptrain", "Train a converted model for a share of its pretraining, to recover quality"},
    {"completions", "Print a script that completes regroup's commands and options in a shell"},
    {"manual", "Print the manual page, for man"},
});

}  // namespace

std::span<const WholeProgramCommand> whole_program_commands() { return kWhole; }

bool needs_whole_program(std::string_view name) {
  return contains(kWhole, name, &WholeProgramCommand::name);
}

Command add_whole_command(Command program, std::string_view name) {
  const auto found = std::ranges::find(kWhole, name, &WholeProgramCommand::name);
  return program.add_command(std::string(name), std::string(found->description));
}

void add_file_commands(Command program, Console& console) {
  for (AddCommand* add :
       {add_inspect_command, add_plan_command, add_diff_command, add_plot_command,
        add_tokenize_command, add_verify_command, add_convert_command, add_expand_command}) {
    add(program, console);
  }
}

}  // namespace regroup
