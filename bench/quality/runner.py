"""What the studies share: options that are lists, tasks that run beside each other, a folder with one user."""
import argparse
import concurrent.futures
import contextlib
import fcntl
import signal
import sys
import time

from program import CommandFailed, Stopped


def comma_list(convert_item, allowed):
    def parse(text):
        items = [convert_item(item) for item in text.split(",")]
        unknown = [item for item in items if allowed and item not in allowed]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]} is not one of "
                                             f"{', '.join(map(str, allowed))}")
        return items
    return parse


class Runner:
    """Runs tasks a few at a time and shows progress."""

    def __init__(self, jobs, program):
        self.jobs = jobs
        self.program = program
        self.begin = time.monotonic()

    def run(self, stage, tasks):
        """`tasks` are (label, function) pairs. A function returns the record of an evaluation, or None. Ends with the
        first function that fails."""
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            futures = {pool.submit(task): label for label, task in tasks}
            try:
                for done, future in enumerate(concurrent.futures.as_completed(futures), 1):
                    self.tell(f"{stage} {done}/{len(tasks)}: {futures[future]}"
                              f"{outcome(future.result())}")
            except BaseException:  # a failure or Ctrl-C: running commands are stopped and save their state
                for future in futures:
                    future.cancel()
                self.program.stop()
                raise

    def tell(self, text):
        print(f"[{time.monotonic() - self.begin:6.0f} s] {text}", file=sys.stderr, flush=True)


def outcome(record):
    if record is None:
        return ""
    if "refused" in record:
        return f": refused, {record['refused']}"
    return f": loss {record['report']['loss']:.4f}" if "loss" in record["report"] else ""


@contextlib.contextmanager
def only_user_of(work):
    """Two studies in one folder would treat each other's unfinished files as leftovers."""
    work.mkdir(parents=True, exist_ok=True)
    with open(work / "lock", "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as fault:
            raise CommandFailed(f"{work}: another study runs in this folder") from fault
        yield


def exit_code_of(name, work):
    """Runs a study; what stops it is one line on stderr."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        work()
    except (KeyboardInterrupt, Stopped):
        print(f"{name}: stopped; the same command continues", file=sys.stderr)
        return 130
    except (CommandFailed, OSError) as fault:
        print(f"{name}: {fault}", file=sys.stderr)
        return 1
    return 0
