#!/usr/bin/env python3
"""Times LibTorch's attention kernels, flash and cuDNN, in training and in decoding, in bf16. Needs torch for Python and a GPU.

    python3 bench/gpu/attention_kernels.py

The tables are in docs/gpu.md. Each time is the mean of 20 runs after 3 others. Caches alternate so that none stays in the GPU's cache.
"""

import itertools

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

KERNELS = {"flash": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}
TRAINING = ((16, 24, 8, 2048, 64), (8, 16, 4, 2048, 128), (8, 16, 16, 2048, 128), (8, 16, 16, 2048, 136), (2, 32, 8, 8192, 128))
DECODING = tuple((batch, 16, kv_heads, keys, 128) for batch, keys in ((8, 16384), (64, 2048)) for kv_heads in (16, 8, 4, 2, 1))


def milliseconds(work, runs=20):
    for _ in range(3):
        work()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(runs):
        work()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / runs


def drawn(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def training_step(batch, heads, kv_heads, tokens, width):
    """Forward and backward; heads are views of what a projection gives."""
    q, k, v = (drawn(batch, tokens, count, width).transpose(1, 2).requires_grad_() for count in (heads, kv_heads, kv_heads))
    outer = drawn(batch, tokens, heads, width).transpose(1, 2)

    def step():
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv_heads)
        torch.autograd.grad(mixed, (q, k, v), outer)
    return step


def decoding_step(batch, heads, kv_heads, keys, width):
    """One token of each sequence; the query heads of a group are rows, as in regroup."""
    caches = itertools.cycle([(drawn(batch, kv_heads, keys, width), drawn(batch, kv_heads, keys, width)) for _ in range(2)])
    q = drawn(batch, kv_heads, heads // kv_heads, width)

    def step():
        k, v = next(caches)
        scaled_dot_product_attention(q, k, v)
    return step


def table(title, shapes, step_of):
    print(f"\n| {title} | " + " | ".join(KERNELS) + " |\n|---|" + "--:|" * len(KERNELS))
    for shape in shapes:
        times = []
        for kernel in KERNELS.values():
            with sdpa_kernel(kernel):
                times.append(f"{milliseconds(step_of(*shape)):.3f}")
        print("| " + ", ".join(f"{size:,}" for size in shape) + " | " + " | ".join(times) + " |", flush=True)


if __name__ == "__main__":
    print(torch.cuda.get_device_name(), "LibTorch", torch.__version__, "cuDNN", torch.backends.cudnn.version())
    table("batch, heads, kv heads, tokens, dimension", TRAINING, training_step)
    table("batch, heads, kv heads, keys, dimension", DECODING, decoding_step)
