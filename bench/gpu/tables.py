"""The results as tables, written between two markers of a page."""

import os
import re
import statistics
import sys

import parts
from steps import DONE, FAILED, SKIPPED

BEGIN = "<!-- bench/gpu.sh tables: begin -->"
END = "<!-- bench/gpu.sh tables: end -->"
GIB = 2**30


def table(columns, rows):
    """`columns`: titles; all but the first are aligned right."""
    lines = [f"| {' | '.join(columns)} |", "|---" + "|--:" * (len(columns) - 1) + "|"]
    return "\n".join(lines + [f"| {' | '.join(row)} |" for row in rows])


class Page:
    def __init__(self, settings, results):
        self.settings = settings
        self.found = {part: {step.name: results.get(part, step.name) for step in parts.steps_of(part, settings)}
                      for part in parts.PARTS}

    def values(self, part):
        """What the steps that are done have given, by step, with the clocks meanwhile."""
        return {name: {**result["values"], "clocks": result.get("clocks")} for name, result in self.found[part].items()
                if result and result["state"] == DONE and result.get("values")}

    def text(self):
        sections = [self.measured_on(), self.tests(), self.training(), self.comparison(), self.batches(),
                    self.forms(), self.profile(), self.decoding(), self.attention(), self.conversion(), self.memory(), self.failures()]
        return "\n\n".join(section for section in sections if section)

    def measured_on(self):
        """Where the numbers are from; more than one line if results of several machines or commits are mixed."""
        machines = {}
        for part, steps in self.found.items():
            for name, result in steps.items():
                if result and result["state"] != SKIPPED:
                    machines.setdefault(tuple(sorted(result["machine"].items())), []).append(f"{part}/{name}")
        lines = []
        for facts, names in machines.items():
            it = dict(facts)
            line = (f"{it['device']}, driver {it['driver']}, {it['cores']} CPU cores, LibTorch {it['libtorch']}, commit "
                    f"{it['commit']}")
            lines.append(line if len(machines) == 1 else f"{line}: {', '.join(names)}")
        return "Measured on " + "; and on ".join(lines) + "." + self.kernels() if lines else ""

    def kernels(self):
        """Whether the fused kernels were compiled in."""
        result = self.found["build"].get("fused-kernels")
        if not result or result["state"] == SKIPPED:
            return ""
        if result["state"] == FAILED:
            return " " + one_line((result.get("last_lines") or [result["why"]])[-1]) + "."
        words = re.sub(r"\S*/(?=nvcc)", "", one_line(result["values"]["kernels"]))  # without the machine's folders
        return f" Fused CUDA kernels: {words}."

    def tests(self):
        rows = [[name, str(values["cases"]), str(values["assertions"])]
                for name, values in {**self.values("test"), **self.values("cpu-tests")}.items()]
        return "Tests that passed:\n\n" + table(["program", "cases", "assertions"], rows) if rows else ""

    def training(self):
        found, rows = {**self.values("train"), **self.values("peers")}, []
        for shape in self.settings.shapes:
            rounds = {program: [found[name] for number in range(1, self.settings.rounds + 1)
                                if (name := f"{shape}-{program}-{number}") in found]
                      for program in ("regroup", *self.settings.peers)}
            for program, each in rounds.items():
                if each:
                    rows.append([shape, "regroup" if program == "regroup" else f"transformers, {program}",
                                 f"{median(each, 'tokens_per_second'):,.0f}",
                                 size(median(each, 'peak_memory_bytes')),
                                 ratio(rounds["regroup"], each) if program != "regroup" else "",
                                 share(each), clocks(each), str(len(each))])
        return ("Training, AdamW, bf16 with fp32 masters:\n\n" +
                table(["model", "program", "tokens/s", "peak memory", "regroup's speed, times", "of the peak FLOP/s",
                       "clock, power", "rounds"], rows)) if rows else ""

    def comparison(self):
        """Medians over rounds of the ratio of both builds in a round."""
        found, rows = self.values("compare"), []
        for shape in self.settings.shapes:
            pairs = [[found.get(f"{shape}-{name}-{number}") for name in ("other", "regroup")]
                     for number in range(1, self.settings.rounds + 1)]
            pairs = [pair for pair in pairs if all(pair)]
            if pairs:
                speeds = [[each["tokens_per_second"] for each in pair] for pair in pairs]
                rows.append([shape, *(f"{statistics.median(column):,.0f}" for column in zip(*speeds)),
                             f"{statistics.median(new / old for old, new in speeds):.3f}",
                             clocks([pair[1] for pair in pairs]), str(len(pairs))])
        return "Two builds in turn, tokens/s:\n\n" + table(
            ["model", "other", "this", "this / other", "clock, power", "rounds"], rows) if rows else ""

    def batches(self):
        rows = [[name, f"{values['tokens_per_second']:,.0f}", size(values["peak_memory_bytes"]), share([values]),
                 clocks([values])] for name, values in self.values("batches").items()]
        return "Several batches a step, and larger ones:\n\n" + table(
            ["model", "tokens/s", "peak memory", "of the peak FLOP/s", "clock, power"], rows) if rows else ""

    def forms(self):
        return "\n\n".join("Forms of attention (`bench/gpu/cudnn_forms.py`):\n\n" + values["text"].strip()
                           for values in self.values("forms").values())

    def profile(self):
        return "\n\n".join(
            f"Kernels of two steps of {shape}, {values['launches']} launches, {values['ms']:.0f} ms:\n\n" +
            table(["kernel", "launches", "ms"], [[f"`{each['name']}`", str(each["launches"]), f"{each['ms']:.2f}"]
                                                 for each in values["kernels"]])
            for shape, values in self.values("profile").items())

    def decoding(self):
        rows = [[str(max(row["kv_heads"]) if isinstance(row["kv_heads"], list) else row["kv_heads"]), str(row["batch"]),
                 f"{row['context']:,}", size(row['cache_bytes']), f"{1000 * row['seconds_per_token']:.2f} ms",
                 f"{row['tokens_per_second']:,.0f}"]
                for values in self.values("decode").values() for row in values["results"]]
        return "Decoding, bf16:\n\n" + table(["kv heads", "batch", "context", "KV cache", "per token", "tokens/s"],
                                             rows) if rows else ""

    def attention(self):
        rows = [[name.replace("head-dim-", ""), row["form"], f"{row['tokens']:,}", f"{row['ms']:.2f} ms",
                 f"{row['times']:.2f}", f"{row['mib']:.0f} MiB"]
                for name, values in self.values("attention").items() for row in values["rows"]]
        return ("Causal attention, forward and backward: plain, and the forms of ALiBi:\n\n" +
                table(["head dimension", "form", "tokens", "time", "times plain", "memory"], rows)) if rows else ""

    def conversion(self):
        found = self.values("conversion")
        rows = [[name, f"{values['seconds']:.1f} s", f"{values['seconds_per_layer']:.2f} s", ""]
                for name, values in found.items() if "seconds_per_layer" in values]
        for name, values in found.items():
            if values.get("logits"):
                rows.append([name, "", "", f"{values['logits']['kl']:.6g}"])
        return "Conversion of best quality:\n\n" + table(["step", "time", "per layer", "KL from the source"],
                                                         rows) if rows else ""

    def memory(self):
        found, rows = self.values("memory"), []
        for name, values in found.items():
            rows.append([name, size(values["peak_memory_bytes"]), size(values["estimated_memory_bytes"]),
                         f"{values['peak_memory_bytes'] / values['estimated_memory_bytes']:.3f}"])
        if not rows:
            return ""
        ratios = [values["peak_memory_bytes"] / values["estimated_memory_bytes"] for values in found.values()]
        bound = (f"The peak is between {min(ratios):.3f} and {max(ratios):.3f} of the plan's figure" +
                 (", which counts tensors alone; on a CPU the peak is of the whole process." if self.settings.device == "cpu"
                  else "; above 1, the plan promised too much." if max(ratios) > 1 else "."))
        return ("Memory of a training step:\n\n" + table(["model", "peak", "plan", "peak / plan"], rows) + "\n\n" + bound)

    def failures(self):
        rows, left = [], []
        for part, steps in self.found.items():
            for name, result in steps.items():
                if result is None:
                    left.append(f"{part}/{name}")
                elif result["state"] in (FAILED, SKIPPED):
                    lines = result.get("last_lines") or [""]
                    rows.append([f"{part}/{name}", result["state"], one_line(result["why"]), one_line(lines[-1])])
        text = table(["step", "", "why", "last line"], rows) if rows else ""
        more = f"Not measured: {', '.join(left)}." if left else ""
        return "\n\n".join(filter(None, (text, more)))


