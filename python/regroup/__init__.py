"""Runs regroup's commands and returns what they report.

Each function is a command of the program, and its dictionary is what `--json` prints. Keyword arguments are the
command's options: `kv_heads=8` is `--kv-heads 8`. The program checks them; `regroup.help("convert")`
prints them.

    import regroup
    regroup.convert("Llama-2-7b-hf", "Llama-2-7b-gqa8", kv_heads=8)
    report = regroup.verify("Llama-2-7b-hf", "Llama-2-7b-gqa8")

Errors are exceptions with the program's one line (`RegroupError` and its subclasses). Ctrl-C stops a command as it
stops the program; see `StateSaved`.
"""

import difflib
import subprocess
from importlib import metadata

from regroup._commands import (
    bench_decode,
    bench_train,
    calibrate,
    convert,
    diff,
    eval,
    expand,
    help,
    init,
    inspect,
    plan,
    plot,
    sample,
    teach,
    tokenize,
    uptrain,
    verify,
)
from regroup._errors import (
    BadInputError,
    DifferenceFoundError,
    EnvironmentFailedError,
    RegroupError,
    StateSaved,
    UsageError,
)
from regroup._program import Callback, Option, Path, Report, program

__all__ = [
    "BadInputError",
    "Callback",
    "DifferenceFoundError",
    "EnvironmentFailedError",
    "Option",
    "Path",
    "RegroupError",
    "Report",
    "StateSaved",
    "UsageError",
    "bench_decode",
    "bench_train",
    "calibrate",
    "convert",
    "diff",
    "eval",
    "expand",
    "help",
    "init",
    "inspect",
    "plan",
    "plot",
    "program",
    "sample",
    "teach",
    "tokenize",
    "uptrain",
    "verify",
]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> str:
    """`__version__`: that of the installed package, or of the program that a checkout runs."""
    if name != "__version__":
        near = difflib.get_close_matches(name, __all__, 1)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}" + (f"; did you mean {near[0]}?" if near else ""))
    try:
        return metadata.version("regroup")
    except metadata.PackageNotFoundError:
        return subprocess.run([program(), "--version"], check=True, capture_output=True, text=True).stdout.split()[1]
