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


def run(folder, facts):
    model = checkpoints.load(folder / "model", facts["attention"], trusted=True)
    ids = torch.tensor(facts["prompts"])
    options = dict(do_sample=False, min_new_tokens=len(facts["tokens"][0]), eos_token_id=None, pad_token_id=0, use_cache=True)
    made = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=len(facts["tokens"][0]), return_dict_in_generate=True,
        output_logits=True, **options
    )  # fmt: skip
    logits = np.stack([step.numpy() for step in made.logits], 1)
    return made.sequences[:, ids.shape[1] :].numpy(), adapter.log_softmax(logits), allocated_per_token(made.past_key_values)


adapter.run_cases(run, f"transformers {transformers.__version__}")
