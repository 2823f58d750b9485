// A config file for --config, for a program with options of each type.
#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/shell/config_file.h"
#include "tests/fuzz/fuzz_target.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const regroup::MemoryFile file;
  file.hold(regroup::text_of(data, size));
  bool flag = false;
  std::string text;
  std::int64_t number = 0;
  double real = 0.0;
  std::vector<std::string> list;
  CLI::App program("program", "program");
  program.add_flag("--quiet", flag);
  CLI::App* command = program.add_subcommand("train", "");
  command->add_option("--text", text);
  command->add_option("--number", number);
  command->add_option("--real", real);
  command->add_option("--list", list);
  regroup::refuse_or_read([&] { regroup::apply_config_file(program, file.path()); });
  return 0;
}
