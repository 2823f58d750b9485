"""What the runtimes are given: converted models, prompts, and the greedy tokens that transformers generates for them.

    cases.py --regroup PATH --output DIRECTORY

writes a folder for each case: the model, case.json (see write_reference()) and logprobs.npy.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys

os.environ["OMP_NUM_THREADS"] = "1"  # for torch and regroup: models this small would only wait for more
HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent.parent / "golden")]

import checkpoints  # noqa: E402  (first: it skips the script if a package is missing)
import numpy as np  # noqa: E402
import sources  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

PROMPTS, CANDIDATES, PROMPT_TOKENS, NEW_TOKENS = 3, 256, 9, 16
# The least distance of the logits of the best and the second token at every step: twice what runtimes that compute GELU
# from half-precision tables add at most (see run.py), so other tokens mean another model.
LEAST_MARGIN = 0.04
CONTROL, REAL = "llama with exchanged heads", "trained weights"
LEAST_DISTINCT = 8  # tokens among the generated ones of a prompt


@dataclasses.dataclass(frozen=True)
class Result:
    """A conversion. `row` is the name of the result in the table of docs/compatibility.md."""

    row: str
    source: str
    kv_heads: object  # a number, or a list with one per layer; None: the source itself
    options: tuple = ()

    @property
    def name(self):
        heads = self.kv_heads if isinstance(self.kv_heads, list) else [self.kv_heads or sources.HEADS]
        return f"{self.row} at {','.join(map(str, heads))}"


AS_ANOTHER = {
    "gpt2": ("gpt_bigcode", (1,)),
    "opt": ("gpt_bigcode", (1,)),
    "gpt_neox": ("phi", (2, 1)),
    "gpt_neox_sequential": ("nemotron", (2, 1)),
    "gptj": ("phi", (2, 1)),
}
EXPANDED = ("bloom", "mpt")
MIXED = [8, 2]


def results():
    found = []
    for source in sources.SOURCES:
        found.append(Result(source, source, None))
        numbers = (2,) if sources.NEW_SPELLING in source else (2, 1)
        found += [Result(source, source, kv_heads) for kv_heads in numbers]
    for source, (target, numbers) in AS_ANOTHER.items():
        found += [Result(f"{source} as {target}", source, kv_heads, ("--target", "auto")) for kv_heads in numbers]
    found += [Result(f"{source}, expanded", source, 2, ("--target", "expanded")) for source in EXPANDED]
    nas = ("--target", "nemotron-nas")
    found += [Result(f"{source} as nemotron-nas", source, MIXED, nas) for source in ("llama", "mistral", "qwen2")]
    found += [Result(f"{source}, heads per layer", source, MIXED) for source in ("llama", "qwen3", "gemma", "gpt2")]
    return found


class Maker:
    """Makes the folders of all cases, next to those of their sources."""

    def __init__(self, regroup, folder):
        self.regroup, self.folder = regroup, pathlib.Path(folder)

    def run(self, *arguments):
        """Returns what the command prints to stderr."""
        done = subprocess.run([self.regroup, *map(str, arguments)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        return done.stderr

    def plan(self, directory):
        """Bytes of cache per token, with keys and values in fp32, as regroup plan says."""
        command = [self.regroup, "plan", directory, "--cache-dtype", "fp32", "--json"]
        return json.loads(subprocess.check_output(command))["costs"][0]["kv_bytes_per_token"]

    def make(self, result):
        source = self.folder / "sources" / result.source
        if not source.exists():
            sources.write_source(result.source, source)
        case = self.folder / result.name
        case.mkdir()
        notes = ""
        if result.kv_heads is None:
            shutil.copytree(source, case / "model")
        else:
            heads = result.kv_heads if isinstance(result.kv_heads, list) else [result.kv_heads]
            notes = self.run("convert", source, case / "model", "--kv-heads", ",".join(map(str, heads)), *result.options)
        facts = dataclasses.asdict(result) | {"name": result.name, "notes": notes, "fp32_bytes_per_token": self.plan(case / "model")}
        facts["gguf_refusal"], facts["gguf_notes"] = self.make_gguf(case)
        facts["attention"] = sources.SOURCES[result.source].attention
        return case, facts

    def make_gguf(self, case):
        """Why regroup cannot write the model as GGUF (empty if it has), and its notes."""
        try:
            return "", self.run("convert", case / "model", case / "model.gguf", "--to", "gguf", "--dtype", "fp32")
        except RuntimeError as refusal:
            return str(refusal), ""


def generate(model, prompts, count=NEW_TOKENS):
    """Greedy tokens [P, count] after prompts [P, T]."""
    ids, cache, tokens = torch.tensor(prompts), None, []
    for _ in range(count):
        with torch.no_grad():
            step = model(input_ids=ids, past_key_values=cache, use_cache=True)
        cache, ids = step.past_key_values, step.logits[:, -1:].argmax(-1)
        tokens.append(ids)
    return torch.cat(tokens, 1).numpy()


def logits_of(model, prompts, tokens):
    """Logits [P, NEW_TOKENS, V] from which the tokens were chosen, computed without a cache."""
    steps = checkpoints.logits(model, np.concatenate([prompts, tokens[:, :-1]], 1))
    return torch.tensor(steps[:, prompts.shape[1] - 1 :], dtype=torch.float64)


def choose(prompts, tokens, logits):
    """The prompts whose every step has the clearest best token. Returns their indices and the least margin."""
    best = logits.topk(2).values
    margins = (best[..., 0] - best[..., 1]).min(1).values.numpy()
    varied = np.array([len(set(row)) >= LEAST_DISTINCT and row.min() >= sources.FIRST_PLAIN_TOKEN for row in tokens])
    chosen = np.argsort(-np.where(varied, margins, 0.0))[:PROMPTS]
    return chosen, float(margins[chosen].min()) if varied[chosen].all() else 0.0


def write_reference(case, facts, model):
    """case.json: the result, what regroup said of it (notes, cache, gguf_refusal), prompts, tokens, margin.
    logprobs.npy: log-probabilities [PROMPTS, NEW_TOKENS, V] of the generated tokens' steps."""
    plain = sources.VOCABULARY - sources.FIRST_PLAIN_TOKEN
    prompts = sources.FIRST_PLAIN_TOKEN + checkpoints.random_tokens(plain, CANDIDATES, PROMPT_TOKENS, seed=1)
    tokens = generate(model, prompts)
    logits = logits_of(model, prompts, tokens)
    chosen, margin = choose(prompts, tokens, logits)
    if margin < LEAST_MARGIN:
        raise RuntimeError(f"{facts['name']}: no {PROMPTS} prompts with a margin of {LEAST_MARGIN} (found {margin:.3g})")
    if not np.array_equal(logits[chosen].argmax(-1).numpy(), tokens[chosen]):
        raise RuntimeError(f"{facts['name']}: transformers generates other tokens with a cache")
    facts |= {"prompts": prompts[chosen].tolist(), "tokens": tokens[chosen].tolist(), "margin": margin}
    np.save(case / "logprobs.npy", logits[chosen].log_softmax(-1).numpy())
    (case / "case.json").write_text(json.dumps(facts, indent=1))


