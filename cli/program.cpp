#include "cli/program.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/commands/command_line.h"
#include "cli/shell/config_file.h"
#include "cli/shell/option_needs.h"
#include "cli/shell/standard_streams.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/staged_directory.h"
#include "formats/version.h"

namespace regroup {
namespace {

// 75: interrupted with the state saved. Interrupted with nothing to save: 128 + signal, as in
// shells.
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
    case ErrorKind::kInterrupted:  // a signal to another rank ends this one, too
      return 128 + (interrupting_signal() != 0 ? interrupting_signal() : SIGINT);
    case ErrorKind::kInterruptedSaved: return kStateSaved;
  }
  return kBug;
}

// Help and version go to stdout. A wrong option gives one line on stderr, which names --help.
int report_parse(const CLI::App& program, const std::vector<std::string>& words,
                 const CLI::ParseError& fault, const Console& console) {
  if (fault.get_exit_code() == 0) {
    std::ostringstream text, nothing;
    program.exit(fault, text, nothing);
    std::string lines = text.str();
    lines.erase(lines.find_last_not_of('\n') + 1);
    console.print(lines);
    return kDone;
  }
  const std::string name = chosen_command(program);
  console.error(fmt::format("regroup: {} (see {} --help)", explain(program, words, fault), name));
  return kWrongUsage;
}

// Without any word, help is what is needed, though nothing was done.
int parse_and_run(CLI::App& program, const std::vector<std::string>& typed,
                  const Console& console) {
  if (typed.empty()) {
    parse_and_run(program, {"--help"}, console);
    return kWrongUsage;
  }
  const std::vector<std::string> words =
      checked_words(program, without_help_command(program, typed));
  try {
    program.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // the last word first
    return kDone;
  } catch (const CLI::ParseError& fault) {
    return report_parse(program, words, fault, console);
  }
}

// Flushes stdout. A command whose result cannot be written has failed.
int with_output_written(int exit_code, const Console& console) {
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && exit_code == kDone) {
    console.error("regroup: standard output: cannot write");
    return kEnvironmentFailed;
  }
  return exit_code;
}

int report_no_memory(const std::exception& fault, const Console& console) {
  console.error(
      fmt::format("regroup: {}; a smaller --batch or --context, fewer --threads and --dtype bf16 "
                  "need less; ulimit -v and containers limit memory, too",
                  text_of_shortage(fault)));
  return kEnvironmentFailed;
}

}  // namespace

void prepare_program(Command command, Console& console) {
  CLI::App& program = command.app();
  const std::size_t columns = std::min<std::size_t>(console.result_columns(), 80);
  program.formatter_fn([columns](const CLI::App* app, const std::string& name, CLI::AppFormatMode) {
    return help_text(facts_of(*app), name, columns);
  });
  program.set_help_flag("-h,--help", "print this help and exit");
  program.set_version_flag("--version",
                           fmt::format("regroup {}\nbuilt with {}", kVersion, kBuiltWith),
                           "print the version and exit");
  program.require_subcommand(1);
  program.fallthrough();  // allows --quiet before and after the command
  program.option_defaults()->always_capture_default();
  const CLI::callback_t read_config = [&program](const CLI::results_t& paths) {
    apply_config_file(program, paths.at(0));
    return true;
  };
  // CLI11 runs callbacks in this order, so --config comes first: the file may set later options.
  program
      .add_option("--config", read_config,
                  "read options from a TOML file, a section for each command: [uptrain]")
      ->type_name("TEXT");
  program.add_flag_callback(
      "-q,--quiet", [&] { console.set_verbosity(Verbosity::kQuiet); },
      "print results, warnings and errors only");
  program.add_flag_callback(
      "-v,--verbose", [&] { console.set_verbosity(Verbosity::kVerbose); }, "print more messages");
  program.add_flag_callback(
      "--json-progress", [&] { console.set_progress_format(ProgressFormat::kJson); },
      "print progress as lines of JSON on stderr");
  // Only listed in the help: without_help_command() handles the words.
  program.add_subcommand("help", "Explain a command: regroup help convert")
      ->add_option("command", "the command to explain");
  program.parse_complete_callback([&program] { check_options(program); });
}

int run_program(int argc, char** argv, const std::function<void(Command, Console&)>& add_commands) {
  secure_standard_streams();
  keep_freed_memory();
  Console console;
  CLI::App program("Turns multi-head attention checkpoints into grouped-query ones.", "regroup");
  try {
    install_interrupt_handlers();
    const StopScope scope(&interrupt_requested());
    stop_with_parent();
    prepare_program(program, console);
    add_commands(program, console);
    const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
    return with_output_written(parse_and_run(program, words, console), console);
  } catch (const Error& error) {
    if (interrupting_signal() != SIGPIPE) {
      console.error(fmt::format("regroup: {}", with_published_names(error.what())));
    }
    return exit_code_of(error);
  } catch (const std::filesystem::filesystem_error& fault) {
    console.error(fmt::format("regroup: {}: {}",
                              with_published_names(printable_path(fault.path1())),
                              fault.code().message()));
    return kEnvironmentFailed;
  } catch (const std::bad_alloc& fault) {
    return report_no_memory(fault, console);
  } catch (const std::length_error& fault) {  // a size above what a container can hold
    return report_no_memory(fault, console);
  } catch (const std::system_error& fault) {  // a thread could not be started
    console.error(fmt::format("regroup: {}; try fewer --threads", printable(fault.what(), 0)));
    return kEnvironmentFailed;
  } catch (const std::exception& fault) {
    console.error(fmt::format("regroup: internal error: {}", fault.what()));
    return kBug;
  }
}

}  // namespace regroup
