// The program with LibTorch, regroup-compute: when it is started, with which LibTorch, and what
// it lacks.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace regroup {

/// In the launcher (cli/launcher.cpp): executes the program with LibTorch, which runs the same
/// command line from the beginning; throws kEnvironment if that program cannot start. In other
/// programs it does nothing. Call it before the command changes or prints anything.
void exec_compute();

/// Sets what exec_compute() does.
void set_exec_compute(std::function<void()> execute);

/// The version of LibTorch in `folder`, the torch/ folder of a wheel or an unpacked LibTorch:
/// "2.13.0". Empty if it does not say.
std::string libtorch_version(const std::filesystem::path& folder);

/// The torch/ folders of wheels in the Python environment whose bin/ is in `prefix`. If a virtual
/// environment contains none, the one that its Python finds elsewhere.
std::vector<std::filesystem::path> torch_folders(const std::filesystem::path& prefix);

struct LibTorchChoice {
  /// Folders that the loader must search first, separated by colons; empty: none.
  std::string library_path{};
  /// If LibTorch was found in another version than the program's: its folder and version, as text.
  std::string mismatch{};
  /// Whether the user named it, so that no other may be used.
  bool named = false;
};

/// Looks for a LibTorch for programs built with `version`, whose first two numbers must agree: in
/// LibTorch_ROOT, in `prefix`/lib/regroup/torch, then in the Python environment of `prefix`.
LibTorchChoice choose_libtorch(const std::filesystem::path& prefix, std::string_view version);

/// "2.13.0" -> "2.13": versions that agree in this have the same interface.
std::string_view libtorch_interface(std::string_view version);

/// What to type to get it: "/env/bin/python3 -m pip install 'torch==2.13.*'", and how to name it if
/// it is not found by itself there.
std::string libtorch_remedy(const std::filesystem::path& prefix, std::string_view version);

/// The first shared library of `program` that the dynamic loader does not find in this environment.
/// Empty if it finds all of them, or if the loader cannot be run.
std::string missing_library(const std::filesystem::path& program);

}  // namespace regroup
