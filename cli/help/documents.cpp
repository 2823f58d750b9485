// regroup completions SHELL, and regroup manual
#include <memory>

#include "cli/commands/commands.h"
#include "cli/help/completions.h"
#include "cli/help/manual.h"
#include "cli/options/command.h"

namespace regroup {

void add_completions_command(Command program, Console& console) {
  auto shell = std::make_shared<std::string>();
  Command command = add_whole_command(program, "completions");
  command.add_option("shell", *shell, "which shell").required().one_of({"bash", "zsh", "fish"});
  command.footer(
      "Examples: source <(regroup completions bash)\n"
      "          regroup completions fish > ~/.config/fish/completions/regroup.fish");
  command.on_run([shell, program, &console] {
    const CommandFacts facts = facts_of(program);
    console.print(*shell == "bash"  ? bash_completions(facts)
                  : *shell == "zsh" ? zsh_completions(facts)
                                    : fish_completions(facts));
  });
}

void add_manual_command(Command program, Console& console) {
  Command command = add_whole_command(program, "manual");
  command.footer("Example: regroup manual | man -l -");
  command.on_run([program, &console] { console.print(manual_page(facts_of(program))); });
}

}  // namespace regroup
