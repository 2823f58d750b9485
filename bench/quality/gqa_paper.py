#!/usr/bin/env python3
"""The figures of the GQA paper (Ainslie et al. 2023) from a study that quality.py has made in WORK, and times of decoding.

Figure 3: loss against time per token; 4: methods; 5: loss against α; 6: time per token against the number of kv heads. Writes
WORK/report/gqa_paper.svg and .md. Times are those of `regroup bench decode`, each in the same run as what it is compared with.
"""
import argparse
import json
import statistics
import sys
from pathlib import Path

from gqa_paper_charts import chart
from kinds import KINDS, QUERY_HEADS
from methods import METHODS
from program import CommandFailed, Program, write_atomically
from runner import exit_code_of, only_user_of
from table import row, rule

ALPHA = 0.05
SHAPE = Path(__file__).resolve().parents[1] / "decode"


class Decoding:
    """Times of `bench decode`, which a study's folder keeps."""

    def __init__(self, program, batch, context):
        self.program = program
        self.served = ["--batch", str(batch), "--context", str(context)]

    def seconds(self, record, arguments):
        """Seconds per token of each variant, in the order of the arguments."""
        report = self.program.run_once(record, ["bench", "decode", *arguments, *self.served])["report"]
        return [result["seconds_per_token"] for result in report["results"]]

    def of_heads(self, shape):
        """{kv heads: seconds per token} of a config.json with random weights."""
        heads = [json.loads((shape / "config.json").read_text(encoding="utf-8"))["num_attention_heads"]]
        while heads[-1] % 2 == 0:
            heads.append(heads[-1] // 2)
        times = self.seconds("decode/shape.json", [str(shape), "--kv-heads", ",".join(map(str, heads))])
        return dict(zip(heads, times))

    def of_models(self, name, ratios):
        """{ratio: seconds per token} of the study's models."""
        paths = [f"{name}/trained", *(f"{name}/mean-{QUERY_HEADS // ratio}/converted" for ratio in ratios)]
        return dict(zip([1, *ratios], self.seconds(f"decode/{name}.json", paths)))


class Cells:
    """The losses of one kind of model, from quality.json."""

    def __init__(self, report, kind):
        self.losses = {}
        for cell in report["cells"]:
            if cell["kind"] == kind:
                self.losses.setdefault((cell["method"], cell["ratio"], cell["alpha"]), []).append(cell["loss"])
        sources = [model for model in report["models"] if model["kind"] == kind]
        if not sources:
            raise CommandFailed(f"the study has no models of the kind {kind}")
        self.seeds = [model["seed"] for model in sources]
        self.losses["source", 1, 0.0] = [model["loss"] for model in sources]
        self.ratios = sorted({ratio for method, ratio, _ in self.losses if method == "mean"})
        self.alphas = sorted({alpha for *_, alpha in self.losses if isinstance(alpha, float)})
        self.methods = [key for key in METHODS if any(method == key and alpha == ALPHA for method, _, alpha in self.losses)]

    def loss(self, method, ratio, alpha):
        """The mean over seeds, or None."""
        values = self.losses.get((method, ratio, alpha))
        return statistics.fmean(values) if values else None


def cell(value, text="{:.3f}"):
    return "–" if value is None else text.format(value)


def label(method):
    return "MHA" if method == "source" else METHODS[method].label


def loss_table(cells):
    head = ["method", "kv heads", *(f"α = {alpha:g}" for alpha in cells.alphas)]
    lines = [row(head), rule(len(head), 2)]
    for method in ("source", *cells.methods):
        for ratio in [1] if method == "source" else cells.ratios:
            lines.append(row([label(method), str(QUERY_HEADS // ratio),
                              *(cell(cells.loss(method, ratio, alpha)) for alpha in cells.alphas)]))
    return lines


def time_table(times, of_all):
    lines = [row(["kv heads", "ms per token", "of MHA's"]), rule(3, 0)]
    return lines + [row([str(of_all // ratio), f"{1000 * time:.1f}", f"{time / times[1]:.2f}"]) for ratio, time in times.items()]


def markdown(kind, cells, served, models, shape):
    most = max(shape)
    by_ratio = {most // heads: time for heads, time in shape.items()}
    return "\n".join([
        f"# The GQA paper's figures: {KINDS[kind].label}\n",
        f"Held-out loss in nats per token; seeds: {len(cells.seeds)}.\n", *loss_table(cells), "",
        f"Decoding with these models ({' '.join(served)}):\n", *time_table(models, QUERY_HEADS), "",
        f"Decoding with {most} query heads, random weights:\n", *time_table(by_ratio, most), ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--regroup", default="build/release/regroup", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="the folder of a study with mean pooling, uptrained")
    parser.add_argument("--kind", choices=KINDS, default="rope")
    parser.add_argument("--shape", type=Path, default=SHAPE, help="folder of the config.json that figure 6 decodes with")
    parser.add_argument("--batch", type=int, default=8, help="sequences at a time in decoding")
    parser.add_argument("--context", type=int, default=2048, help="tokens in their caches")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of decoding")
    options = parser.parse_args()
    program = Program(options.regroup.resolve(), options.work.resolve(), "cpu", options.threads)

    def run():
        report = options.work / "report"
        with only_user_of(options.work):
            cells = Cells(json.loads((report / "quality.json").read_text(encoding="utf-8")), options.kind)
            decoding = Decoding(program, options.batch, options.context)
            models = decoding.of_models(f"{options.kind}-{cells.seeds[0]}", cells.ratios)
            shape = decoding.of_heads(options.shape.resolve())
            write_atomically(report / "gqa_paper.md", markdown(options.kind, cells, decoding.served, models, shape))
            write_atomically(report / "gqa_paper.svg", chart(cells, models, shape, ALPHA))

    return exit_code_of("gqa_paper", run)


if __name__ == "__main__":
    sys.exit(main())
