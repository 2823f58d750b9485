"""Steps of a part: running one within a time limit, and keeping what it gave."""

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, List, Optional, Tuple

DONE, FAILED, SKIPPED = "done", "failed", "skipped"
LAST_LINES = 12
STOPPING = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}  # what ends the script
MOST_STARTS = 2  # a step that was killed from outside this often has failed


@dataclass
class Step:
    name: str
    command: List[str] = field(default_factory=list)
    read: Optional[Callable[[str], dict]] = None  # from standard output to what the tables show
    env: dict = field(default_factory=dict)
    skip: str = ""            # why this machine cannot do it
    continues: bool = False   # a second run goes on where the first was killed, as a build does
    needs: str = ""           # the step of the same part that must be done before
    built: Tuple[str, ...] = ()  # "part/step", each of which builds a program that this one runs
    makes: str = ""           # the file or folder that others need of it


def write_whole(path, text):
    """Replaces the file at once: a reader sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".part")
    fresh.write_text(text)
    os.replace(fresh, path)


class Results:
    """One JSON file per step, written whole or not at all. `copy`: a folder that gets one file with all of them."""

    def __init__(self, folder, copy=None):
        self.folder = Path(folder)
        self.copy = Path(copy) / "results.json" if copy else None
        if self.copy and self.copy.exists() and not self.all():
            self.take_copy()

    def take_copy(self):
        """The folder is empty, as on a fresh machine: the results are those of the copy."""
        try:
            found = json.loads(self.copy.read_text())
            for name, result in found.items():
                part, step = name.split("/")
                if result["state"] not in (DONE, FAILED, SKIPPED):
                    raise ValueError(name)
                write_whole(self.path(part, step), json.dumps(result, indent=1) + "\n")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as fault:
            sys.exit(f"gpu.sh: {self.copy} cannot be read as results: {fault!r}; move it away to begin anew")
        if found:
            print(f"gpu.sh: took {len(found)} results from {self.copy}", flush=True)

    def all(self):
        """Every result by "part/step"."""
        paths = sorted(self.folder.glob("*/*.json"), key=lambda path: path.stat().st_mtime_ns)
        found = {f"{path.parent.name}/{path.stem}": self.get(path.parent.name, path.stem) for path in paths}
        return {name: result for name, result in found.items() if result is not None}

    def path(self, part, step):
        return self.folder / part / f"{step}.json"

    def get(self, part, step):
        try:
            return json.loads(self.path(part, step).read_text())
        except (OSError, ValueError):
            return None

    def put(self, part, step, result):
        write_whole(self.path(part, step), json.dumps(result, indent=1) + "\n")
        self.marker(part, step).unlink(missing_ok=True)
        self.write_copy()

    def write_copy(self):
        if self.copy:
            write_whole(self.copy, json.dumps(self.all(), indent=1) + "\n")

    def marker(self, part, step):
        return self.folder / part / f"{step}.starts"

    def count_start(self, part, step):
        """How often the step was started without an end, this time included."""
        path = self.marker(part, step)
        path.parent.mkdir(parents=True, exist_ok=True)
        starts = (int(path.read_text() or 0) if path.exists() else 0) + 1
        path.write_text(str(starts))
        return starts

    def forget(self, part):
        for path in (self.folder / part).glob("*"):
            path.unlink()
        self.write_copy()


class Clocks:
    """The GPU's clock and power while a step runs, five times a second, by nvidia-smi."""

    def __init__(self, on_gpu):
        command = ["nvidia-smi", "--query-gpu=clocks.sm,power.draw,clocks_event_reasons.active",
                   "--format=csv,noheader,nounits", "-lms", "200"]
        try:
            self.child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                                          start_new_session=True) if on_gpu else None
        except OSError:
            self.child = None

    def seen(self):
        """While the GPU drew over half of its greatest power: MHz, watts and the bits of the reasons to slow down."""
        if self.child is None:
            return {}
        self.child.kill()
        rows = [line.split(", ") for line in self.child.communicate()[0].splitlines()]
        rows = [(float(row[0]), float(row[1]), int(row[2], 16)) for row in rows if len(row) == 3 and row[1][0].isdigit()]
        busy = [row for row in rows if row[1] > 0.5 * max(row[1] for row in rows)]
        if not busy:
            return {}
        reasons = 0
        for row in busy:
            reasons |= row[2]
        return {"mhz": statistics.median(row[0] for row in busy), "least_mhz": min(row[0] for row in busy),
                "watts": statistics.median(row[1] for row in busy), "most_watts": max(row[1] for row in busy),
                "slowed_by": hex(reasons)}


