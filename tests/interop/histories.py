"""Models with every history of conversions: transformers computes what regroup computes, or refuses the model and
regroup has said so. No result is computed differently without a warning."""

import json
import os
import pathlib
import subprocess
import tempfile

os.environ["OMP_NUM_THREADS"] = "1"  # for torch and regroup: models this small would only wait for more
modules = tempfile.TemporaryDirectory()
os.environ["HF_MODULES_CACHE"] = modules.name  # transformers copies the results' code here

import checkpoints  # noqa: E402  (first: it skips the script if a package is missing)
from regroup_binary import TOLERANCE, expect, largest_difference, run_script  # noqa: E402

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"

# Fixture: kv heads of the first conversion (the second has one), and the attention implementation that adds Falcon's
# ALiBi only once.
FAMILIES = {
    "llama_mha": (2, "eager"),
    "falcon_40b": (2, "eager"),
    "falcon_rw": (2, "sdpa"),
    "gpt_bigcode_mha": (2, "eager"),
    "gpt2": (2, "eager"),
    "gpt_neox": (2, "eager"),
    "gptj": (2, "eager"),
    "opt": (2, "eager"),
    "bloom": (2, "eager"),
    "mpt_12": (4, "eager"),
    "t5": (4, "eager"),
    "bert": (4, "eager"),
}
WITH_ALIBI = ("falcon_rw", "bloom", "mpt_12")
OWN_NAME = "regroup_alibi_"
USAGE, BAD_INPUT = 2, 3
OWN_WORDS = ("stock", "refuse", "loaders")  # in notes about loaders


class Histories:
    """One fixture, converted in all ways. Counts the outcomes by name."""

    def __init__(self, regroup, scratch, fixture):
        self.regroup, self.scratch, self.fixture = regroup, scratch, fixture
        self.kv_heads, self.attention = FAMILIES[fixture]
        self.outcomes, self.logits = {}, {}

    def step(self, name, *arguments):
        """Runs a command whose last argument is its result. Returns (directory, notes), or None if it refuses."""
        target = self.scratch / f"{self.fixture} {name}"
        command = [self.regroup.binary, *map(str, arguments[:1]), str(arguments[1]), str(target), *map(str, arguments[2:])]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return target, done.stderr
        what = f"{self.fixture}, {name}: exit code {done.returncode}: {done.stderr.strip()}"
        expect(done.returncode in (USAGE, BAD_INPUT) and len(done.stderr.strip().splitlines()) == 1, what)
        expect(not target.exists(), f"{what}, and a result")
        self.outcomes[name] = "refused by regroup"
        return None

    def judge(self, name, result, like):
        """Fails if transformers computes different logits, or refuses a model without a note from regroup."""
        directory, notes = result
        what = f"{self.fixture}, {name}"
        config = json.loads((directory / "config.json").read_text())
        own_name = config["model_type"].startswith(OWN_NAME)
        has_code = "modeling_regroup_" in json.dumps(config.get("auto_map", {}))
        try:
            model = checkpoints.load(directory, attention=self.attention)
        except Exception as refusal:  # its type depends on the mismatch
            if has_code:
                self.compare(name, checkpoints.load(directory, attention=self.attention, trusted=True), like)
                self.outcomes[name] = "same logits by its code, else refused by its " + ("name" if own_name else "shapes")
                return
            told = own_name or any(word in notes for word in OWN_WORDS)
            expect(told, f"{what}: transformers refuses it and regroup did not say so: {refusal}\n{notes}")
            self.outcomes[name] = "refused by its name" if own_name else "refused by its shapes"
            return
        expect(not own_name, f"{what}: transformers accepts regroup's own model_type")
        expect(not has_code, f"{what}: transformers loads it without the code that it carries")
        self.compare(name, model, like)
        self.outcomes[name] = "same logits"

    def compare(self, name, model, like):
        """Fails if transformers' model computes other logits than regroup from `like`."""
        what = f"{self.fixture}, {name}"
        tokens = 2 + checkpoints.random_tokens(model.config.vocab_size - 2, 2, 12, seed=1)
        if like not in self.logits:  # regroup starts LibTorch each time
            self.logits[like] = self.regroup.logits(like, tokens)
        difference = largest_difference(self.logits[like], checkpoints.logits(model, tokens))
        expect(difference <= TOLERANCE, f"{what}: transformers computes logits that differ by {difference:.3g}")

    def follow(self, name, *arguments, like=None):
        """Runs a step. Its result must compute what regroup computes from `like` (by default from the result
        itself)."""
        result = self.step(name, *arguments)
        if result:
            self.judge(name, result, like or result[0])
        return result and result[0]

    def run(self, grouping):
        source, heads = GOLDEN / self.fixture, ("--kv-heads", self.kv_heads, "--grouping", grouping)
        query_heads = self.regroup.inspect(source)["query_heads"]
        grouped = self.follow(grouping, "convert", source, *heads)
        again = self.follow(f"{grouping}, again", "convert", grouped, "--kv-heads", 1)
        for name, model in (("", grouped), (", again", again)):
            self.follow(f"{grouping}{name}, expanded", "expand", model, "--kv-heads", query_heads, like=model)
        if grouping == "similar" and self.fixture not in WITH_ALIBI:
            return  # the following steps support only slopes as positions
        self.follow(f"{grouping}, as another", "convert", source, *heads, "--target", "auto", like=grouped)
        packed = self.step(f"{grouping}, to.gguf", "convert", grouped, "--to", "gguf")
        if packed:
            self.follow(f"{grouping}, and back", "convert", packed[0], "--to", "safetensors", like=grouped)


def check(regroup, scratch):
    for fixture in FAMILIES:
        histories = Histories(regroup, scratch, fixture)
        for grouping in ("contiguous", "similar"):
            histories.run(grouping)
        for name, outcome in histories.outcomes.items():
            print(f"  {fixture}, {name}: {outcome}")
        expanded = histories.outcomes["contiguous, expanded"]
        expect(expanded == "same logits", f"{fixture}, expanded: {expanded}")
        own_names = any("refused by its name" in outcome for outcome in histories.outcomes.values())
        expect(own_names == (fixture in WITH_ALIBI), f"{fixture}: regroup's own model_type: {own_names}")


run_script(__doc__, check)
