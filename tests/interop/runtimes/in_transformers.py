"""Cases in transformers, which caches keys and values while it generates."""

import pathlib
import sys

import adapter  # first: it sets the environment

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import checkpoints  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402


def allocated_per_token(cache):
    layers = [layer for layer in cache.layers if layer.keys is not None]
    return sum(tensor.untyped_storage().nbytes() / (tensor.shape[0] * tensor.shape[-2]) for layer in layers for tensor in (layer.keys, layer.values))


def generate(model, prompt, count):
    ids = torch.tensor([prompt])
    options = dict(do_sample=False, min_new_tokens=count, max_new_tokens=count, eos_token_id=None, pad_token_id=0)
    options |= dict(use_cache=True, return_dict_in_generate=True, output_logits=True)
    made = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
    logits = np.concatenate([step.numpy() for step in made.logits])
    return made.sequences[0, len(prompt) :].numpy(), logits, allocated_per_token(made.past_key_values)


def run(folder, facts):
    model = checkpoints.load(folder / "model", facts["attention"], trusted=True)
    made = [generate(model, prompt, len(tokens)) for prompt, tokens in zip(facts["prompts"], facts["tokens"])]
    tokens, logits, allocated = zip(*made)
    return tokens, adapter.log_softmax(logits), allocated[0]


adapter.run_cases(run, f"transformers {transformers.__version__}")