class Stopped(Exception):
    """The user or the machine asked the script to end."""


def last_lines(text):
    return [line for line in text.splitlines() if line.strip()][-LAST_LINES:]


def let_signals_stop():
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)


def start(step):
    """Starts the step's program, with signals that stop the script held back: its child would be lost and run on."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        return subprocess.Popen(step.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                stdin=subprocess.DEVNULL, env={**os.environ, **step.env}, start_new_session=True,
                                preexec_fn=let_signals_stop)
    except BaseException:
        let_signals_stop()
        raise


def run_command(step, seconds):
    """The exit status, or None after `seconds`, and both outputs."""
    child = start(step)
    try:
        let_signals_stop()
        out, errors = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None, *end(child)
    except BaseException:
        end(child)
        raise
    return child.returncode, out, errors


def end(child):
    """Ends the child and its children: politely, then not."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
            return child.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            break
    return child.communicate()


def result_of(step, status, out, errors, seconds):
    result = {"state": DONE, "seconds": round(seconds, 1), "command": step.command}
    if status != 0:
        why = f"took longer than {seconds:.1f} s" if status is None else f"exit status {status}"
        return {**result, "state": FAILED, "why": why, "last_lines": last_lines(out + "\n" + errors)}
    try:
        result["values"] = step.read(out) if step.read else {}
    except (ValueError, KeyError, IndexError, TypeError) as fault:
        return {**result, "state": FAILED, "why": f"its output was not understood: {fault!r}",
                "last_lines": last_lines(out + "\n" + errors)}
    return result


class Runner:
    """Runs steps. `limit`: the seconds that a whole part has; `facts`: the machine, kept with each result."""

    def __init__(self, results, limit, facts):
        self.results, self.limit, self.facts = results, limit, facts

    def put(self, part, step, result):
        self.results.put(part, step.name, {**result, "machine": self.facts})
        return result["state"]

    def refused(self, part, step, starts):
        """Why the step is not run; None if it is."""
        if step.skip:
            return {"state": SKIPPED, "why": step.skip}
        if step.needs and (self.results.get(part, step.needs) or {}).get("state") != DONE:
            return {"state": FAILED, "why": f"needs {step.needs}, which failed"}
        if starts > MOST_STARTS and not step.continues:
            return {"state": FAILED, "why": f"was started {starts - 1} times and ended without a result"}
        return None

    def run(self, part, step, seconds_left):
        """Runs the step and keeps its result. Returns its state, or None if it is left for the next call."""
        starts = self.results.count_start(part, step.name)
        refused = self.refused(part, step, starts)
        if refused:
            return self.put(part, step, refused)
        begin = time.monotonic()
        clocks = Clocks(self.facts["driver"] != "-")
        try:
            status, out, errors = run_command(step, seconds_left)
        except OSError as fault:
            status, out, errors = 127, "", str(fault)
        except Stopped:
            self.results.marker(part, step.name).unlink(missing_ok=True)  # asked to end: not the step's fault
            raise
        finally:
            seen = clocks.seen()
        cut_short = seconds_left < 0.9 * self.limit
        if status is None and (step.continues or cut_short):
            self.results.marker(part, step.name).unlink(missing_ok=True)
            return None
        result = result_of(step, status, out, errors, time.monotonic() - begin)
        return self.put(part, step, {**result, "clocks": seen} if seen else result)
