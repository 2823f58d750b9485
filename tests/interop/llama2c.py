"""llama2.c files read like run.c: a forward pass in numpy, written from that program's description of the format, gives
the logits that regroup computes for the same Hugging Face model."""

import pathlib
import struct

import checkpoints  # first: it skips the script if a package is missing
import numpy as np
import transformers
from regroup_binary import expect_same_logits, run_script

CONFIG = dict(vocab_size=40, hidden_size=48, intermediate_size=56, num_hidden_layers=2, num_attention_heads=12,
              num_key_value_heads=12, max_position_embeddings=32, rms_norm_eps=1e-5, rope_theta=10000.0)


class Run:
    """The file's numbers in order, and the forward pass."""

    def __init__(self, path):
        raw = pathlib.Path(path).read_bytes()
        self.dim, self.hidden, self.layers, self.heads, self.kv_heads, vocab, self.seq = struct.unpack("<7i", raw[:28])
        self.vocab, tied = abs(vocab), vocab > 0
        self.numbers, self.at = np.frombuffer(raw[28:], "<f4").astype(np.float64), 0
        size, kv = self.dim // self.heads, self.dim // self.heads * self.kv_heads
        self.embedding = self.take(self.vocab, self.dim)
        self.attention_norm = self.take(self.layers, self.dim)
        self.wq, self.wk = self.take(self.layers, self.dim, self.dim), self.take(self.layers, kv, self.dim)
        self.wv, self.wo = self.take(self.layers, kv, self.dim), self.take(self.layers, self.dim, self.dim)
        self.mlp_norm = self.take(self.layers, self.dim)
        self.w1, self.w2 = self.take(self.layers, self.hidden, self.dim), self.take(self.layers, self.dim, self.hidden)
        self.w3 = self.take(self.layers, self.hidden, self.dim)
        self.final_norm = self.take(self.dim)
        self.take(2, self.seq, size // 2)  # tables that run.c skips
        self.classifier = self.embedding if tied else self.take(self.vocab, self.dim)
        assert self.at == len(self.numbers), "numbers are left over"

    def take(self, *shape):
        count = int(np.prod(shape))
        self.at += count
        return self.numbers[self.at - count : self.at].reshape(shape)

    def logits(self, tokens):
        x = self.embedding[tokens]
        for layer in range(self.layers):
            y = norm(x, self.attention_norm[layer])
            q, k, v = (split(y @ w[layer].T, n) for w, n in ((self.wq, self.heads), (self.wk, self.kv_heads), (self.wv, self.kv_heads)))
            q, k = rotate(q), rotate(k)
            out = []
            for head in range(self.heads):
                group = head // (self.heads // self.kv_heads)
                scores = q[head] @ k[group].T / np.sqrt(q.shape[-1])
                scores[np.triu_indices(len(tokens), 1)] = -np.inf
                weights = np.exp(scores - scores.max(-1, keepdims=True))
                out.append(weights / weights.sum(-1, keepdims=True) @ v[group])
            x = x + np.concatenate(out, -1) @ self.wo[layer].T
            y = norm(x, self.mlp_norm[layer])
            gate = y @ self.w1[layer].T
            x = x + (gate / (1 + np.exp(-gate)) * (y @ self.w3[layer].T)) @ self.w2[layer].T
        return norm(x, self.final_norm) @ self.classifier.T


def norm(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight


def split(x, heads):
    return x.reshape(len(x), heads, -1).swapaxes(0, 1)


def rotate(x):
    """Rotates neighbouring pairs."""
    size = x.shape[-1]
    angles = np.outer(np.arange(x.shape[1]), 10000.0 ** (-np.arange(0, size, 2) / size))
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = np.empty_like(x)
    turned[..., 0::2] = even * np.cos(angles) - odd * np.sin(angles)
    turned[..., 1::2] = even * np.sin(angles) + odd * np.cos(angles)
    return turned


def check(regroup, scratch):
    for tied in (True, False):
        config = transformers.LlamaConfig(tie_word_embeddings=tied, **CONFIG)
        source = checkpoints.save_random(config, 3, scratch / f"source_{tied}")
        for kv_heads in (12, 4, 1):
            target, grouped = scratch / f"{tied}_{kv_heads}.bin", scratch / f"{tied}_{kv_heads}"
            regroup.convert(source, target, kv_heads, "--to", "llama2c")
            regroup.convert(source, grouped, kv_heads)
            tokens = checkpoints.random_tokens(CONFIG["vocab_size"], 2, 11, seed=kv_heads)
            theirs = np.stack([Run(target).logits(window) for window in tokens])
            expect_same_logits(regroup.logits(grouped, tokens), theirs, f"{kv_heads} kv heads, tied: {tied}")


run_script(__doc__, check)
