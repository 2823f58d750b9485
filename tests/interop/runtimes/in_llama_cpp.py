"""Cases in llama.cpp, as GGUF files."""

import ctypes
import re

import adapter  # first: it sets the environment
import llama_cpp
import numpy as np

POSITIONS = 4096  # so many that the sizes in the log, rounded to 0.01 MiB, are not rounded
MIB = 2**20

log = []


@llama_cpp.llama_log_callback
def keep_log(level, text, data):
    log.append(text.decode(errors="replace"))


def allocated_per_token():
    """Bytes of keys and values for a position, as llama.cpp logs them when it allocates its cache."""
    found = re.findall(r"size = *([0-9.]+) MiB \( *(\d+) cells.*K \(f32\): *[0-9.]+ MiB, V \(f32\): *[0-9.]+ MiB", "".join(log))
    if not found:
        raise RuntimeError(f"no size of the cache in llama.cpp's log: {''.join(log)[-2000:]}")
    return sum(float(size) * MIB / int(cells) for size, cells in found)


def generate(model, prompt, count):
    model.reset()
    model.eval(prompt)
    tokens, steps = [], []
    for _ in range(count):
        logits = llama_cpp.llama_get_logits_ith(model.ctx, -1)
        steps.append(np.ctypeslib.as_array(logits, shape=(model.n_vocab(),)).astype(np.float64))
        tokens.append(int(steps[-1].argmax()))
        model.eval(tokens[-1:])
    return tokens, steps


def run(folder, facts):
    if facts["gguf_refusal"]:
        raise adapter.Refused(facts["gguf_refusal"])
    log.clear()
    llama_cpp.llama_log_set(keep_log, ctypes.c_void_p(0))
    full = llama_cpp.GGML_TYPE_F32  # its cache has half precision by default
    options = dict(n_ctx=POSITIONS, n_batch=64, logits_all=False, n_threads=1, type_k=full, type_v=full)
    try:
        model = llama_cpp.Llama(str(folder / "model.gguf"), verbose=True, **options)
    except ValueError as fault:
        said = [line for line in "".join(log).splitlines() if "error" in line]
        raise ValueError(said[0] if said else str(fault)) from fault
    made = [generate(model, prompt, len(tokens)) for prompt, tokens in zip(facts["prompts"], facts["tokens"])]
    tokens, logits = zip(*made)
    return tokens, adapter.log_softmax(logits), allocated_per_token()


adapter.run_cases(run, f"llama-cpp-python {llama_cpp.__version__}")