REAL_PROMPTS = (
    "The history of the bridge began in the year",
    "Water boils at a lower temperature in the mountains because",
    "Once upon a time there was a fisherman who",
)
REAL_TOKENS = 32


def make_real(maker, directory):
    """A case of a converted model with trained weights and a tokenizer.json, whatever its margins."""
    case = maker.folder / REAL
    case.mkdir()
    (case / "model").symlink_to(pathlib.Path(directory).resolve())
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(case / "model" / "tokenizer.json"))
    refusal, notes = maker.make_gguf(case)
    model = checkpoints.load(case / "model", trusted=True)
    rows = [one_after_another(model, np.array([tokenizer(text)["input_ids"]])) for text in REAL_PROMPTS]
    prompts, tokens, logprobs = zip(*rows)
    facts = {"name": REAL, "row": REAL, "source": None, "kv_heads": None, "attention": "eager"}
    facts |= {"gguf_refusal": refusal, "gguf_notes": notes, "fp32_bytes_per_token": maker.plan(case / "model")}
    facts |= {"prompts": prompts, "tokens": tokens}
    np.save(case / "logprobs.npy", np.concatenate(logprobs))
    (case / "case.json").write_text(json.dumps(facts, indent=1))
    for row in tokens:
        print(repr(tokenizer.decode(row)))


def one_after_another(model, prompt):
    tokens = generate(model, prompt, REAL_TOKENS)
    return prompt[0].tolist(), tokens[0].tolist(), logits_of(model, prompt, tokens).log_softmax(-1).numpy()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--regroup", required=True, metavar="PATH", help="the binary to test")
    parser.add_argument("--output", required=True, metavar="DIRECTORY")
    parser.add_argument("--real", metavar="MODEL", help="only a case of this model, which has a tokenizer.json")
    parser.add_argument("--unless-missing", metavar="DIRECTORY", help="do nothing if this is no directory: exit code 77")
    options = parser.parse_args()
    if options.unless_missing and not pathlib.Path(options.unless_missing).is_dir():
        print(f"skipped: no {options.unless_missing}: scripts/setup --runtimes makes it")
        sys.exit(77)
    folder = pathlib.Path(options.output)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    maker = Maker(options.regroup, folder)
    if options.real:
        make_real(maker, options.real)
        return
    for result in results():
        case, facts = maker.make(result)
        model = checkpoints.load(case / "model", attention=facts["attention"], trusted=True)
        write_reference(case, facts, model)
        print(f"{result.name}: margin {facts['margin']:.2f}", flush=True)
    write_control(maker)


def write_control(maker):
    """A model whose first two key heads are exchanged, with the tokens of the original: no runtime may generate them."""
    original, control = maker.folder / "llama at 2", maker.folder / CONTROL
    shutil.copytree(original, control)
    weights = control / "model" / "model.safetensors"
    tensors, _ = checkpoints.read_file(weights)
    for name, stored in tensors.items():
        if ".k_proj." in name:
            stored.bits = np.roll(stored.bits, sources.HEAD_DIM, axis=0)
    checkpoints.write_file(weights, tensors)
    (control / "model.gguf").unlink()
    maker.make_gguf(control)
    facts = json.loads((control / "case.json").read_text())
    (control / "case.json").write_text(json.dumps(facts | {"name": CONTROL, "row": CONTROL}, indent=1))


if __name__ == "__main__":
    main()
