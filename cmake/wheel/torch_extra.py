"""The extra "torch" of the wheel: the LibTorch that the programs are built with, as cmake/FindLibTorch.cmake finds it."""
import pathlib
import re
import subprocess

SCRIPT = pathlib.Path(__file__).with_name("print_libtorch_version.cmake")


def dynamic_metadata(settings, project):
    """Versions that agree in their first two numbers have the same interface. Without LibTorch there is no extra."""
    printed = subprocess.run(["cmake", "-P", str(SCRIPT)], capture_output=True, text=True, check=False).stderr
    version = re.search(r"^LibTorch (\d+\.\d+)", printed, re.MULTILINE)
    return {"optional-dependencies": {"torch": [f"torch=={version[1]}.*"]} if version else {}}