def size(count):
    return f"{count / GIB:.2f} GiB" if count >= GIB else f"{count / 2**20:.1f} MiB"


def one_line(text):
    return text.replace("|", "\\|").replace("\n", " ").strip()


def median(rounds, key):
    return statistics.median(each[key] for each in rounds)


def ratio(ours, theirs):
    """Of the medians: a round may lack one of the two."""
    return f"{median(ours, 'tokens_per_second') / median(theirs, 'tokens_per_second'):.2f}" if ours else ""


def clocks(rounds):
    found = [each["clocks"] for each in rounds if each.get("clocks")]
    if not found:
        return ""
    return f"{statistics.median(each['mhz'] for each in found):.0f} MHz, {statistics.median(each['watts'] for each in found):.0f} W"


def share(rounds):
    found = [each["model_flops_utilisation"] for each in rounds if "model_flops_utilisation" in each]
    return f"{100 * statistics.median(found):.1f} %" if found else ""


def write(settings, results, path):
    """Replaces what is between the markers of the page. The exit status."""
    page = path.read_text()
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        print(f"gpu.sh: tables: {path} needs each of these lines once, in this order: {BEGIN} and {END}", file=sys.stderr)
        return 1
    text = Page(settings, results).text()
    if not text.startswith("Measured on"):
        print(f"gpu.sh: tables: there are no results in {settings.results}", file=sys.stderr)
        return 1
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    fresh = path.with_name(path.name + ".part")
    fresh.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}")
    os.replace(fresh, path)
    print(f"gpu.sh: wrote the tables into {path}")
    return 0
