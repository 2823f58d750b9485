"""The package regroup: options, reports and errors are the program's."""

import contextlib
import fractions
import inspect
import io
import json
import os
import pathlib
import pickle
import re
import runpy
import signal
import subprocess
import sys
import unittest
import unittest.mock

import program
import regroup
from regroup import _program
from regroup._program import words_of

LLAMA = program.GOLDEN / "llama"
ROOT = program.GOLDEN.parents[1]
# They print text for shells, or a file to be corrected by hand.
WITHOUT_FUNCTION = {"help", "completions", "manual"}
CALLBACKS = {"on_progress", "on_step"}


def printed_by(*words):
    done = subprocess.run([regroup.program(), *map(str, words)], capture_output=True, check=True)
    return json.loads(done.stdout)


class TheFunctions(unittest.TestCase):
    commands = program.commands()

    def test_every_command_is_a_function(self):
        names = {name.replace(" ", "_") for name in self.commands.keys() - WITHOUT_FUNCTION}
        functions = {name for name in regroup.__all__ if inspect.isfunction(getattr(regroup, name))} - {"help", "program"}
        self.assertEqual(functions, names)

    def test_parameters_are_positional_arguments_and_options_of_the_command(self):
        for name in self.commands.keys() - WITHOUT_FUNCTION:
            with self.subTest(name):
                command = self.commands[name]
                parameters = inspect.signature(getattr(regroup, name.replace(" ", "_"))).parameters
                named = [each for each in parameters if each not in CALLBACKS | {"quiet", "verbose"}]
                self.assertEqual(named[: len(command.positionals)], command.positionals)
                self.assertNotIn("options", named)
                for option in named[len(command.positionals) :]:
                    self.assertIn("--" + option.replace("_", "-"), command.options)

    def test_each_says_what_prints_its_options(self):
        for name in self.commands.keys() - WITHOUT_FUNCTION:
            name = name.replace(" ", "_")
            lines = inspect.getdoc(getattr(regroup, name)).splitlines()
            self.assertEqual(lines[-1], f'`regroup.help("{name}")` says what each option does.')
            self.assertFalse(lines[0].endswith("options."))

    def test_the_options_with_special_rules_are_the_program_s(self):
        pairs, words = set(), set()
        for command in self.commands.values():
            flags = {option for option, value in command.options.items() if not value}
            pairs |= {option[5:] for option in flags if option.startswith("--no-") and "--" + option[5:] in flags}
        self.assertEqual(_program.NEGATED_BY_FALSE, pairs)
        for command in printed_by("manual", "--json"):
            for option in command["options"]:
                if option["value"] == "BOOLEAN":
                    words.add(option["names"][0].removeprefix("--").replace("-", "_"))
        self.assertEqual(_program.TAKES_TRUE_OR_FALSE, words)


    def test_the_lists_of_options_are_the_program_s(self):
        for name, text_of in runpy.run_path(str(ROOT / "scripts/option-lists"))["FILES"].items():
            self.assertEqual((ROOT / name).read_text(), text_of(regroup.program()),
                             "run scripts/option-lists build/release/regroup")

    def test_the_version_is_the_program_s(self):
        printed = subprocess.run([regroup.program(), "--version"], capture_output=True, text=True, check=True).stdout
        self.assertRegex(printed, rf"^regroup {re.escape(regroup.__version__)}\nbuilt with \S+ [\d.]+, .*LibTorch.*\n$")


