"""The program's exit codes as exceptions."""

from __future__ import annotations

import re
import signal
from typing import Any


# Flags whose absence means "as the tokenizer does".
NEGATED_BY_FALSE = frozenset({"bos", "eos", "jsonl"})


class RegroupError(Exception):
    """A command failed. The text is the program's one line; `exit_code` its exit code (1: a bug in regroup; -N: it was
    ended by signal N).
    """

    def __init__(self, line: str, exit_code: int) -> None:
        super().__init__(line, exit_code)  # all arguments: pickle passes them to a copy
        self.exit_code = exit_code

    def __str__(self) -> str:
        return str(self.args[0])


class UsageError(RegroupError):
    """An unknown option, a wrong value, or an option without effect (exit code 2)."""


class BadInputError(RegroupError):
    """A file that is missing, damaged or not supported (exit code 3)."""


class EnvironmentFailedError(RegroupError):
    """I/O, memory or a device failed, or LibTorch is missing (exit code 4)."""


class DifferenceFoundError(RegroupError):
    """`verify` found a difference (exit code 5). `report` is the dictionary of the command."""

    def __init__(self, line: str, exit_code: int, report: dict[str, Any]) -> None:
        super().__init__(line, exit_code)
        self.args = (line, exit_code, report)
        self.report = report


class StateSaved(KeyboardInterrupt):
    """`uptrain`, `convert` (while it distils) or `teach` was stopped and has saved its state (exit code 75).

    The same call with `resume=True` continues; that of `teach` as it is. Like every KeyboardInterrupt, it is not an
    Exception.
    """

    exit_code = 75


_KINDS: dict[int, type[RegroupError]] = {2: UsageError, 3: BadInputError, 4: EnvironmentFailedError}


def in_python(line: str, mark: str = "") -> str:
    """A line about options with the names of keyword arguments: kv_heads for --kv-heads. One that shows a command stays as it is.

    `mark` follows each name.
    """
    line = re.sub(r"(: regroup [a-z]+ .*\[OPTIONS\])? \(see regroup [a-z ]*--help\)$", "", line)
    line = re.sub(r"; did you mean --(json|json-progress|help|version)\?$", "", line)  # no keyword arguments
    if re.search(r"\b(regroup|hf) [a-z]+ ", line):
        return line

    def keyword(option: re.Match[str]) -> str:
        name = option[1].replace("-", "_")
        positive = name.removeprefix("no_")
        return f"{positive}=False" if name != positive and positive in NEGATED_BY_FALSE else name + mark

    line = re.sub(r"^[A-Z]+(?=: an empty value)", lambda argument: argument[0].lower(), line)
    return re.sub(r"(?<![^\s(])--([a-z][a-z0-9-]*)", keyword, line)


def error_of(exit_code: int, line: str, report: dict[str, Any]) -> BaseException:
    """The exception for a command that ended with `exit_code` (-N: by signal N) and a last line on stderr."""
    if exit_code == 75:
        return StateSaved(line)
    if exit_code == 5:
        return DifferenceFoundError(line, exit_code, report)
    if exit_code < 0:  # the last line is not about that
        line = f"regroup was ended by signal {-exit_code} ({signal.strsignal(-exit_code)})"
    line = line or f"regroup ended with exit code {exit_code}"
    if exit_code == 2:  # the functions write --option=value, so that only True leaves an option without one
        line = in_python(re.sub(r"( needs a value, not) --.*", r"\1 True", line))
    return _KINDS.get(exit_code, RegroupError)(line, exit_code)
