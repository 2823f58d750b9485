#!/usr/bin/env python3
"""Runs both studies at their smallest scale twice. Checks that every cell exists, and that the second run, which finds
everything done, writes the same report."""
import argparse
import concurrent.futures
import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from pathlib import Path

from program import Program

STUDY = Path(__file__).with_name("quality.py")
KINDS = ("rope", "t5")


def run_study(options, work):
    subprocess.run([sys.executable, STUDY, "--smoke", "--kinds", ",".join(KINDS), "--work", work,
                    "--regroup", options.regroup, "--text", *options.text, "--other-text",
                    *options.other_text, "--jobs", "2"], check=True)
    report = work / "report"
    return {path.name: path.read_bytes() for path in report.iterdir()}


def check(truth, what):
    if not truth:
        sys.exit(f"smoke: {what}")


def check_shared_record(work):
    """Two tasks that need the same model at the same time: one makes it, the other waits for it."""
    work.mkdir()
    command = work / "regroup"
    command.write_text("#!/bin/sh\n[ $2 != --help ] || exit 0\necho run >>runs; sleep 0.5; echo '{}'\n", encoding="utf-8")
    command.chmod(0o755)
    program = Program(command, work, "cpu", 1)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        tasks = [pool.submit(program.run_once, "model.json", ["convert", "a", "b"], "b") for _ in range(2)]
        records = [task.result() for task in tasks]
    check(records[0] == records[1], "two tasks read two records of one command")
    check((work / "runs").read_text(encoding="utf-8") == "run\n", "two tasks ran one command at the same time")


def check_cells(report):
    by_cell = {(cell["kind"], cell["method"], cell["alpha"]): cell for cell in report["cells"]}
    check(len(by_cell) == len(report["cells"]), "a cell appears twice")
    for kind in KINDS:
        for method in ("mean", "first", "random", "lowrank", "lowrank-calibrated", "lowrank-other-text"):
            check((kind, method, 0.0) in by_cell, f"no cell {kind}, {method}")
        for method in ("source", "mean", "lowrank-calibrated"):
            check((kind, method, 0.05) in by_cell, f"no uptrained cell {kind}, {method}")
        steps, left = {"rope": (10, 1), "t5": (20, 3)}[kind]  # of 200 steps, and of twice as many
        check(by_cell[kind, "mean", 0.05]["uptraining_steps"] == steps, f"{kind}: not {steps}")
        check(by_cell[kind, "lowrank-calibrated", "total"]["uptraining_steps"] == left,
              f"{kind}: the calibration takes a part of one step")
    check({target["point"] for target in report["targets"]} >= {1, 2, 4}, "targets are missing")


def check_gqa_paper(options, work):
    subprocess.run([sys.executable, STUDY.with_name("gqa_paper.py"), "--work", work, "--regroup", options.regroup, "--shape",
                    work / "rope-1", "--batch", "1", "--context", "16"], check=True)
    xml.etree.ElementTree.fromstring((work / "report/gqa_paper.svg").read_bytes())
    lines = (work / "report/gqa_paper.md").read_text(encoding="utf-8").splitlines()
    check(any(line.startswith("| mean | 4 | ") and "–" not in line for line in lines), "gqa_paper.py has no losses of the mean")
    check(sum(line.endswith("| 1.00 |") and line.startswith("| 8 |") for line in lines) == 2, "gqa_paper.py has no times of MHA")


def check_tokens(options, work):
    """Tokens of a tokenizer instead of bytes: fewer, from its vocabulary. Bytes are refused there afterwards."""
    tokenizer = json.loads(options.byte_tokenizer.read_text(encoding="utf-8"))
    tokenizer["model"]["vocab"] |= {"he": 256, "\u0120t": 257}
    tokenizer["model"]["merges"] = ["h e", "\u0120 t"]
    work.mkdir()
    (work / "merges.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    command = [sys.executable, STUDY, "--smoke", "--kinds", "rope", "--only", "pretrain", "--work", work, "--regroup", options.regroup,
               "--text", *options.text, "--other-text", *options.other_text]
    subprocess.run([*command, "--tokenizer", work / "merges.json"], check=True)
    config = json.loads((work / "rope-1/config.json").read_text(encoding="utf-8"))
    check(config["vocab_size"] == 258, "the models do not have the tokenizer's vocabulary")
    held_out = sum(Path(text).stat().st_size for text in options.text) // 10
    check(0 < (work / "data/held-out.bin").stat().st_size // 2 < held_out, "the text was not cut into tokens")
    refused = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    check(refused.returncode == 1 and "requested is" in refused.stderr, "bytes were taken for tokens")


def run_extrapolation(options, work):
    subprocess.run([sys.executable, STUDY.with_name("extrapolation.py"), "--length", "smoke", "--kinds", "rope,t5",
                    "--ratios", "4", "--work", work, "--regroup", options.regroup, "--text", *options.text, "--jobs", "2"],
                   check=True)
    return {path.name: path.read_bytes() for path in (work / "smoke/report").iterdir()}


def check_extrapolation(options, work):
    first = run_extrapolation(options, work)
    cells = json.loads(first["extrapolation.json"])
    read = {(cell["kind"], cell["positions"], cell["scaling"], cell["method"], cell["ratio"], cell["alpha"]) for cell in cells}
    check(len(read) == len(cells) == 3 * 6 + 4 + 6, "models of extrapolation.py are missing")
    for scaling in ("", "linear", "yarn"):
        check(("rope", "keep", scaling, "lowrank-calibrated", 4, 0.05) in read, f"no grouped model read with {scaling}")
    losses = {cell["scaling"]: cell["losses"] for cell in cells if cell["kind"] == "rope" and cell["alpha"] == 0
              and cell["method"] == "source"}
    check(len({values[-1] for values in losses.values()}) == 3, "the scalings of RoPE do not differ beyond the training length")
    xml.etree.ElementTree.fromstring(first["extrapolation.svg"])
    check(run_extrapolation(options, work) == first, "a second run writes another report")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--regroup", required=True, type=Path)
    parser.add_argument("--text", nargs="+", required=True)
    parser.add_argument("--other-text", nargs="+", required=True)
    parser.add_argument("--byte-tokenizer", required=True, type=Path, help="tokenizer.json with a token for each byte")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        check_shared_record(Path(folder) / "shared")
        work = Path(folder) / "study"
        first = run_study(options, work)
        records = {path: path.stat().st_mtime_ns for path in work.rglob("*.eval.json")}
        check_cells(json.loads(first["quality.json"]))
        table = first["quality.md"].decode()
        check("| –" not in table and "## Targets" in table, "the table has empty cells")
        xml.etree.ElementTree.fromstring(first["quality.svg"])
        check(run_study(options, work) == first, "a second run writes another report")
        check({path: path.stat().st_mtime_ns for path in work.rglob("*.eval.json")} == records,
              "a second run measures again")
        check_gqa_paper(options, work)
        check_tokens(options, Path(folder) / "tokens")
        check_extrapolation(options, Path(folder) / "lengths")


if __name__ == "__main__":
    main()
