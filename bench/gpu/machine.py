#!/usr/bin/env python3
"""What is on this machine: the GPU, LibTorch, and what a build needs.

    machine.py FOLDER    checks that FOLDER (of bench/gpu.sh packages) has all that it should provide
"""

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
LEAST_TORCH = (2, 11)
LEAST_CMAKE = (3, 25)

# A library and the files under a prefix that a build needs; of alternatives one.
LIBRARIES = {
    "CLI11": ["include/CLI/CLI.hpp"],
    "fmt": ["include/fmt/core.h", "lib*/**/libfmt.so|lib*/**/libfmt.a"],
    "nlohmann-json": ["include/nlohmann/json.hpp"],
    "toml++": ["include/toml++/toml.h"],
    "Catch2": ["include/catch2/catch_test_macros.hpp", "lib*/**/libCatch2.a"],
}


def output_of(*command):
    """The program's output without the last newline; empty if it fails or does not exist."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def version_in(text):
    found = re.search(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def has_library(files, prefixes):
    def there(prefix, pattern):
        return any(any(Path(prefix).glob(one)) for one in pattern.split("|"))
    return any(all(there(prefix, pattern) for pattern in files) for prefix in prefixes)


def tool(name, packages):
    """The program of that name: the system's if it is good enough, else that of the packages; None: neither."""
    own = Path(packages) / "tools" / "bin" / name
    found = shutil.which(name)
    if name == "cmake" and found and version_in(output_of(found, "--version")) < LEAST_CMAKE:
        found = None
    if not found and own.exists():
        own.chmod(0o755)
    return found or (str(own) if own.exists() else None)


def torch_folder():
    if os.environ.get("LibTorch_ROOT"):
        return Path(os.environ["LibTorch_ROOT"])
    for folder in ROOT.glob(".venv/lib/python3*/site-packages/torch"):
        return folder
    found = output_of("python3", "-c", "import importlib.util as u; print(*u.find_spec('torch').submodule_search_locations)")
    return Path(found) if found else None


def torch_version():
    folder = torch_folder()
    for name in ("version.py", "build-version") if folder else ():
        if (folder / name).exists():
            found = re.search(r"\d+\.\d+\.\d+[\w.+]*", (folder / name).read_text())
            return found[0] if found else ""
    return ""


def lacking(packages, device):
    """One line for each thing without which a build would fail."""
    lines = []
    again = f"run bench/gpu.sh packages {packages} on a machine with network and bring the folder along"
    prefixes = ["/usr", "/usr/local", ROOT / ".deps/usr", Path(packages) / "usr"]
    if not (os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")):
        lines.append("no C++ compiler: c++, g++ or clang++ is needed (CXX names another)")
    if not tool("cmake", packages):
        lines.append(f"no CMake of 3.25 or later: {again}")
    if not tool("ninja", packages) and not shutil.which("make"):
        lines.append(f"neither Ninja nor Make: {again}")
    lines += [f"no {name}: {again}" for name, files in LIBRARIES.items() if not has_library(files, prefixes)]
    version = torch_version()
    if version_in(version) < LEAST_TORCH:
        lines.append(f"LibTorch: found {version or 'none'}, 2.11 or later is needed: LibTorch_ROOT names its folder")
    elif device.startswith("cuda") and not (torch_folder() / "lib" / "libtorch_cuda.so").exists():
        lines.append(f"LibTorch {version} in {torch_folder()} is without CUDA: LibTorch_ROOT names another")
    if device.startswith("cuda") and not output_of("nvidia-smi", "-L"):
        lines.append("no NVIDIA GPU: nvidia-smi lists none")
    return lines


# Of CUDA's headers, those that the process group over NCCL includes, of several packages.
CUDA_HEADERS = ("cuda_runtime_api.h", "crt/host_defines.h", "nv/target")


def has_cuda_headers(folder):
    """As cmake/FindLibTorch.cmake looks: all in the wheels next to LibTorch's folder, or in a toolkit."""
    wheels = list((folder.parent / "nvidia").glob("*/include"))
    toolkits = [Path(root) / "include" for root in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if root]
    return (all(any((place / part / name).exists() for place in wheels for part in ("", "cccl")) for name in CUDA_HEADERS) or
            any((place / CUDA_HEADERS[0]).exists() for place in toolkits))


def notes(device):
    """One line for each thing without which a build is less than it could be."""
    if not device.startswith("cuda") or has_cuda_headers(torch_folder()):
        return []
    return [f"without NCCL (several GPUs): neither the wheels next to {torch_folder()} have {', '.join(CUDA_HEADERS)}, nor a "
            "toolkit in CUDA_HOME or /usr/local/cuda"]


def cpu_name():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown CPU"


@functools.lru_cache
def facts(device):
    """What a table must say of where it was measured."""
    name, driver = cpu_name(), "-"
    if device.startswith("cuda"):
        listed = output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").splitlines()
        name, driver = (listed[0].split(", ") + ["-"])[:2] if listed else ("unknown GPU", "-")
    commit = os.environ.get("COMMIT") or output_of("git", "-C", str(ROOT), "rev-parse", "--short", "HEAD") or "unknown"
    if not os.environ.get("COMMIT") and output_of("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no"):
        commit += " with changes"
    return {"device": name, "driver": driver, "cores": os.cpu_count(), "libtorch": torch_version() or "unknown",
            "commit": commit}


@functools.lru_cache
def has_module(python, name):
    return output_of(python, "-c", f"import importlib.util as u; print(u.find_spec('{name}') is not None)") == "True"


def digest_of(program):
    """The first digits of a file's checksum; empty if there is none."""
    path = Path(program)
    return hashlib.sha256(path.read_bytes()).hexdigest()[:10] if path.is_file() else ""


def main():
    folder = Path(sys.argv[1])
    missing = [name for name, files in LIBRARIES.items() if not has_library(files, [folder / "usr"])]
    missing += [name for name in ("cmake", "ninja") if not (folder / "tools" / "bin" / name).exists()]
    for name in missing:
        print(f"gpu.sh: packages: {name} did not get into {folder}", file=sys.stderr)
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
