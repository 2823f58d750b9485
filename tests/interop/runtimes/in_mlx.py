"""Cases in mlx-lm."""

import pathlib
from importlib import metadata

import adapter  # first: it sets the environment
import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model


def generate(model, prompt, count):
    cache, ids, tokens, steps = make_prompt_cache(model), mx.array([prompt]), [], []
    for _ in range(count):
        logits = model(ids, cache=cache)[0, -1].astype(mx.float32)
        steps.append(np.array(logits))
        tokens.append(int(steps[-1].argmax()))
        ids = mx.array([tokens[-1:]])
    allocated = sum(stored.nbytes / stored.shape[-2] for layer in cache if layer.keys is not None for stored in (layer.keys, layer.values))
    return tokens, steps, allocated


def run(folder, facts):
    mx.set_default_device(mx.cpu)
    model, _ = load_model(pathlib.Path(folder, "model"))
    made = [generate(model, prompt, len(tokens)) for prompt, tokens in zip(facts["prompts"], facts["tokens"])]
    tokens, logits, allocated = zip(*made)
    return tokens, adapter.log_softmax(logits), allocated[0]


adapter.run_cases(run, f"mlx-lm {metadata.version('mlx-lm')}")