class KeywordArguments(unittest.TestCase):
    def test_they_become_options(self):
        for options, words in [
            ({"kv_heads": 8}, ["--kv-heads=8"]),
            ({"kv_heads": [8, 8, 4]}, ["--kv-heads=8,8,4"]),
            ({"alpha": 0.05, "lr": 1e-5}, ["--alpha=0.05", "--lr=1e-05"]),
            ({"data": ["a.bin:0.7", pathlib.Path("b.bin")]}, ["--data=a.bin:0.7", "--data=b.bin"]),
            ({"dry_run": True, "stats": False, "pool": None}, ["--dry-run"]),
            ({"bos": False, "eos": True}, ["--no-bos", "--eos"]),
            ({"scale_by_parameter": False}, ["--scale-by-parameter=false"]),
            ({"resume": True}, ["--resume"]),
            ({"resume": "auto"}, ["--resume=auto"]),
            ({"kv_heads": fractions.Fraction(8), "layers": (fractions.Fraction(1), 2)}, ["--kv-heads=8", "--layers=1,2"]),
        ]:
            self.assertEqual(words_of(options), words)

    def test_values_that_are_none_of_an_option_are_refused(self):
        self.assertEqual(words_of({"data": b"a\xff.bin"}), ["--data=a\udcff.bin"])
        for value in ({"a.bin": 0.7}, [], object(), [None]):
            with self.assertRaisesRegex(regroup.UsageError, "^data: .* is no value of an option"):
                words_of({"data": value})

    def test_a_flag_s_value_for_another_option_is_refused(self):
        for options in ({"kv_heads": True}, {"kv_heads": True, "text": "a.txt"}, {"quiet": True, "kv_heads": True}):
            with self.assertRaisesRegex(regroup.UsageError, "^kv_heads needs a value, not True$"):
                regroup.convert(LLAMA, "nowhere", **options)

    def test_a_flag_that_is_switched_off_is_named_as_it_was_written(self):
        with self.assertRaisesRegex(regroup.UsageError, "bos=False is not an option"):
            regroup.inspect(LLAMA, bos=False)
        with self.assertRaisesRegex(regroup.UsageError, "no_graphs is not an option"):
            regroup.inspect(LLAMA, no_graphs=True)
        with self.assertRaisesRegex(regroup.UsageError, "model: an empty value"):
            regroup.inspect("")

    def test_a_wrong_choice_is_refused_by_its_name(self):
        for function, operands, options in [
            (regroup.convert, [LLAMA, "nowhere"], {"pool": "median"}),
            (regroup.convert, [LLAMA, "nowhere"], {"to": "median"}),
            (regroup.inspect, [LLAMA], {"sort": "median"}),
            (regroup.eval, [LLAMA], {"documents": "median"}),
        ]:
            with self.assertRaisesRegex(regroup.UsageError, f'{[*options][0]}: "median" is none of') as found:
                function(*operands, **options)
            self.assertNotIn("--", str(found.exception))

    def test_unknown_ones_are_refused_with_the_nearest_name(self):
        with self.assertRaisesRegex(regroup.UsageError, "kv_head is not an option; did you mean kv_heads") as found:
            regroup.convert(LLAMA, "nowhere", kv_head=2)
        self.assertEqual(found.exception.exit_code, 2)

    def test_help_names_options_as_keyword_arguments(self):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            regroup.help("convert")
        options = [line for line in printed.getvalue().splitlines() if " regroup " not in line and "  " in line[:2]]
        self.assertTrue(any(line.startswith("  kv_heads COUNT") for line in options))
        self.assertFalse([line for line in options if "--kv-heads" in line])
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            regroup.help("bench_train")
        self.assertIn("Usage: regroup bench train", printed.getvalue())
        with self.assertRaisesRegex(regroup.UsageError, "not a command; did you mean convert"):
            regroup.help("convrt")

    def test_those_that_the_functions_set_are_refused(self):
        for name in _program.NOT_FOR_CALLERS:
            with self.assertRaisesRegex(regroup.UsageError, f"{name} is no option of the function"):
                regroup.inspect(LLAMA, **{name: True})
        with self.assertRaisesRegex(regroup.UsageError, "with quiet=True there is no progress"):
            regroup.inspect(LLAMA, quiet=True, on_progress=print)

    def test_paths_may_begin_with_a_dash(self):
        with self.assertRaisesRegex(regroup.BadInputError, "^-x: "):
            regroup.inspect("-x")


class Reports(unittest.TestCase):
    def test_they_are_what_json_prints(self):
        with program.Scratch() as scratch, self.assertLogs("regroup") as notes:
            grouped = pathlib.Path(scratch) / "grouped"
            report = regroup.convert(LLAMA, grouped, kv_heads=2)
            self.assertEqual((report["kv_heads"], report["dry_run"]), (2, False))
            for function, words in [
                (regroup.inspect, [LLAMA]),
                (regroup.plan, [LLAMA]),
                (regroup.verify, [LLAMA, grouped]),
                (regroup.diff, [grouped, grouped]),
            ]:
                self.assertEqual(function(*words), printed_by(function.__name__, *words, "--json"))
        self.assertTrue(any("WARNING" in note and "method mean" in note for note in notes.output))

    def test_options_with_values_and_flags_reach_the_program(self):
        report = regroup.inspect(LLAMA, layers=True, context="1k")
        self.assertEqual(report, printed_by("inspect", LLAMA, "--layers", "--context", "1024", "--json"))

    def test_progress_is_reported(self):
        with program.Scratch() as scratch:
            lines = []
            regroup.convert(LLAMA, pathlib.Path(scratch) / "a", kv_heads=2, on_progress=lines.append)
            self.assertEqual({line["progress"] for line in lines}, {"convert"})
            self.assertEqual(lines[-1]["done"], lines[-1]["total"])

    def test_a_message_that_looks_like_progress_is_a_message(self):
        script = """echo '{"step": 1, not JSON' >&2; echo '{out} is complete' >&2; echo '{"same": true}'"""
        with a_program(script), self.assertLogs("regroup") as notes:
            self.assertEqual(regroup.diff("a", "b", on_progress=self.fail), {"same": True})
        self.assertEqual(len(notes.output), 2)


