"""The extra "torch" of the wheel: the LibTorch that the programs are built with, as cmake/FindLibTorch.cmake finds it."""
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = ("CLI/CLI.hpp", "fmt/format.h", "nlohmann/json.hpp", "toml++/toml.h")
SCRIPT = pathlib.Path(__file__).with_name("print_libtorch_version.cmake")


def check_prepared():
    """Ends in one line, instead of CMake's, where the libraries of the build are missing."""
    prefixes = [ROOT / ".deps/usr", "/usr", "/usr/local", *filter(None, re.split("[:;]", os.environ.get("CMAKE_PREFIX_PATH", "")))]
    missing = [name for name in HEADERS if not any((pathlib.Path(each) / "include" / name).exists() for each in prefixes)]
    if missing and not (ROOT / "build/release/regroup").exists():
        raise SystemExit(f"regroup: {', '.join(missing)}: not found; run scripts/setup first")


def dynamic_metadata(settings, project):
    """Versions that agree in their first two numbers have the same interface. Without LibTorch there is no extra."""
    check_prepared()
    printed = subprocess.run(["cmake", "-P", str(SCRIPT)], capture_output=True, text=True, check=False).stderr
    version = re.search(r"^LibTorch (\d+\.\d+)", printed, re.MULTILINE)
    return {"optional-dependencies": {"torch": [f"torch=={version[1]}.*"]} if version else {}}
