"""The program's exit codes as exceptions."""

from __future__ import annotations

from typing import Any


class RegroupError(Exception):
    """A command failed. The text is the program's one line; `exit_code` its exit code (1: a bug in regroup)."""

    def __init__(self, line: str, exit_code: int) -> None:
        super().__init__(line)
        self.exit_code = exit_code


class UsageError(RegroupError):
    """An unknown option, a wrong value, or an option without effect (exit code 2)."""


class BadInputError(RegroupError):
    """A file that is missing, damaged or not supported (exit code 3)."""


class EnvironmentFailedError(RegroupError):
    """I/O, memory or a device failed, or LibTorch is missing (exit code 4)."""


class DifferenceFoundError(RegroupError):
    """`verify` or `diff` found a difference (exit code 5). `report` is the dictionary of the command."""

    def __init__(self, line: str, exit_code: int, report: dict[str, Any]) -> None:
        super().__init__(line, exit_code)
        self.report = report


class StateSaved(KeyboardInterrupt):
    """`uptrain` was stopped and has saved its state (exit code 75): the same call with `resume=True` continues.

    Like every KeyboardInterrupt, it is not an Exception.
    """

    exit_code = 75


_KINDS: dict[int, type[RegroupError]] = {2: UsageError, 3: BadInputError, 4: EnvironmentFailedError}


def error_of(exit_code: int, line: str, report: dict[str, Any]) -> BaseException:
    """The exception for a command that ended with `exit_code` (-N: by signal N)."""
    if exit_code == 75:
        return StateSaved(line)
    if exit_code == 5:
        return DifferenceFoundError(line, exit_code, report)
    if exit_code < 0 or not line:
        line = line or f"regroup ended with exit code {exit_code}"
    return _KINDS.get(exit_code, RegroupError)(line, exit_code)
