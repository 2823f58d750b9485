#!/usr/bin/env python3
"""How much of a model comes back with how many tokens of training: loss, divergence and right answers for several methods.

    python3 bench/real/curve.py SOURCE WORK --given wiki.valid.raw --text wikitext=wiki.test.raw --text shakespeare=input.txt \\
        --points "own:65536 own:1048576 mean:1048576" --device cuda

SOURCE is a Hugging Face directory with a chat template. A point is METHOD:TOKENS or METHOD:TOKENS:RATE. The methods:

    given    lowrank, distilled on the given text
    own      lowrank, distilled on the given text and as much that the source wrote itself, the default of convert --text
    mean     mean heads, distilled on the same
    all      as own, but all weights are trained
    67%      as own, with that share of the source's cache (--kv-budget) instead of one kv head

The given text is read four times at most; the source's own text takes the rest. Each point is measured as by mind.py and kept in
WORK/points.jsonl; points that are there are not measured again. Prints a table in Markdown. --jobs points are measured at a time;
none is begun --seconds after the start. --svg draws right answers and divergence by tokens, a line for each method.
"""

import argparse
import concurrent.futures
import json
import pathlib
import subprocess
import threading
import time

import chart
import mind

CONTEXT = 512
NAMES = {"mean": "mean", "given": "given text", "own": "half its own text", "all": "all weights"}
REPEATS = 4  # of the given text, at most


def start_of(method):
    """The conversion without training that a method starts from."""
    return method if method == "mean" or method.endswith("%") else "lowrank"


class Curve:
    def __init__(self, options):
        self.options, self.work = options, options.work
        self.work.mkdir(parents=True, exist_ok=True)
        self.texts = dict(text.split("=", 1) for text in options.text)
        self.lock = threading.Lock()
        self.deadline = time.monotonic() + options.seconds

    def make(self, name, *words):
        """WORK/name by a command of regroup, unless it is there."""
        path = self.work / name
        if not path.exists():
            begin = time.monotonic()
            device = [] if words[0] == "tokenize" or words == ("convert", self.options.source, "--kv-heads", 1) else \
                ["--device", self.options.device]
            subprocess.run([self.options.regroup, *map(str, words), "-o", path, "--quiet", *device], check=True,
                           stdout=subprocess.DEVNULL)
            print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)
        return path

    def prepare(self, points):
        source, given = self.options.source, self.options.given
        self.given = self.make("given.bin", "tokenize", given, "--tokenizer", source)
        self.own = self.make("own.bin", "sample", source, "--chats", "--tokens", self.options.own_tokens)
        self.chats = self.make("chats.bin", "sample", source, "--chats", "--tokens", 8192, "--batch", 16, "--seed", 7)
        for start in sorted({start_of(method) for method, *_ in points}):
            heads = ["--kv-budget", start] if start.endswith("%") else ["--kv-heads", 1]
            more = [] if start == "mean" else ["--text", given, "--effort", "quick", "--distill-steps", 0]
            self.make(start, "convert", source, *heads, *more)

    def own_share(self, method, tokens):
        given = self.given.stat().st_size / 2  # ids of 16 bits
        return 0.0 if method == "given" else max(0.5, 1 - REPEATS * given / tokens)

    def train(self, method, tokens, rate):
        batch = min(8, max(2, tokens // 2**18))
        own = self.own_share(method, tokens)
        data = [f"{file}:{share:.4f}" for file, share in ((self.given, 1 - own), (self.own, own)) if share > 0]
        return self.make(
            f"{method}-{tokens}-{rate:g}", "uptrain", self.work / start_of(method), "--teacher", self.options.source,
            "--teacher-weight", 1, "--train", "all" if method == "all" else "attention", "--data", *data, "--context", CONTEXT,
            "--batch", batch, "--steps", max(1, tokens // (batch * CONTEXT)), "--lr", rate, "--min-lr-ratio", 0.02,
            "--weight-decay", 0, "--dtype", "bf16")

    def measure(self, method, tokens, rate):
        if time.monotonic() > self.deadline:
            return
        path = self.options.source
        begin = time.monotonic()
        if method != "source":
            path = self.train(method, tokens, rate) if tokens else self.work / start_of(method)
        seconds = time.monotonic() - begin
        row = mind.row_of(self.options, path, self.chats, self.texts, {})
        row |= {"method": method, "tokens": tokens, "rate": rate, "seconds": round(seconds, 1)}
        with self.lock:
            with open(self.work / "points.jsonl", "a", encoding="utf-8") as file:
                print(json.dumps(row), file=file, flush=True)
            print(json.dumps(row), flush=True)

    def rows(self):
        path = self.work / "points.jsonl"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def point_of(word):
    method, tokens, rate = (word.split(":") + ["0.001"])[:3]
    return method, int(tokens), float(rate)


def table(rows):
    """Each point beside the source."""
    source = next(row for row in rows if row["method"] == "source")
    names = list(source["losses"])
    lines = ["| method | tokens | right | own text | " + " | ".join(names) + " |", "|---" + "|--:" * (3 + len(names)) + "|"]
    for row in rows:
        losses = " | ".join(f"{row['losses'][name] - source['losses'][name]:+.3f}" for name in names)
        lines.append(f"| {row['method']} | {row['tokens']:,} | {row['right']} | {row['divergence']:.3f} | {losses} |")
    return "\n".join(lines)


def drawing(rows):
    methods = [method for method in dict.fromkeys(row["method"] for row in rows) if method != "source"]
    source = next(row for row in rows if row["method"] == "source")

    def lines(key):
        points = {name: [(row["tokens"], row[key]) for row in rows if row["method"] == name and row["tokens"]] for name in methods}
        return [(NAMES.get(name, name.replace("%", " % of the cache")), points[name]) for name in methods]

    panels = [
        (f"right answers (source: {source['right']})", 80, lines("right")),
        ("divergence from the source on its own text", 2.4, lines("divergence")),
    ]
    return chart.curves("What comes back with how many tokens of training", panels, "{:,}".format)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--given", required=True, help="the text that the user gives")
    parser.add_argument("--text", action="append", default=[], help="NAME=FILE: texts to measure losses on")
    parser.add_argument("--points", default="")
    parser.add_argument("--own-tokens", type=int, default=2**22, help="that the source writes")
    parser.add_argument("--tokens", type=int, default=8192, help="to measure, of each text")
    parser.add_argument("--svg", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--regroup", default="build/release/regroup")
    options = parser.parse_args()
    options.answers = False
    curve = Curve(options)
    points = [("source", 0, 0.0), *map(point_of, options.points.split())]
    done = {(row["method"], row["tokens"], row["rate"]) for row in curve.rows()}
    points = [point for point in points if point not in done]
    curve.prepare([point for point in points if point[0] != "source"])
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda point: curve.measure(*point), points))
    print(table(curve.rows()))
    if options.svg:
        options.svg.write_text(drawing(curve.rows()))


if __name__ == "__main__":
    main()
