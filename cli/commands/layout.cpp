// regroup layout --guess MODEL
#include <filesystem>
#include <memory>
#include <string>

#include "cli/commands/commands.h"
#include "cli/options/command.h"
#include "cli/options/output_name.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/directory/model_directory.h"
#include "formats/layout_files/layout_guess.h"

namespace regroup {
namespace {

struct LayoutOptions {
  std::string model;
  std::string output;
};

// Values that are guessed or left to the user.
std::size_t count_uncertain(const Json& layout) {
  std::size_t count = 0;
  for (const auto& [key, comment] : layout.at("comments").items()) {
    count += comment.get_ref<const std::string&>().starts_with("certain") ? 0 : 1;
  }
  return count;
}

void run_layout(const LayoutOptions& options, const Console& console) {
  if (!options.output.empty()) {
    check_output_name(options.output, "a layout file", {".json"});
  }
  const ModelDirectory model = open_model_directory(options.model);
  const std::string where = printable((model.path / "config.json").string(), 0);
  const Json layout = guess_layout(model.config, model.checkpoint, where);
  const std::string text = layout.dump(2, ' ', /*ensure_ascii=*/true);
  if (options.output.empty()) {
    console.print(text);
  } else {
    write_text(options.output, text + "\n");
    console.note(fmt::format("wrote {}", printable(options.output, 0)));
  }
  console.note(
      fmt::format("look at the comments: {} of {} values are not certain; regroup does not check "
                  "what they mean",
                  count_uncertain(layout), layout.at("comments").size()));
}

}  // namespace

void add_layout_command(Command program, Console& console) {
  auto options = std::make_shared<LayoutOptions>();
  Command command =
      program.add_command("layout", "Write a layout file for a model of unknown architecture");
  command
      .add_option("--guess", options->model,
                  "model directory: from the names and shapes of its tensors and its config.json")
      .required();
  command.add_option("-o,--output", options->output,
                     "file to write; must not exist yet (default: print it)");
  command.footer(
      "Example: regroup layout --guess house-made -o layout.json\n"
      "Correct what is not certain, then pass it to inspect and convert with --layout.");
  command.on_run([options, &console] { run_layout(*options, console); });
}

}  // namespace regroup
