#include "cli/shell/compute_program.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include <fmt/format.h>

#include "cli/shell/quantity.h"
#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

std::function<void()> execute_compute;

// What a command of the shell prints to stdout, at most 1 MiB; stderr is discarded. Empty if it
// cannot be run.
std::string output_of(const std::string& command) {
  constexpr std::size_t kMostBytes = 1U << 20;
  std::FILE* output = ::popen((command + " 2>/dev/null").c_str(), "re");
  if (output == nullptr) {
    return "";
  }
  std::string text(kMostBytes, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), output));
  ::pclose(output);
  return text;
}

bool is_there(const fs::path& path) {
  std::error_code fault;
  return fs::exists(path, fault);
}

// The entries of a folder in the order of their names; none if it cannot be read.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::error_code fault;
  std::vector<fs::path> entries;
  for (fs::directory_iterator entry(folder, fault), end; !fault && entry != end;
       entry.increment(fault)) {
    entries.push_back(entry->path());
  }
  std::ranges::sort(entries);
  return entries;
}

// The version that follows `before` in a file: "2.13.0" for "__version__ = '2.13.0+cpu'". Empty if
// there is none.
std::string version_in(const fs::path& file, std::string_view before) {
  constexpr std::uint64_t kMostBytes = 64U << 10;
  std::string text;
  try {
    text = read_text(file, kMostBytes);
  } catch (const Error&) {
    return "";
  }
  const std::size_t found = text.find(before);
  if (found == text.npos) {
    return "";
  }
  const std::size_t begin = found + before.size();
  const std::string version =
      text.substr(begin, text.find_first_not_of("0123456789.", begin) - begin);
  return version.find('.') != version.npos ? version : "";
}

// The folder of the torch package that this Python would import. It is not imported, which would
// take seconds. -I: neither the current folder nor variables of the environment count.
fs::path torch_of_python(const fs::path& python) {
  constexpr const char* kFind =
      "import importlib.util as u; print(*u.find_spec('torch').submodule_search_locations)";
  std::string found =
      output_of(fmt::format("{} -I -c {}", shell_quoted(python.string()), shell_quoted(kFind)));
  found.erase(found.find_last_not_of('\n') + 1);
  return found;
}

bool is_libtorch(const fs::path& folder) { return is_there(folder / "lib/libtorch.so"); }

// Its libraries, and those of NVIDIA's packages next to a wheel for CUDA.
std::string library_path_of(const fs::path& folder) {
  std::string path = (folder / "lib").string();
  for (const fs::path& package : entries_of(folder.parent_path() / "nvidia")) {
    if (is_there(package / "lib")) {
      path += ":" + (package / "lib").string();
    }
  }
  return path;
}

LibTorchChoice choice_of(const fs::path& folder, std::string_view version) {
  const std::string found = libtorch_version(folder);
  if (!found.empty() && libtorch_interface(found) != libtorch_interface(version)) {
    return {.mismatch = fmt::format("{} is {}", printable_path(folder), found)};
  }
  return {.library_path = library_path_of(folder)};
}

// The folder that the user has named, or linked to.
fs::path named_folder(const fs::path& prefix) {
  const char* root = std::getenv("LibTorch_ROOT");
  if (root != nullptr && *root != '\0') {
    return root;
  }
  const fs::path link = prefix / "lib/regroup/torch";
  return is_there(link) ? link : fs::path();
}

}  // namespace

void set_exec_compute(std::function<void()> execute) { execute_compute = std::move(execute); }

void exec_compute() {
  if (execute_compute) {
    execute_compute();
  }
}

std::string libtorch_version(const fs::path& folder) {
  const std::string version = version_in(folder / "version.py", "__version__ = '");
  return version.empty() ? version_in(folder / "build-version", "") : version;
}

std::string_view libtorch_interface(std::string_view version) {
  return version.substr(0, version.find('.', version.find('.') + 1));
}

std::vector<fs::path> torch_folders(const fs::path& prefix) {
  std::vector<fs::path> folders;
  for (const fs::path& python : entries_of(prefix / "lib")) {
    for (const char* packages : {"site-packages", "dist-packages"}) {
      const fs::path folder = python / packages / "torch";
      if (python.filename().string().starts_with("python3") && is_libtorch(folder)) {
        folders.push_back(folder);
      }
    }
  }
  if (folders.empty() && is_there(prefix / "pyvenv.cfg")) {
    const fs::path folder = torch_of_python(prefix / "bin/python3");
    if (is_libtorch(folder)) {
      folders.push_back(folder);
    }
  }
  return folders;
}

LibTorchChoice choose_libtorch(const fs::path& prefix, std::string_view version) {
  if (const fs::path named = named_folder(prefix); !named.empty()) {
    LibTorchChoice choice = choice_of(named, version);
    choice.named = true;
    return choice;
  }
  LibTorchChoice last;
  for (const fs::path& folder : torch_folders(prefix)) {
    last = choice_of(folder, version);
    if (last.mismatch.empty()) {
      break;
    }
  }
  return last;
}

std::string libtorch_remedy(const fs::path& prefix, std::string_view version) {
  const std::string package = fmt::format("'torch=={}.*'", libtorch_interface(version));
  const fs::path python = prefix / "bin/python3";
  // Debian's own Python installs elsewhere, if at all.
  if (prefix != "/usr" && is_there(python)) {
    return fmt::format("{} -m pip install {}", printable(shell_quoted(python.string()), 0),
                       package);
  }
  return fmt::format(
      "python3 -m pip install {} in an environment, and set LibTorch_ROOT to its torch folder, or "
      "link that folder to {}",
      package, printable((prefix / "lib/regroup/torch").string(), 0));
}

std::string missing_library(const std::filesystem::path& program) {
  constexpr std::string_view kMissing = " => not found";
  // As ldd does, this makes the loader print the program's libraries and not run it.
  const std::string list = output_of("LD_TRACE_LOADED_OBJECTS=1 " + shell_quoted(program.string()));
  const std::size_t end = list.find(kMissing);
  if (end == list.npos) {
    return "";
  }
  const std::size_t begin = list.find_last_of("\t\n ", end - 1) + 1;  // 0 if none precedes it
  return list.substr(begin, end - begin);
}

}  // namespace regroup
