"""Whatever history a converted model has, transformers loads it and computes what regroup computes, or refuses it, and
regroup has said so: no result is computed otherwise without a word."""

import json
import pathlib
import subprocess

import checkpoints  # first: it skips the script where a package is missing
import transformers
from regroup_binary import expect, largest_difference, run_script, TOLERANCE

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"

# Fixture: kv heads of the first conversion (the second has one), and the attention that computes Falcon's ALiBi once.
FAMILIES = {
    "llama_mha": (2, "eager"),
    "olmo2": (2, "eager"),
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
OWN_NAME = "regroup_alibi_"
USAGE, BAD_INPUT = 2, 3
OWN_WORDS = ("stock", "refuse", "loaders")  # of the notes that tell of loaders


class Histories:
    """One fixture, converted in all ways; what became of each is counted by name."""

    def __init__(self, regroup, scratch, fixture):
        self.regroup, self.scratch, self.fixture = regroup, scratch, fixture
        self.kv_heads, self.attention = FAMILIES[fixture]
        self.outcomes = {}

    def step(self, name, *arguments):
        """Runs a command whose last argument is its result: (directory, its notes), or nothing where it refuses."""
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

    def judge(self, name, result):
        """Fails where transformers computes something else, or refuses what regroup did not speak of."""
        directory, notes = result
        what = f"{self.fixture}, {name}"
        own_name = json.loads((directory / "config.json").read_text())["model_type"].startswith(OWN_NAME)
        try:
            model = checkpoints.load(directory, attention=self.attention)
        except Exception as refusal:  # its kind depends on what does not fit
            told = own_name or any(word in notes for word in OWN_WORDS)
            expect(told, f"{what}: transformers refuses it and regroup did not say so: {refusal}\n{notes}")
            self.outcomes[name] = "refused by its name" if own_name else "refused by its shapes"
            return
        expect(not own_name, f"{what}: transformers takes a name of regroup's own")
        tokens = 2 + checkpoints.random_tokens(model.config.vocab_size - 2, 2, 12, seed=1)
        difference = largest_difference(self.regroup.logits(directory, tokens), checkpoints.logits(model, tokens))
        expect(difference <= TOLERANCE, f"{what}: transformers computes logits that differ by {difference:.3g}")
        self.outcomes[name] = "same logits"

    def follow(self, name, *arguments):
        result = self.step(name, *arguments)
        if result:
            self.judge(name, result)
        return result and result[0]

    def run(self, grouping):
        source, heads = GOLDEN / self.fixture, ("--kv-heads", self.kv_heads, "--grouping", grouping)
        grouped = self.follow(grouping, "convert", source, *heads)
        self.follow(f"{grouping}, as another", "convert", source, *heads, "--target", "auto")
        if not grouped:
            return
        again = self.follow(f"{grouping}, again", "convert", grouped, "--kv-heads", 1)
        for name, model in (("", grouped), (", again", again)):
            self.follow(f"{grouping}{name}, expanded", "expand", model)
        packed = self.step(f"{grouping}, to.gguf", "convert", grouped, "--to", "gguf")
        if packed:
            self.follow(f"{grouping}, and back", "convert", packed[0], "--to", "safetensors")


def check(regroup, scratch):
    for fixture in FAMILIES:
        histories = Histories(regroup, scratch, fixture)
        for grouping in ("contiguous", "similar"):
            histories.run(grouping)
        for name, outcome in histories.outcomes.items():
            print(f"  {fixture}, {name}: {outcome}")
        expect("same logits" in histories.outcomes.values(), f"{fixture}: transformers loads none of its results")
        alibi = (GOLDEN / fixture / "config.json").exists() and fixture in ("bloom", "mpt_12", "falcon_rw")
        named = [name for name, outcome in histories.outcomes.items() if outcome == "refused by its name"]
        expect(bool(named) == alibi, f"{fixture}: under names of regroup's own: {named}")


transformers.logging.set_verbosity_error()
run_script(__doc__, check)
