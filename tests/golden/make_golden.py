"""Makes the fixtures of this directory, or of --out. README.md describes each one.

Everything is seeded. Weights and exact means are the same on every machine, logits up to float32 rounding.
check_golden.py checks whether the results are suitable for tests.
"""

import argparse
import json
import pathlib
import shutil
import sys
import zlib

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "interop"))  # for modules that the interop tests share

import alibi_slopes
import checkpoints
import fused_layouts
import numpy as np
import pooling
import torch
from cases import BATCH, CASES


def equalise(model, groups):
    """Replaces every key and value head by the first one of its group."""
    heads = model.config.num_attention_heads
    layout = fused_layouts.BY_MODEL_TYPE.get(model.config.model_type)

    def repeat_first(blocks):  # [H, d, ...]
        return np.repeat(blocks[:: heads // groups], heads // groups, axis=0)

    for name, parameter in model.named_parameters():
        value = parameter.detach().numpy().copy()
        if layout and name.endswith(layout.fused):
            q, k, v = layout.split(value, heads, heads)
            value = layout.join(q, repeat_first(k), repeat_first(v))
        elif checkpoints.is_key_or_value(name):
            value = repeat_first(value.reshape(heads, -1, *value.shape[1:])).reshape(value.shape)
        parameter.data.copy_(torch.from_numpy(value))


# Means exactly half way between two numbers of the weights' dtype, or slightly off. They are correct only if summed in
# more than float32 and rounded once, ties to even. Each: (half spacings above 1, direction of the offset).
WITNESSES = ((1, 0), (3, 0), (1, +1), (3, -1))
PRECISION = {torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
HAIR = {torch.float32: 2.0**-45, torch.float16: 2.0**-24, torch.bfloat16: 2.0**-40}  # exact in float64 sums of 1.5


def plant_witnesses(weight, heads, group_size, column):
    """Overwrites row 0 of each head of group 0, from the given column on, with both signs of every witness.

    weight: [H·d, D]. The heads sum to ±(1.5 · (1 + halves · 2^-precision) + off · hair), and 1.5 is
    group_size times a power of two.
    """
    members = weight.view(heads, -1, weight.shape[1])[:group_size, 0]  # [n, D]
    for sign in (1.0, -1.0):
        for halves, off in WITNESSES:
            values = torch.zeros(group_size, dtype=torch.float64)
            values[0] = 1.5
            values[1] = 1.5 * halves * 2.0 ** -PRECISION[weight.dtype]
            values[2] = off * HAIR[weight.dtype]
            members[:, column] = (sign * values).to(weight.dtype)
            column += 1


def make_model(case, seed):
    model = checkpoints.random_model(case.config, seed, case.std, case.untie)
    if case.equal:
        equalise(model, case.equal)
    model.to(case.dtype)
    column = 0
    for groups in case.pool:
        heads = pooling.kv_heads(case.config)
        size = heads // groups
        separate = case.config.model_type not in fused_layouts.BY_MODEL_TYPE
        if separate and size % 3 == 0:  # not needed for a power of two, which divides exactly
            attention = pooling.layers(model)[0].self_attn
            for projection in (attention.k_proj, attention.v_proj):
                plant_witnesses(projection.weight.data, heads, size, column)
            column += 2 * len(WITNESSES)
    return model


def write_pooled(directory, case, groups, tokens):
    """Writes expected_g{groups}: the logits of transformers for the pooled checkpoint. Returns the pooled tensors."""
    model, pooled = pooling.load_pooled(directory, case, groups)
    write_expected(directory / f"expected_g{groups}.safetensors", tokens, checkpoints.logits(model, tokens))
    return {f"g{groups}/{name}": stored for name, stored in pooled.items()}


def write_expected(path, tokens, logits):
    stored = {
        "tokens": checkpoints.Stored("I64", tokens.view(np.uint64)),
        "logits": checkpoints.Stored("F32", logits.view(np.uint32)),
    }
    checkpoints.write_file(path, stored)


def write_grouped(directory, case, groups, tokens):
    """Writes grouped_g{groups}: the changed tensors of the model pooled to `groups` kv heads, which stock loaders do
    not support. The logits are those of the original with every pooled head repeated H/G times."""
    grouped, expanded = pooling.grouped_and_expanded(directory, case.config, groups)
    checkpoints.write_file(directory / f"grouped_g{groups}.safetensors", grouped)
    model = pooling.load_with(directory, case, expanded)
    write_expected(directory / f"expected_g{groups}.safetensors", tokens, checkpoints.logits(model, tokens))


def read_config(directory):
    return json.loads((directory / "config.json").read_text())


def write_config(directory, config):
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def hub_config(config):
    """The keys that gpt2 and bloom-560m on the hub use for the settings of this config.json."""
    common = ["architectures", "bos_token_id", "eos_token_id", "initializer_range", "layer_norm_epsilon", "model_type"]
    common += ["n_layer", "vocab_size"]
    if config["model_type"] == "gpt2":
        own = ["activation_function", "attn_pdrop", "embd_pdrop", "n_embd", "n_head", "n_positions", "resid_pdrop"]
        new = {"n_ctx": config["n_positions"], "task_specific_params": {"text-generation": {"do_sample": True}}}
    else:
        own = ["apply_residual_connection_post_layernorm", "attention_dropout", "hidden_dropout", "pretraining_tp"]
        new = {"n_embed": config["hidden_size"], "num_attention_heads": config["n_head"], "n_inner": None}
        new |= {"offset_alibi": 100, "seq_length": 2048, "skip_bias_add": True, "masked_softmax_fusion": True}
    return dict(sorted(({key: config[key] for key in common + own} | new).items()))


def write_hub_twin(source, directory):
    """The same model without the `transformer.` prefix. GPT-2 gets its causal masks, which are not weights."""
    directory.mkdir(parents=True)
    tensors, _ = checkpoints.read_directory(source)
    tensors = {name.removeprefix("transformer."): stored for name, stored in tensors.items()}
    config = read_config(source)
    if config["model_type"] == "gpt2":
        mask = np.tril(np.ones((1, 1, config["n_positions"], config["n_positions"]), np.float32))
        for layer in range(config["n_layer"]):
            tensors[f"h.{layer}.attn.bias"] = checkpoints.Stored("F32", mask.view(np.uint32))
    checkpoints.write_file(directory / "model.safetensors", tensors)
    write_config(directory, hub_config(config))
    shutil.copy(source / "expected.safetensors", directory)


def write_case(directory, case):
    seed = zlib.crc32(directory.name.encode())
    make_model(case, seed).save_pretrained(directory, **case.save)
    (directory / "generation_config.json").unlink(missing_ok=True)
    vocab_size = checkpoints.text_config(case.config).vocab_size - checkpoints.SPECIAL * bool(case.language)
    tokens = checkpoints.random_tokens(vocab_size - case.lowest, BATCH, case.context, seed) + case.lowest
    logits = checkpoints.logits(checkpoints.load(directory, attention=case.attention), tokens)
    if case.rewrite:
        write_config(directory, case.rewrite(read_config(directory)))
    if case.retensor:
        tensors = case.retensor(checkpoints.read_directory(directory)[0])
        checkpoints.write_file(directory / "model.safetensors", tensors)
    if case.rewrite or case.retensor:
        rewritten = checkpoints.logits(checkpoints.load(directory, attention=case.attention), tokens)
        assert (rewritten == logits).all(), f"{directory.name}: the rewritten files describe another model"
    write_expected(directory / "expected.safetensors", tokens, logits)
    pooled = {}
    for groups in case.pool:
        pooled |= write_pooled(directory, case, groups, tokens)
    if pooled:
        checkpoints.write_file(directory / "pooled.safetensors", pooled)
    for groups in case.expand:
        write_grouped(directory, case, groups, tokens)
    if case.hub_twin:
        write_hub_twin(directory, directory.with_name(case.hub_twin))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=HERE)
    parser.add_argument("names", nargs="*", help="the directories to make (default: all, and alibi_slopes.json)")
    arguments = parser.parse_args()
    for name in arguments.names or CASES:
        case = CASES[name]
        for stale in filter(None, (name, case.hub_twin)):
            shutil.rmtree(arguments.out / stale, ignore_errors=True)
        write_case(arguments.out / name, case)
        print(name)
    if not arguments.names:
        alibi_slopes.write(arguments.out / "alibi_slopes.json")


if __name__ == "__main__":
    main()
