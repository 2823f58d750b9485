// regroup where computing needs LibTorch: what only reads and moves numbers is done here, at once;
// for all else the program with LibTorch, which takes a fifth of a second to load, takes this one's
// place.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "cli/commands.h"
#include "cli/freed_memory.h"
#include "cli/hand_over.h"
#include "cli/program.h"
#include "formats/error.h"
#include "formats/printable.h"

namespace {

using namespace regroup;
namespace fs = std::filesystem;

// Whether the command named first is one of those here. A --config may hold options of any command,
// and --similarity has heads to multiply.
bool is_done_here(int argc, char** argv) {
  constexpr std::array<std::string_view, 4> kCommon{"-q", "--quiet", "-v", "--verbose"};
  constexpr std::array<std::string_view, 8> kHere{"inspect",  "plan",    "diff",   "plot",
                                                  "tokenize", "convert", "expand", "verify"};
  const std::vector<std::string_view> words(argv + std::min(argc, 1), argv + argc);
  const auto command = std::find_if(words.begin(), words.end(), [&](std::string_view word) {
    return std::find(kCommon.begin(), kCommon.end(), word) == kCommon.end();
  });
  return command != words.end() && std::find(kHere.begin(), kHere.end(), *command) != kHere.end() &&
         std::none_of(words.begin(), words.end(), [](std::string_view word) {
           return word.starts_with("--config") || word == "--similarity";
         });
}

// Beside this program, as it is built, or where it is installed.
fs::path program_with_libtorch() {
  std::error_code fault;
  const fs::path here = fs::read_symlink("/proc/self/exe", fault).parent_path();
  const fs::path beside = here / "regroup-compute";
  return fs::exists(beside, fault) ? beside : here / REGROUP_LIBEXEC / "regroup-compute";
}

// LibTorch_ROOT, the torch/ folder of a wheel, comes ahead of where the program looks by itself.
void prefer_named_libtorch() {
  const char* root = std::getenv("LibTorch_ROOT");
  if (root == nullptr || *root == '\0') {
    return;
  }
  const char* others = std::getenv("LD_LIBRARY_PATH");
  const std::string paths = std::string(root) + "/lib" +
                            (others != nullptr && *others != '\0' ? ":" + std::string(others) : "");
  ::setenv("LD_LIBRARY_PATH", paths.c_str(), 1);
}

char** words_given = nullptr;  // of the command line

// Returns only where that is impossible, with the reason.
std::string become_program_with_libtorch() {
  const fs::path program = program_with_libtorch();
  prefer_named_libtorch();
  ::execv(program.c_str(), words_given);
  const std::string fault = std::strerror(errno);
  return printable(program.string(), 0) + ": " + fault;
}

}  // namespace

void regroup::hand_over_to_libtorch() { throw_environment("{}", become_program_with_libtorch()); }

int main(int argc, char** argv) {
  words_given = argv;
  if (is_done_here(argc, argv)) {
    keep_freed_memory();
    return run_program(argc, argv, [](CLI::App& program, Console& console) {
      add_inspect_command(program, console);
      add_plan_command(program, console);
      add_diff_command(program, console);
      add_plot_command(program, console);
      add_tokenize_command(program, console);
      add_verify_command(program, console);
      add_convert_command(program, console);
      add_expand_command(program, console);
    });
  }
  Console().error("regroup: " + become_program_with_libtorch());
  return 4;  // the environment failed
}
