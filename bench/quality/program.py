"""Runs each `regroup` command once and keeps its report.

A record is a JSON file: {"command": [...], "report": {...}, "seconds": s}, or {"refused": "why"} instead of a report.
Commands run in the study's folder, so that they can be repeated there by hand.
"""
import collections
import json
import os
import shutil
import signal
import subprocess
import threading
import time

STATE_SAVED = 75
WRONG_USAGE, BAD_INPUT = 2, 3


class Stopped(Exception):
    """The user asked to stop; finished results are kept."""


class CommandFailed(Exception):
    pass


def write_atomically(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f"{path.name}.partial-{os.getpid()}-{threading.get_ident()}")
    staged.write_text(text, encoding="utf-8")
    staged.replace(path)


def read_record(path):
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


class Program:
    def __init__(self, executable, work, device, threads):
        self.executable = str(executable)
        self.work = work
        self.device = device
        self.threads = threads
        self.help_ = {}
        self.running_ = set()
        self.lock_ = threading.Lock()
        self.record_locks_ = collections.defaultdict(threading.Lock)
        self.stopping_ = False

    def has_option(self, command, option):
        """Whether this build's `regroup COMMAND` has the option."""
        with self.lock_:
            if command not in self.help_:
                self.help_[command] = subprocess.run(
                    [self.executable, command, "--help"], capture_output=True, text=True,
                    check=True).stdout
            return option in self.help_[command].replace(",", " ").split()

    def run_once(self, record, arguments, output=None, may_refuse=False):
        """Returns the record of `regroup ARGUMENTS`, which makes `output` (a path in the work folder). An interrupted
        run continues from its saved state. Of tasks that ask for one record at a time, the first runs the command."""
        with self.lock_:
            making = self.record_locks_[record]
        with making:
            return self.run_unless_recorded_(record, arguments, output, may_refuse)

    def run_unless_recorded_(self, record, arguments, output, may_refuse):
        path = self.work / record
        found = read_record(path)
        if found is not None:
            if found["command"] != ["regroup", *arguments]:
                raise CommandFailed(f"{path}: made by another command; --redo runs it again\n"
                                    f"  then: {' '.join(found['command'])}\n"
                                    f"  now:  regroup {' '.join(arguments)}")
            return found
        resume = []
        if output is not None:
            shutil.rmtree(self.work / output, ignore_errors=True)
            (self.work / output).unlink(missing_ok=True)
            (self.work / output).parent.mkdir(parents=True, exist_ok=True)
            resume = ["--resume=auto"] if (self.work / (output + ".run")).exists() else []
        begin = time.monotonic()
        found = {"command": ["regroup", *arguments],
                 **self.run_(arguments, resume, may_refuse),
                 "seconds": round(time.monotonic() - begin, 3)}
        if output is not None:
            shutil.rmtree(self.work / (output + ".run"), ignore_errors=True)
        write_atomically(path, json.dumps(found, indent=1) + "\n")
        return found

    def run_(self, arguments, resume, may_refuse):
        command = [self.executable, *arguments, *resume, *self.machine_options_(arguments)]
        process = self.start_([*command, "--json", "--quiet"])
        out, err = process.communicate()
        with self.lock_:
            self.running_.discard(process)
        if process.returncode == 0:
            return {"report": json.loads(out)}
        if self.stopping_:
            raise Stopped
        if may_refuse and process.returncode in (WRONG_USAGE, BAD_INPUT):
            return {"refused": err.strip()}
        raise CommandFailed(f"exit code {process.returncode}: {' '.join(command)}\n{err.strip()}")

    def machine_options_(self, arguments):
        """The options that say where to compute, and that texts are not judged. They are not part of the record."""
        command, options = arguments[0], []
        # Commands that only move heads do not use a device.
        computes = command != "convert" or {"--refit", "--kv-budget", "--text", "--sample"} & set(arguments)
        if self.has_option(command, "--threads"):
            options += ["--threads", str(self.threads)]
        if self.device != "cpu" and computes and self.has_option(command, "--device"):
            options += ["--device", self.device]
        # Also texts that a barely trained model does not predict.
        reads = command == "calibrate" or {"--refit", "--kv-budget", "--text"} & set(arguments)
        if reads and self.has_option(command, "--allow-any-text"):
            options += ["--allow-any-text"]
        return options

    def start_(self, command):
        # In its own session, so that Ctrl-C reaches it once, through stop().
        with self.lock_:
            if self.stopping_:
                raise Stopped
            process = subprocess.Popen(
                command, cwd=self.work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, text=True, start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": str(self.threads)})
            self.running_.add(process)
            return process

    def stop(self):
        """Stops running commands like Ctrl-C, and prevents new ones."""
        with self.lock_:
            self.stopping_ = True
            for process in self.running_:
                process.send_signal(signal.SIGTERM)
