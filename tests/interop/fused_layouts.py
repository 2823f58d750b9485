"""Positions of q, k and v in the fused tensors of every family that has them, grouped or not.

Shapes: H query heads, G key-value heads, d head dim, D hidden size. A bias is a weight without D.
Every array may hold values or their bits: nothing is computed here.
"""

import math

import numpy as np


class Gpt2:
    """Conv1D: weight [D, (H+2G)·d] with columns q | k | v, bias [(H+2G)·d]."""

    fused = ("attn.c_attn.weight", "attn.c_attn.bias")

    @staticmethod
    def split(tensor, heads, groups):
        rows = tensor.T  # a bias does not change
        blocks = rows.reshape(heads + 2 * groups, -1, *rows.shape[1:])
        return blocks[:heads], blocks[heads : heads + groups], blocks[heads + groups :]

    @staticmethod
    def join(q, k, v):
        blocks = np.concatenate([q, k, v])
        return np.ascontiguousarray(blocks.reshape(-1, *blocks.shape[2:]).T)


class Phi3:
    """Linear: weight [(H+2G)·d, D] with rows q | k | v. No bias."""

    fused = ("self_attn.qkv_proj.weight",)

    @staticmethod
    def split(tensor, heads, groups):
        return Gpt2.split(tensor.T, heads, groups)

    @staticmethod
    def join(q, k, v):
        return np.ascontiguousarray(Gpt2.join(q, k, v).T)


class Bloom:
    """Linear: weight [(H+2G)·d, D] as G groups of H/G query heads, then the group's k and v. The bias is the same."""

    fused = ("self_attention.query_key_value.weight", "self_attention.query_key_value.bias")

    @staticmethod
    def split(tensor, heads, groups):
        n = heads // groups
        blocks = tensor.reshape(groups, n + 2, -1, *tensor.shape[1:])  # [G, n+2, d, D]
        q = blocks[:, :n].reshape(heads, *blocks.shape[2:])
        return q, blocks[:, n], blocks[:, n + 1]

    @staticmethod
    def join(q, k, v):
        groups = k.shape[0]
        q = q.reshape(groups, -1, *q.shape[1:])
        blocks = np.concatenate([q, k[:, None], v[:, None]], axis=1)
        return np.ascontiguousarray(blocks.reshape(-1, *blocks.shape[3:]))


class Persimmon(Bloom):
    """The same under other names."""

    fused = ("self_attn.query_key_value.weight", "self_attn.query_key_value.bias")


class Baichuan(Phi3):
    """The same under another name."""

    fused = ("self_attn.W_pack.weight",)


class Qwen(Phi3):
    """The same with a bias."""

    fused = ("attn.c_attn.weight", "attn.c_attn.bias")


class MosaicBert(Phi3):
    """The same with a bias. The model_type is that of BERT, which has no fused tensors."""

    fused = ("attention.self.Wqkv.weight", "attention.self.Wqkv.bias")


class ChatGLM(Phi3):
    """The same with a bias."""

    fused = ("self_attention.query_key_value.weight", "self_attention.query_key_value.bias")


class Wqkv(Phi3):
    """The same with a bias, in ModernBERT and NomicBERT."""

    fused = ("attn.Wqkv.weight", "attn.Wqkv.bias")


class InternLM2(Bloom):
    """The same under other names."""

    fused = ("attention.wqkv.weight", "attention.wqkv.bias")


class CodeGen:
    """Linear: weight [(H+2G)·d, D] as p = gcd(4, G) parts of H/p queries, G/p values and G/p keys. No bias."""

    fused = ("attn.qkv_proj.weight",)

    @staticmethod
    def split(tensor, heads, groups):
        parts = math.gcd(4, groups)
        blocks = tensor.reshape(parts, (heads + 2 * groups) // parts, -1, *tensor.shape[1:])
        q, v, k = np.split(blocks, [heads // parts, (heads + groups) // parts], axis=1)
        return tuple(part.reshape(-1, *part.shape[2:]) for part in (q, k, v))

    @staticmethod
    def join(q, k, v):
        parts = math.gcd(4, k.shape[0])
        blocks = [part.reshape(parts, -1, *part.shape[1:]) for part in (q, v, k)]
        joined = np.concatenate(blocks, axis=1)
        return np.ascontiguousarray(joined.reshape(-1, *joined.shape[3:]))


BY_MODEL_TYPE = {
    "codegen": CodeGen,
    "gpt2": Gpt2,
    "bloom": Bloom,
    "falcon": Bloom,
    "phi3": Phi3,
    "persimmon": Persimmon,
    "baichuan": Baichuan,
    "qwen": Qwen,
    "bert": MosaicBert,
    "chatglm": ChatGLM,
    "modernbert": Wqkv,
    "nomic_bert": Wqkv,
    "internlm2": InternLM2,
}


def expand(layout, tensor, heads, groups):
    """Expands a grouped tensor to the MHA layout of the family: each key-value head is repeated H/G times."""
    q, k, v = layout.split(tensor, heads, groups)
    return layout.join(q, np.repeat(k, heads // groups, axis=0), np.repeat(v, heads // groups, axis=0))
