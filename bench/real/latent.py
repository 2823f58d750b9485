#!/usr/bin/env python3
"""A prototype: latent attention (DeepSeek's form) in place of fewer kv heads, with as many numbers in the cache.

    python3 bench/real/latent.py SOURCE --data mixed.bin --chats held-out.bin --text wikitext=wiki.bin --text shakespeare=sh.bin

SOURCE is a Llama in Hugging Face's format. Each attention gets one key of --rotated numbers for all heads, which turns as the first
pairs of dimensions of the source's keys do, and a latent of the rest of --numbers for all values and for the other pairs, which stop
turning. With half of the numbers rotated, no pair stops, and this is one kv head. Both are solved from the covariance of the attention's inputs, as `convert --pool lowrank` solves its heads:
the latent has the principal directions of keys and values, weighted by what queries and outputs make of them. Then --steps of
distillation from the source, attention layers alone, with AdamW, as `regroup uptrain --teacher` does it, for the best of several
--rotated. Token files are of 16 bits.
Prints the divergence from the source on --chats and the loss over the source's on each text, before and after.
"""

import argparse
import copy
import math

import numpy as np
import torch
import transformers
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

CONTEXT = 512


def windows(path, tokens):
    ids = np.fromfile(path, np.uint16)[: tokens // CONTEXT * CONTEXT].astype(np.int64)
    return torch.from_numpy(ids).view(-1, CONTEXT)


class LatentAttention(nn.Module):
    """Queries read the latent itself: the products that would expand it to keys are part of their weights."""

    def __init__(self, heads, hidden, head_dim, latent, rotated, base):
        super().__init__()
        self.heads, self.latent, self.rotated, self.scale = heads, latent, rotated, head_dim**-0.5
        self.q = nn.Linear(hidden, heads * (latent + rotated), bias=False)
        self.down = nn.Linear(hidden, latent + rotated, bias=False)
        self.up = nn.Parameter(torch.empty(heads, head_dim, latent))
        self.o = nn.Linear(heads * head_dim, hidden, bias=False)
        angles = torch.outer(torch.arange(CONTEXT), base ** (-2 * torch.arange(rotated // 2) / head_dim))
        self.register_buffer("cos", angles.cos().repeat(1, 2), persistent=False)
        self.register_buffer("sin", angles.sin().repeat(1, 2), persistent=False)

    def turn(self, x):
        """The last `rotated` numbers of [..., T, latent + rotated]."""
        still, turning = x.split([self.latent, self.rotated], -1)
        one, other = turning.chunk(2, -1)
        return torch.cat([still, turning * self.cos + torch.cat([-other, one], -1) * self.sin], -1).to(x.dtype)

    def forward(self, hidden_states, **_):
        batch, length = hidden_states.shape[:2]
        q = self.turn(self.q(hidden_states).view(batch, length, self.heads, -1).transpose(1, 2))
        k = self.turn(self.down(hidden_states).view(batch, 1, length, -1))
        mixed = scaled_dot_product_attention(q, k, k[..., : self.latent], is_causal=True, scale=self.scale, enable_gqa=True)
        values = torch.einsum("bhtr,hdr->bthd", mixed, self.up.to(mixed.dtype))
        return self.o(values.reshape(batch, length, -1)), None


def root(matrix):
    """The symmetric root of a positive matrix, and its inverse."""
    values, vectors = torch.linalg.eigh(matrix)
    values = values.clamp(min=1e-9 * values[-1])
    return (vectors * values.sqrt()) @ vectors.T, (vectors / values.sqrt()) @ vectors.T


def solve(attention, config, covariance, latent, rotated, weight):
    """The latent attention nearest to one of the source's. `weight` of keys against values."""
    heads, groups, dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    hidden, share, pairs = config.hidden_size, heads // groups, rotated // 2
    base = config.rope_parameters["rope_theta"]
    made = LatentAttention(heads, hidden, dim, latent, rotated, base).double()
    wq = attention.q_proj.weight.double().view(groups, share, dim, hidden)
    wk = attention.k_proj.weight.double().view(groups, dim, hidden)
    wv = attention.v_proj.weight.double().view(groups, dim, hidden)
    wo = attention.o_proj.weight.double().view(hidden, groups, share, dim)
    queries = torch.einsum("gndx,xy,gney->gde", wq, covariance, wq) / dim  # what keys meet
    outputs = torch.einsum("xgnd,xgne->gde", wo, wo)

    still = [i for i in range(dim) if i % (dim // 2) >= pairs]
    rows, back = [], []  # of keys, then of values; and from these to what they weigh
    for g in range(groups if still else 0):
        forward, inverse = root(queries[g][still][:, still])
        rows.append(weight * forward @ wk[g, still])
        back.append(inverse / weight)
    for g in range(groups):
        forward, inverse = root(outputs[g])
        rows.append(forward @ wv[g])
        back.append(inverse)
    stacked = torch.cat(rows)
    directions = torch.linalg.eigh(stacked @ covariance @ stacked.T)[1][:, -latent:]
    sizes = (directions.T @ stacked).square().mean(1).sqrt() / attention.k_proj.weight.std()  # as the optimizer likes them
    parts = (directions * sizes).split([len(still)] * groups + [dim] * groups)
    q = torch.zeros(groups, share, latent + rotated, hidden, dtype=torch.double)
    down = torch.zeros(latent + rotated, hidden, dtype=torch.double)
    down[:latent] = directions.T @ stacked / sizes[:, None]
    for g in range(groups):
        if still:
            q[g, :, :latent] = torch.einsum("dr,ndx->nrx", back[g] @ parts[g], wq[g][:, still])
        made.up.data[g * share : (g + 1) * share] = back[g - groups] @ parts[g - groups]
    # Of each pair that turns, the complex number that serves the heads best: factors commute with rotations.
    for j in range(pairs):
        k = torch.complex(wk[:, j], wk[:, j + dim // 2])
        met = (queries[:, j, j] + queries[:, j + dim // 2, j + dim // 2]).sqrt()
        weighted = met[:, None] * k
        best = torch.linalg.eigh(weighted @ covariance.to(k.dtype) @ weighted.mH)[1][:, -1]
        key = best.conj() @ weighted
        size = key.abs().square().mean().sqrt() / attention.k_proj.weight.std()
        key, best = key / size, best * size
        down[latent + j], down[latent + pairs + j] = key.real, key.imag
        turned = (best / met).conj()[:, None, None] * torch.complex(wq[:, :, j], wq[:, :, j + dim // 2])
        q[:, :, latent + j], q[:, :, latent + pairs + j] = turned.real, turned.imag
    made.q.weight.data = q.reshape(-1, hidden)
    made.down.weight.data = down
    made.o.weight.data = attention.o_proj.weight.double().clone()
    return made.float()


@torch.no_grad()
def covariances(model, data):
    sums = [torch.zeros(model.config.hidden_size, model.config.hidden_size, dtype=torch.double) for _ in model.model.layers]

    def add(number):
        def hook(_, args, kwargs):
            x = kwargs.get("hidden_states", args[0] if args else None).flatten(0, 1).float()
            sums[number].add_((x.T @ x).double())
        return hook

    hooks = [layer.self_attn.register_forward_pre_hook(add(i), with_kwargs=True) for i, layer in enumerate(model.model.layers)]
    for batch in data.split(4):
        logits_of(model, batch)
    for hook in hooks:
        hook.remove()
    return [each / data.numel() for each in sums]


def logits_of(model, ids):
    with torch.autocast("cpu", torch.bfloat16):
        return model(ids, use_cache=False).logits.float()


def divergence(teacher, student, ids):
    with torch.no_grad():
        wanted = logits_of(teacher, ids).log_softmax(-1)
    return nn.functional.kl_div(logits_of(student, ids).log_softmax(-1), wanted, reduction="none", log_target=True).sum(-1).mean()


@torch.no_grad()
def loss(model, data):
    total = 0.0
    for ids in data.split(4):
        logits = logits_of(model, ids)[:, :-1]
        total += nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).item() * len(ids)
    return total / len(data)


def report(name, teacher, student, chats, texts, base):
    with torch.no_grad():
        own = sum(divergence(teacher, student, ids).item() * len(ids) for ids in chats.split(4)) / len(chats)
    cells = "  ".join(f"{key} {loss(student, data) - base[key]:+.3f}" for key, data in texts.items())
    print(f"{name}: divergence {own:.3f}  {cells}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("--data", required=True)
    parser.add_argument("--chats", required=True)
    parser.add_argument("--text", action="append", default=[], help="NAME=FILE")
    parser.add_argument("--numbers", type=int, default=128, help="in the cache, for each token and layer")
    parser.add_argument("--rotated", type=int, nargs="+", default=[64, 48, 40, 32, 24], help="of these, in the key that turns")
    parser.add_argument("--tokens", type=int, default=8192, help="to measure, of each text")
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--calibrate", type=int, default=32_768)
    options = parser.parse_args()
    torch.manual_seed(0)
    teacher = transformers.AutoModelForCausalLM.from_pretrained(options.source, dtype=torch.float32).eval()
    data = windows(options.data, 1 << 30)
    texts = {name: windows(file, options.tokens) for name, file in (text.split("=", 1) for text in options.text)}
    chats = windows(options.chats, options.tokens)
    base = {name: loss(teacher, text) for name, text in texts.items()}
    sums = covariances(teacher, data[:: max(1, len(data) * CONTEXT // options.calibrate)])

    def student_with(rotated, weight):
        student = copy.deepcopy(teacher)
        for layer, covariance in zip(student.model.layers, sums):
            layer.self_attn = solve(layer.self_attn, teacher.config, covariance, options.numbers - rotated, rotated, weight)
        return student

    judged = data[1::17][:4]
    tried = {}
    for rotated in options.rotated:
        for weight in (1.0,) if 2 * rotated == options.numbers else (10.0, 30.0, 100.0):
            with torch.no_grad():
                tried[rotated, weight] = divergence(teacher, student_with(rotated, weight), judged).item()
            print(f"{rotated} rotated, keys weighted {weight:g}: divergence {tried[rotated, weight]:.3f}", flush=True)
    student = student_with(*min(tried, key=tried.get))
    report("solved", teacher, student, chats, texts, base)
    student.requires_grad_(False)
    trained = [each for layer in student.model.layers for each in layer.self_attn.parameters()]
    for each in trained:
        each.requires_grad_(True)
    optimizer = torch.optim.AdamW(trained, lr=options.lr, betas=(0.9, 0.95), weight_decay=0.0)
    order = torch.randperm(len(data))
    for step in range(options.steps):
        rise, done = min(1.0, (step + 1) / 3), step / options.steps
        for group in optimizer.param_groups:
            group["lr"] = options.lr * rise * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))
        ids = data[order[torch.arange(step * options.batch, (step + 1) * options.batch) % len(data)]]
        found = divergence(teacher, student, ids)
        found.backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 8 == 7:
            print(f"step {step + 1}: {found.item():.3f}", flush=True)
    report("distilled", teacher, student, chats, texts, base)


if __name__ == "__main__":
    main()
