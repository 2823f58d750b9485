"""Runs the regroup binary, and converts a script's checks into its exit code: 0 passed, 1 failed, 77 skipped."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import traceback

import checkpoints
import numpy as np

TOLERANCE = 1e-4  # float32 against float32, logits of order 1 to 10


class Failure(Exception):
    pass


def expect(holds, message):
    if not holds:
        raise Failure(message)


class Regroup:
    def __init__(self, binary):
        expect(os.access(binary, os.X_OK), f"--regroup {binary}: no such program")
        self.binary = os.path.abspath(binary)

    def run(self, *arguments):
        command = [self.binary, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        expect(done.returncode == 0, f"exit code {done.returncode} from {' '.join(command)}\n{done.stderr.strip()}")
        return done.stdout

    def convert(self, source, target, kv_heads, *options):
        """`kv_heads` is a number, or a list with one per layer."""
        per_layer = kv_heads if isinstance(kv_heads, list) else [kv_heads]
        self.run("convert", source, target, "--kv-heads", ",".join(map(str, per_layer)), *options)

    def inspect(self, directory):
        return json.loads(self.run("inspect", directory, "--json"))

    def logits(self, directory, tokens):
        """Logits [windows, T, V] of tokens [windows, T], computed in float32 on the CPU."""
        with tempfile.TemporaryDirectory() as scratch:
            data, out = pathlib.Path(scratch, "tokens.bin"), pathlib.Path(scratch, "logits.safetensors")
            tokens.astype("<u2").tofile(data)
            options = ["--context", tokens.shape[1], "--device", "cpu", "--dtype", "fp32", "--write-logits", out, "--json"]
            report = self.run("eval", directory, "--data", data, *options)
            json.loads(report)
            tensors, _ = checkpoints.read_file(out)
        return checkpoints.floats(tensors["logits"])


def largest_difference(ours, theirs):
    expect(ours.shape == theirs.shape, f"logits of shape {ours.shape}, expected {theirs.shape}")
    expect(np.isfinite(ours).all(), "logits that are not finite")
    return float(np.abs(ours.astype(np.float64) - theirs).max())


def expect_same_logits(ours, theirs, what):
    difference = largest_difference(ours, theirs)
    expect(difference <= TOLERANCE, f"{what}: logits differ by {difference:.3g}, allowed {TOLERANCE:g}")
    print(f"  {what}: logits within {difference:.2g}")


def run_script(description, check):
    """Runs check(regroup, scratch), which raises an exception on failure. Does not return."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--regroup", required=True, metavar="PATH", help="the binary to test")
    binary = parser.parse_args().regroup
    with tempfile.TemporaryDirectory(prefix="regroup-interop-") as scratch:
        try:
            check(Regroup(binary), pathlib.Path(scratch))
        except Failure as failure:
            print(f"FAILED: {failure}", file=sys.stderr)
            sys.exit(1)
        except Exception:  # such as a directory that transformers refuses, or a missing file or key
            traceback.print_exc()
            sys.exit(1)
    print("passed")
    sys.exit(0)
