"""Runs the program as a child process."""

from __future__ import annotations

import contextlib
import json
import logging
import numbers
import os
import re
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, Union

from regroup._errors import NEGATED_BY_FALSE, EnvironmentFailedError, StateSaved, UsageError, error_of, in_python

Path = Union[str, "os.PathLike[str]"]
Option = Union[None, bool, int, float, Path, Sequence[Union[int, float]], Sequence[Path]]
"""The value of an option. True is a flag, False and None leave the option out, numbers in a sequence are joined by
commas, and other sequences give the option several times."""
Report = dict[str, Any]
Callback = Callable[[Report], object]

_log = logging.getLogger("regroup")

# An option whose value is true or false.
TAKES_TRUE_OR_FALSE = frozenset({"scale_by_parameter"})
# Flags that run() sets, or that print something else than a report.
NOT_FOR_CALLERS = frozenset({"help", "json", "json_progress", "version"})


def program() -> str:
    """The path of the program: $REGROUP_PROGRAM, that of the Python environment, or the one on PATH.

    Raises EnvironmentFailedError if there is none.
    """
    named = os.environ.get("REGROUP_PROGRAM")
    schemes = (sysconfig.get_default_scheme(), f"{os.name}_user")
    folders = [sysconfig.get_path("scripts", scheme) for scheme in schemes]
    for path in [named] if named else [os.path.join(folder, "regroup") for folder in folders]:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    found = None if named else shutil.which("regroup")
    if found is None:
        fault = f"REGROUP_PROGRAM: {named} is not a program"
        if not named:
            fault = "no program regroup in this environment or on PATH; REGROUP_PROGRAM names one elsewhere"
        raise EnvironmentFailedError(fault, 4)
    return found


def words_of(options: Mapping[str, Any]) -> list[str]:
    """Keyword arguments as words of the command line."""
    words = []
    for key, value in options.items():
        name = "--" + key.replace("_", "-")
        if value is True or value is False:
            if key in TAKES_TRUE_OR_FALSE:
                words.append(f"{name}={str(value).lower()}")
            elif value:
                words.append(name)
            elif key in NEGATED_BY_FALSE:
                words.append("--no-" + name.removeprefix("--"))
        elif value is not None:
            words += [f"{name}={text}" for text in _texts(key, value)]
    return words


def _texts(key: str, value: Any) -> list[str]:
    if isinstance(value, numbers.Number):
        return [str(value)]
    if isinstance(value, (str, bytes, os.PathLike)):
        return [os.fsdecode(value)]
    try:
        items = [] if isinstance(value, Mapping) else list(value)  # of a mapping, only the keys
        if not items:
            raise TypeError
        if all(isinstance(each, numbers.Number) for each in items):
            return [",".join(map(str, items))]
        return [os.fsdecode(each) for each in items]
    except TypeError:
        raise UsageError(f"{key}: {value!r} is no value of an option", 2) from None


def run(
    command: str,
    operands: Sequence[Path],
    options: Mapping[str, Any],
    on_progress: Callback | None = None,
    on_step: Callback | None = None,
    documents: Iterable[str] | None = None,
) -> Report:
    """Runs a command with --json and returns its report; an empty one if it prints none.

    `documents` become its standard input, as JSON lines.
    Notes and warnings of the program go to the logger "regroup". Raises the exception of the exit code.
    """
    _check_options(options, quiet_allowed=on_progress is None and on_step is None)
    words = [program(), *command.split(), *words_of(options)]
    words += [] if options.get("quiet") else ["--json-progress"]
    words += [] if command == "plot" else ["--json"]  # plot reports nothing
    words += ["--", *(os.fsdecode(each) for each in operands)]
    with tempfile.TemporaryFile() as printed:
        child = _start(words, printed, documents is not None)
        with _feeding(child, documents):
            line = _follow(child, on_progress, on_step)
        printed.seek(0)
        text = printed.read()
    report: Report = json.loads(text) if text.strip() else {}
    if child.returncode != 0:
        raise error_of(child.returncode, line.removeprefix("regroup: "), report)
    return report


def _check_options(options: Mapping[str, Any], quiet_allowed: bool) -> None:
    for key in NOT_FOR_CALLERS.intersection(options):
        raise UsageError(f"{key} is no option of the function", 2)
    if options.get("quiet") and not quiet_allowed:
        raise UsageError("with quiet=True there is no progress to call back with", 2)


def _start(words: list[str], printed: IO[bytes], fed: bool) -> subprocess.Popen[str]:
    """Starts the program, in a session of its own: Ctrl-C must reach it once, and a second one, a second later, ends it at once.

    With REGROUP_PARENT it stops by itself if this process is killed. It has this process's standard input: which
    arguments name it ("-", "/dev/stdin"), only the program decides.
    """
    return subprocess.Popen(
        words,
        stdin=subprocess.PIPE if fed else None,
        stdout=printed,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        env={**os.environ, "REGROUP_PARENT": str(os.getpid())},
        start_new_session=True,
    )


@contextlib.contextmanager
def _feeding(child: subprocess.Popen[str], documents: Iterable[str] | None) -> Iterator[None]:
    """Writes documents to the program from a thread. What they raise stops the program, and is raised here."""
    faults: list[BaseException] = []

    def feed() -> None:
        assert child.stdin is not None and documents is not None
        try:
            child.stdin.writelines(json.dumps({"text": text}) + "\n" for text in documents)
            child.stdin.close()
        except BrokenPipeError:  # the program has ended and said why
            pass
        except BaseException as fault:
            faults.append(fault)
            child.send_signal(signal.SIGINT)

    if documents is None or child.stdin is None:
        yield
        return
    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    try:
        yield
    finally:
        # After a failure, an iterable may take long to notice that nobody reads it.
        thread.join(None if child.returncode == 0 else 1)
        with contextlib.suppress(OSError):
            child.stdin.close()
    if faults:
        raise faults[0]


def _follow(child: subprocess.Popen[str], on_progress: Callback | None, on_step: Callback | None) -> str:
    """Calls the callbacks until the program ends, and returns its last line on stderr that is not progress.

    Ctrl-C, and an exception of a callback, send SIGINT to the program. They are raised again when it has ended.
    """
    assert child.stderr is not None
    last, stop = "", None
    while True:
        try:
            for line in child.stderr:
                line = line.rstrip("\n")
                if not _is_progress(line, on_progress, on_step):
                    level = logging.WARNING if line.startswith("warning: ") else logging.INFO
                    _log.log(level, "%s", in_python(re.sub(r"(--[a-z-]+) (?=[A-Z])", r"\1=", line)))
                    last = line
            child.wait()
            break
        except BaseException as fault:
            stop = stop or fault
            on_progress = on_step = None
            child.send_signal(signal.SIGINT)
    child.stderr.close()
    if isinstance(stop, KeyboardInterrupt) and child.returncode == StateSaved.exit_code:
        raise StateSaved(last.removeprefix("regroup: ")) from None
    if stop is not None:
        raise stop
    return last


def _is_progress(line: str, on_progress: Callback | None, on_step: Callback | None) -> bool:
    """Whether this is a line of --json-progress; passes it to its callback."""
    if not line.startswith(('{"progress":', '{"step":')):
        return False
    try:
        event = json.loads(line)
    except ValueError:  # a message that begins like it
        return False
    callback = on_progress if "progress" in event else on_step
    if callback is not None:
        callback(event)
    return True