def result_of(script, stdin=b"", **environment):
    """What a Python process prints that runs `script`."""
    words = [sys.executable, "-B", "-c", script]
    return subprocess.run(
        words, input=stdin, stdout=subprocess.PIPE, check=True, timeout=60, env={**os.environ, **environment}).stdout


class TheChildProcess(unittest.TestCase):
    def test_reads_standard_input_wherever_it_is_named(self):
        with program.Scratch() as scratch:
            (pathlib.Path(scratch) / "last").write_bytes(b"last")
            for i, first in enumerate(("-", "/dev/stdin")):
                script = f"import regroup; regroup.tokenize([{first!r}, 'last'], '{i}.bin', tokenizer='bytes')"
                result_of(f"import os; os.chdir({scratch!r}); {script}", b"first")
                text = (pathlib.Path(scratch) / f"{i}.bin").read_bytes()[::2]  # of each token, its lower byte
                self.assertLess(text.find(b"first"), text.find(b"last"))
                self.assertIn(b"first", text)

    def test_is_followed_to_its_end_after_it_has_closed_stderr(self):
        script = """
import os, regroup, signal, threading, time
threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()
try:
    regroup.inspect("a")
except KeyboardInterrupt:
    print("stopped")
"""
        with a_program("exec 2>&-; exec sleep 50"):
            self.assertEqual(result_of(script), b"stopped\n")


@contextlib.contextmanager
def a_program(script):
    """Runs a shell script in place of the program."""
    with program.Scratch() as scratch:
        path = pathlib.Path(scratch) / "regroup"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o700)
        with unittest.mock.patch.dict("os.environ", REGROUP_PROGRAM=str(path)):
            yield


class Errors(unittest.TestCase):
    def test_the_exit_code_is_the_kind(self):
        with self.assertRaisesRegex(regroup.BadInputError, "^nowhere: no such file") as found:
            regroup.inspect("nowhere")
        self.assertEqual(found.exception.exit_code, 3)
        with self.assertRaises(regroup.EnvironmentFailedError):
            regroup.convert(LLAMA, "/proc/none/out", kv_heads=2)
        with self.assertRaises(regroup.UsageError):
            regroup.expand(LLAMA, "nowhere", kv_heads=5)

    def test_a_program_that_is_not_there_is_an_error(self):
        with unittest.mock.patch.dict("os.environ", REGROUP_PROGRAM="/nowhere/regroup"):
            with self.assertRaisesRegex(regroup.EnvironmentFailedError, "/nowhere/regroup is not a program"):
                regroup.inspect(LLAMA)

    def test_the_module_is_the_program(self):
        printed = subprocess.run([sys.executable, "-m", "regroup", "--version"], capture_output=True, text=True, check=True)
        self.assertTrue(printed.stdout.startswith(f"regroup {regroup.__version__}\n"))

    def test_a_wrong_choice_is_named_with_the_right_ones(self):
        with self.assertRaisesRegex(regroup.UsageError, "lowrnk.*mean, first, random, lowrank"):
            regroup.convert(LLAMA, "nowhere", kv_heads=2, pool="lowrnk")
        with self.assertRaisesRegex(AttributeError, "'convrt'; did you mean convert"):
            regroup.convrt

    def test_a_signal_is_named_instead_of_the_last_message(self):
        with a_program("echo 'warning: of something else' >&2; kill -KILL $$"), self.assertLogs("regroup"):
            with self.assertRaisesRegex(regroup.RegroupError, "^regroup was ended by signal 9") as found:
                regroup.inspect(LLAMA)
        self.assertEqual(found.exception.exit_code, -signal.SIGKILL)

    def test_they_reach_other_processes(self):
        for error in (regroup.BadInputError("a line", 3), regroup.DifferenceFoundError("a line", 5, {"same": False})):
            copy = pickle.loads(pickle.dumps(error))
            self.assertEqual((str(copy), vars(copy)), ("a line", vars(error)))

    def test_a_difference_has_the_report(self):
        self.assertFalse(regroup.diff(LLAMA, program.GOLDEN / "llama_mha")["same"])
        with program.Scratch() as scratch:
            grouped = pathlib.Path(scratch) / "grouped"
            regroup.convert(LLAMA, grouped, kv_heads=2)
            with open(grouped / "model.safetensors", "r+b") as weights:
                weights.seek(-4, os.SEEK_END)
                weights.write(b"\1\2\3\4")
            with self.assertRaises(regroup.DifferenceFoundError) as found:
                regroup.verify(LLAMA, grouped)
        self.assertTrue(found.exception.report["tensors"])
        self.assertEqual(found.exception.exit_code, 5)


if __name__ == "__main__":
    unittest.main()
