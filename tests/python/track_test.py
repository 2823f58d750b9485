"""regroup.track passes the metrics of a run to tracking packages: read back by TensorBoard's own reader, and in the calls that the others document."""

import contextlib
import importlib.util
import io
import json
import sys
import threading
import time
import types
import unittest
import unittest.mock

import program
import regroup
from regroup import track

LINES = [
    {"step": 0, "eval_loss": 5.0, "eval_perplexity": None, "eval_tokens": 100},
    {"step": 1, "loss": 4.0, "lr": 1e-3, "seconds": 0.5, "skipped": False},
    {"step": 2, "loss": None, "lr": 1e-3, "seconds": 0.5, "skipped": True},
    {"step": 2, "eval_loss": 3.5, "eval_perplexity": 33.1, "eval_tokens": 100},
]


def text_of(lines):
    return "".join(json.dumps(line) + "\n" for line in lines)


class Recorder(types.ModuleType):
    """A module that records the calls of its functions."""

    def __init__(self, name):
        super().__init__(name)
        self.calls = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *given, **named: self.calls.append((name, given, named))


class Tracking(unittest.TestCase):
    def setUp(self):
        self.scratch = program.Scratch()
        self.addCleanup(self.scratch.cleanup)
        self.run_folder = self.scratch / "out-1.5b.run"
        self.run_folder.mkdir()
        (self.run_folder / "run.json").write_text('{"recipe": {"batch": 8, "optimizer": "adamw"}}')
        self.metrics = self.run_folder / "metrics.jsonl"
        self.metrics.write_text(text_of(LINES) + '{"step": 3, "lo')

    def recorded(self, name, run=None, **options):
        module = Recorder(name)
        with unittest.mock.patch.dict(sys.modules, {name: module}):
            track.track(run or self.run_folder, name, **options)
        return module.calls

    @unittest.skipUnless(importlib.util.find_spec("tensorboard"), "needs tensorboard")
    def test_tensorboard_reads_what_was_written(self):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        self.assertEqual(track.track(self.scratch / "out-1.5b", "tensorboard"), 4)
        events = EventAccumulator(str(self.run_folder / "tensorboard"))
        events.Reload()
        self.assertEqual(set(events.Tags()["scalars"]), {"train/loss", "train/lr", "train/seconds", "train/skipped", "eval/loss",
                                                         "eval/perplexity", "eval/tokens"})
        self.assertEqual([(each.step, each.value) for each in events.Scalars("eval/loss")], [(0, 5.0), (2, 3.5)])
        self.assertEqual([(each.step, each.value) for each in events.Scalars("train/loss")], [(1, 4.0)])
        first, second = events.Scalars("train/lr")
        self.assertAlmostEqual(second.wall_time - first.wall_time, 0.5, 3)
        with self.assertRaisesRegex(regroup.UsageError, "--into"):
            track.track(self.run_folder, "tensorboard")

    def test_the_others_get_the_calls_that_they_document(self):
        values = [track.values_of(line) for line in LINES]
        self.assertEqual(values[0], {"eval/loss": 5.0, "eval/tokens": 100.0})
        config = {"batch": 8, "optimizer": "adamw"}
        for name in ("wandb", "trackio"):
            calls = self.recorded(name, project="p")
            self.assertEqual(calls[0], ("init", (), {"project": "p", "name": "out-1.5b", "config": config}))
            self.assertEqual(calls[1:-1], [("log", (value,), {"step": line["step"]}) for value, line in zip(values, LINES)])
            self.assertEqual(calls[-1], ("finish", (), {}))
        calls = self.recorded("mlflow")
        self.assertEqual([name for name, _, _ in calls], ["set_experiment", "start_run", "log_params", *["log_metrics"] * 4, "end_run"])
        self.assertEqual(calls[4], ("log_metrics", (values[1],), {"step": 1}))

    def test_a_run_is_followed_until_it_is_complete(self):
        self.metrics.write_text(text_of(LINES[:2]))

        def go_on():
            time.sleep(1.2)
            self.metrics.write_text(text_of(LINES[:1]))  # cut by a resumed run, which repeats step 1
            time.sleep(1.2)
            self.metrics.write_text(text_of(LINES))
            (self.scratch / "out-1.5b").mkdir()

        thread = threading.Thread(target=go_on)
        thread.start()
        calls = self.recorded("trackio", follow=True)
        thread.join()
        self.assertEqual([named["step"] for name, _, named in calls if name == "log"], [0, 1, 2, 2])

    def test_it_is_a_callback_of_uptrain(self):
        module = Recorder("wandb")
        tokens = self.scratch / "corpus.bin"
        tokens.write_bytes(b"".join((4 + i % 30).to_bytes(2, "little") for i in range(3000)))
        with unittest.mock.patch.dict(sys.modules, {"wandb": module}), track.Tracker("wandb", name="a") as tracker:
            regroup.uptrain(program.GOLDEN / "llama", self.scratch / "up", data=tokens, steps=3, sequence=12, on_step=tracker)
        self.assertEqual([named["step"] for name, _, named in module.calls if name == "log"], [1, 2, 3])

    def test_what_is_wrong_is_one_line(self):
        def said(*words):
            printed = io.StringIO()
            with contextlib.redirect_stderr(printed):
                code = track.main([*map(str, words)])
            self.assertEqual(printed.getvalue().count("\n"), 1)
            return code, printed.getvalue()

        self.assertEqual(said(self.scratch / "none", "--to", "wandb")[0], 3)
        with unittest.mock.patch.dict(sys.modules, {"trackio": None}):
            code, text = said(self.run_folder, "--to", "trackio")
        self.assertEqual(code, 4)
        self.assertIn("pip install trackio", text)
        self.metrics.write_text("[1]\n")
        with unittest.mock.patch.dict(sys.modules, {"wandb": Recorder("wandb")}):
            self.assertEqual(said(self.run_folder, "--to", "wandb")[0], 3)


if __name__ == "__main__":
    unittest.main()
