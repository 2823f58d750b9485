"""GGUF files of grouped models in llama.cpp: it predicts what regroup computes for the same Hugging Face model.

Skipped if llama-cpp-python is not installed.
"""

import pathlib
import sys

import checkpoints  # first: it skips the script if a package is missing
import numpy as np
from regroup_binary import expect, run_script

try:
    import llama_cpp
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

GOLDEN = pathlib.Path(__file__).parent.parent / "golden"

# Fixture, kv heads, tolerance. Weights are float32, because with half-precision weights llama.cpp rounds activations,
# too. It computes GELU through a half-precision table, which the tolerances show: models with SiLU are a hundred times
# more accurate.
SILU, GELU = 1e-4, 1e-2
CONVERSIONS = (
    ("llama_mha", 2, SILU),
    ("llama", 2, SILU),
    ("llama", [4, 1], SILU),
    ("llama_rope_llama3", 2, SILU),
    ("qwen2", 1, SILU),
    ("phi3", 2, SILU),
    ("cohere", 2, SILU),
    ("granite", 2, SILU),
    ("smollm3", 2, SILU),
    ("olmo", 2, SILU),
    ("olmo2", 2, SILU),
    ("qwen3", 2, SILU),
    ("internlm2", 2, SILU),
    ("baichuan_7b", 2, SILU),
    ("minicpm", 2, SILU),
    ("mixtral", 2, SILU),
    ("granitemoe", 2, SILU),
    ("deepseek", 2, SILU),
    ("gemma", 2, GELU),
    ("stablelm", 2, SILU),
    ("gpt2", 2, GELU),
    ("gpt2", 1, GELU),
    ("gpt_neox", 2, GELU),
    ("gpt_neox", 3, GELU),
    ("gpt_neox_sequential", 2, GELU),
    ("bloom", 2, GELU),
    ("mpt", 2, GELU),
    ("gptj", 2, GELU),
    ("starcoder2", 2, GELU),
    ("falcon_40b", 2, GELU),
    ("phi", 2, GELU),
)


def logits_of(path, tokens):
    full = llama_cpp.GGML_TYPE_F32  # its cache has half precision by default
    options = dict(n_ctx=64, logits_all=True, verbose=False, n_threads=2, type_k=full, type_v=full)
    model = llama_cpp.Llama(str(path), **options)
    rows = []
    for window in tokens:
        model.reset()
        model.eval([int(token) for token in window])
        rows.append(np.array(model.scores[: len(window)], dtype=np.float64))
    return np.stack(rows)


def check(regroup, scratch):
    for name, kv_heads, tolerance in CONVERSIONS:
        label = "_".join(map(str, kv_heads)) if isinstance(kv_heads, list) else kv_heads
        target, grouped = scratch / f"{name}_{label}.gguf", scratch / f"{name}_{label}"
        regroup.convert(GOLDEN / name, grouped, kv_heads, "--dtype", "fp32")
        regroup.convert(grouped, target, kv_heads, "--to", "gguf")
        tokens = checkpoints.random_tokens(regroup.inspect(grouped)["vocab_size"], 2, 13, seed=1)
        ours, theirs = regroup.logits(grouped, tokens), logits_of(target, tokens)
        difference = float(np.abs(ours - theirs).max())
        expect(difference <= tolerance, f"{name} at {kv_heads}: logits differ by {difference:.3g}")
        same = ours.argmax(-1) == theirs.argmax(-1)
        margin = np.sort(ours, axis=-1)[..., -1] - np.sort(ours, axis=-1)[..., -2]
        expect(same[margin > 2 * tolerance].all(), f"{name} at {kv_heads}: other next tokens")
        print(f"  {name} at {kv_heads}: logits within {difference:.2g}, next tokens equal at {same.mean():.0%}")


run_script(__doc__, check)
