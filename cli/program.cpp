#include "cli/program.h"

#include <filesystem>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/interrupt.h"
#include "formats/error.h"
#include "formats/out_of_memory.h"
#include "formats/printable.h"
#include "formats/version.h"

namespace regroup {
namespace {

// 0 done · 1 bug · 2 wrong usage · 3 bad input · 4 environment · 5 difference · 75 interrupted with
// state saved. Interrupted with nothing to save: 128 + signal, as the shell has it.
enum ExitCode {
  kDone = 0,
  kBug = 1,
  kWrongUsage = 2,
  kBadInput = 3,
  kEnvironmentFailed = 4,
  kDifferenceFound = 5,
  kStateSaved = 75
};

int exit_code_of(const Error& error) {
  switch (error.kind()) {
    case ErrorKind::kUsage: return kWrongUsage;
    case ErrorKind::kBadInput: return kBadInput;
    case ErrorKind::kEnvironment: return kEnvironmentFailed;
    case ErrorKind::kDifference: return kDifferenceFound;
    case ErrorKind::kInterrupted: return 128 + interrupting_signal();
    case ErrorKind::kInterruptedSaved: return kStateSaved;
  }
  return kBug;
}

void describe_program(CLI::App& program, Console& console) {
  program.set_version_flag("--version", fmt::format("regroup {}", kVersion));
  program.require_subcommand(1);
  program.fallthrough();  // --quiet may stand before or after the command
  program.option_defaults()->always_capture_default();
  program.add_flag_callback(
      "-q,--quiet", [&] { console.set_verbosity(Verbosity::kQuiet); },
      "print results and errors only");
  program.add_flag_callback(
      "-v,--verbose", [&] { console.set_verbosity(Verbosity::kVerbose); }, "say more");
  program.set_config("--config", "",
                     "read options from a TOML file, a section for each command: [uptrain]");
  program.allow_config_extras(CLI::config_extras_mode::error);  // a misspelt key is no default
}

// Help and version go to stdout; a wrong option is one line that says where help is.
int report_parse(const CLI::App& program, const CLI::ParseError& fault, const Console& console) {
  if (fault.get_exit_code() == 0) {
    return program.exit(fault);
  }
  std::string name = "regroup";
  for (auto chosen = program.get_subcommands(); !chosen.empty();
       chosen = chosen.front()->get_subcommands()) {
    name += " " + chosen.front()->get_name();
  }
  std::string message = fault.what();
  message = message.substr(0, message.find('\n'));
  console.error(fmt::format("{}: {} (see {} --help)", name, message, name));
  return kWrongUsage;
}

int report_no_memory(const std::exception& fault, const Console& console) {
  const auto* known = dynamic_cast<const OutOfMemory*>(&fault);
  const std::string shortage =
      known != nullptr && *known->what() != '\0' ? fmt::format(": {}", known->what()) : "";
  console.error(fmt::format(
      "regroup: out of memory{}; a smaller --batch, --sequence or --context and fewer --threads "
      "take less, and so does --dtype bf16; ulimit -v and containers limit it, too",
      shortage));
  return kEnvironmentFailed;
}

}  // namespace

int run_program(int argc, char** argv,
                const std::function<void(CLI::App&, Console&)>& add_commands) {
  Console console;
  CLI::App program("Turns multi-head attention checkpoints into grouped-query ones.", "regroup");
  try {
    install_interrupt_handlers();
    describe_program(program, console);
    add_commands(program, console);
    program.parse(argc, argv);
    return kDone;
  } catch (const CLI::ParseError& fault) {
    return report_parse(program, fault, console);
  } catch (const Error& error) {
    console.error(fmt::format("regroup: {}", error.what()));
    return exit_code_of(error);
  } catch (const std::filesystem::filesystem_error& fault) {
    console.error(fmt::format("regroup: {}", printable(fault.what(), 0)));
    return kEnvironmentFailed;
  } catch (const std::bad_alloc& fault) {
    return report_no_memory(fault, console);
  } catch (const std::length_error& fault) {  // more than any machine has
    return report_no_memory(fault, console);
  } catch (const std::system_error& fault) {  // a thread that could not be started
    console.error(fmt::format("regroup: {}; fewer --threads may do", printable(fault.what(), 0)));
    return kEnvironmentFailed;
  } catch (const std::exception& fault) {
    console.error(fmt::format("regroup: internal error: {}", fault.what()));
    return kBug;
  }
}

}  // namespace regroup
