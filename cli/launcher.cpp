// The regroup that users start, in builds with LibTorch. It runs the commands that only read and
// move numbers. For all others it executes regroup-compute, the program with LibTorch. Loading
// LibTorch takes 0.2 s.
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <unistd.h>

#include "cli/commands/commands.h"
#include "cli/program.h"
#include "cli/shell/compute_program.h"
#include "cli/shell/standard_streams.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace {

using namespace regroup;
namespace fs = std::filesystem;

// The command's name, or the one that is to be explained. Empty if there is none.
std::string_view command_in(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--config") {
      ++i;  // its file
    } else if (!word.starts_with('-') && word != "help") {
      return word;
    }
  }
  return "";
}

fs::path folder_of_program() {
  std::error_code fault;
  return fs::read_symlink("/proc/self/exe", fault).parent_path();
}

// In a build folder regroup-compute is next to this program; installed, it is under libexec.
fs::path program_with_libtorch() {
  std::error_code fault;
  const fs::path here = folder_of_program();
  const fs::path built = here / "regroup-compute";
  return fs::exists(built, fault) ? built : here / REGROUP_LIBEXEC / "regroup-compute";
}

// Makes the loader search these folders before the program's RUNPATH.
void search_first(const std::string& folders) {
  const char* previous = std::getenv("LD_LIBRARY_PATH");
  const std::string paths =
      folders + (previous != nullptr && *previous != '\0' ? ":" + std::string(previous) : "");
  ::setenv("LD_LIBRARY_PATH", paths.c_str(), 1);
}

// Lets LibTorch's threads wait for each other for some 30 microseconds before they sleep. By
// default they spin for milliseconds, and only the environment at a program's start can change
// that. On two busy cores a small model then trains five times slower. Threads that sleep earlier
// are woken for each operation: with a third of the count, text is written 0.73 times as fast on
// two quiet cores. With seven times the count, it is written a third as fast on two busy ones.
void limit_spinning() {
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) {
    ::setenv("GOMP_SPINCOUNT", "3000", /*overwrite=*/0);
  }
}

// The installation's prefix: the program is in its bin/.
fs::path installation_prefix() { return folder_of_program().parent_path(); }

std::string how_to_get_libtorch(const std::string& fault) {
  return fmt::format("this command needs LibTorch {}, and {}: {}",
                     libtorch_interface(REGROUP_LIBTORCH_VERSION), fault,
                     libtorch_remedy(installation_prefix(), REGROUP_LIBTORCH_VERSION));
}

// Returns only if that fails, with the reason.
std::string exec_program_with_libtorch(char** argv) {
  const fs::path program = program_with_libtorch();
  const LibTorchChoice libtorch = choose_libtorch(installation_prefix(), REGROUP_LIBTORCH_VERSION);
  if (libtorch.named && !libtorch.mismatch.empty()) {
    return how_to_get_libtorch(libtorch.mismatch);
  }
  if (!libtorch.library_path.empty()) {
    search_first(libtorch.library_path);
  }
  limit_spinning();
  if (const std::string missing = missing_library(program); !missing.empty()) {
    return how_to_get_libtorch(libtorch.mismatch.empty()
                                   ? fmt::format("{} was not found", printable(missing))
                                   : libtorch.mismatch);
  }
  ::execv(program.c_str(), argv);
  return fmt::format("{}: {}; this command needs both programs: install them again",
                     printable_path(program), std::strerror(errno));
}

}  // namespace

int main(int argc, char** argv) {
  secure_standard_streams();
  if (!needs_whole_program(command_in(argc, argv))) {
    set_exec_compute([argv] { throw_environment("{}", exec_program_with_libtorch(argv)); });
    return run_program(argc, argv, [](Command program, Console& console) {
      add_file_commands(program, console);
      for (const WholeProgramCommand& command : whole_program_commands()) {
        add_whole_command(program, command.name).ignore_config_file();
      }
    });
  }
  Console().error("regroup: " + exec_program_with_libtorch(argv));
  return 4;  // the environment failed
}
