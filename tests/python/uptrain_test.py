"""regroup.uptrain(): steps, Ctrl-C, and exceptions in callbacks."""

import array
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

import program
import regroup

STEPS = 60

# Is interrupted as a terminal does it: SIGINT to all processes of its group. One a second later would end the program at once.
INTERRUPTED = """
import os, regroup, signal, sys, threading
from uptrain_test import run_of
def on_step(line):
    if line["step"] == 5:
        threading.Timer(0.02, lambda: os.killpg(0, signal.SIGINT)).start()
try:
    regroup.uptrain(**run_of(sys.argv[1], "stopped", steps=100000), on_step=on_step)
except regroup.StateSaved as stopped:
    print(stopped)
"""

KILLED = """
import os, regroup, signal, sys, threading, time
from regroup import _program
from uptrain_test import run_of
start = _program._start
def print_and_start(*given):
    child = start(*given)
    print(child.pid, flush=True)
    return child
_program._start = print_and_start
for _ in range(8):  # as a notebook has them
    threading.Thread(target=time.sleep, args=[60], daemon=True).start()
def on_step(line):
    if line["step"] == 5:
        os.kill(os.getpid(), signal.SIGKILL)
regroup.uptrain(**run_of(sys.argv[1], "stopped", steps=100000), on_step=on_step)
"""


def put_tokens(path):
    path.write_bytes(array.array("H", [(i * i // 7) % 64 for i in range(3000)]).tobytes())


def run_of(folder, output, **options):
    folder = pathlib.Path(folder)
    return {
        "model": program.GOLDEN / "llama",
        "output": folder / output,
        "data": folder / "tokens.bin",
        "steps": STEPS,
        "context": 12,
        "batch": 2,
        "threads": 1,
        "seed": 5,
        **options,
    }


def is_running(process):
    try:
        stat = pathlib.Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


class Uptrain(unittest.TestCase):
    def setUp(self):
        self.scratch = program.Scratch()
        self.addCleanup(self.scratch.cleanup)
        put_tokens(self.scratch / "tokens.bin")

    def run_here(self, output, **options):
        return regroup.uptrain(**run_of(self.scratch.name, output, **options))

    def weights(self, output):
        return (self.scratch / output / "model.safetensors").read_bytes()

    def test_each_step_is_a_line_of_the_metrics(self):
        lines, progress = [], []
        report = self.run_here("out", eval_data=self.scratch / "tokens.bin", eval_max_tokens=120, on_step=lines.append,
                               on_progress=progress.append)
        self.assertTrue(any("evaluating, window" in line.get("detail", "") for line in progress), progress)
        self.assertEqual(report["evaluations"]["tokens"], 120)
        metrics = (self.scratch / "out.run/metrics.jsonl").read_text().splitlines()
        self.assertEqual(lines, [json.loads(line) for line in metrics])
        self.assertEqual([line["step"] for line in lines if "loss" in line], list(range(1, STEPS + 1)))
        self.assertEqual(report["after"]["loss"], lines[-1]["eval_loss"])

    def states(self):
        return list((self.scratch / "stopped.run").glob("state-*"))

    def run_in_another_python(self, code):
        return subprocess.run(
            [sys.executable, "-B", "-c", code, self.scratch.name],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            start_new_session=True,
            check=False,
        )

    def test_ctrl_c_saves_the_state_and_the_run_can_be_resumed(self):
        done = self.run_in_another_python(INTERRUPTED)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--resume", done.stdout)
        self.assertFalse((self.scratch / "stopped").exists())
        self.assertTrue(self.states())

    def test_the_program_stops_with_its_state_saved_if_python_is_killed(self):
        done = self.run_in_another_python(KILLED)
        self.assertEqual(done.returncode, -signal.SIGKILL, done.stderr)
        latest = time.monotonic() + 60
        while is_running(int(done.stdout)):
            self.assertLess(time.monotonic(), latest)
            time.sleep(0.01)
        self.assertTrue(self.states())

    def test_an_exception_of_a_callback_stops_the_run_with_its_state_saved(self):
        def on_step(line):
            if line["step"] == 5:
                raise ZeroDivisionError

        with self.assertRaises(ZeroDivisionError):
            self.run_here("stopped", on_step=on_step)
        self.assertFalse((self.scratch / "stopped").exists())
        steps = []
        self.run_here("stopped", resume=True, on_step=lambda line: steps.append(line["step"]))
        self.assertGreater(steps[0], 5)
        self.run_here("whole")
        self.assertEqual(self.weights("stopped"), self.weights("whole"))

    def test_a_complete_run_is_left_alone_by_resume_auto(self):
        self.run_here("out")
        self.assertEqual(
            self.run_here("out", resume="auto"), {"output": str(self.scratch / "out"), "complete": True}
        )


if __name__ == "__main__":
    unittest.main()
