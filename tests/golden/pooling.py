"""A model's tensors with exactly pooled key and value heads, in any layout.

Norms of keys are pooled like keys: weights of single heads become the mean over the heads of a group.
"""

import json
import pathlib
import re
import shutil
import tempfile

import checkpoints
import exact_mean
import fused_layouts
import numpy as np

HEAD_NORM = re.compile(r"(.*\.k_layernorm\.norms\.)(\d+)\.weight")


KV_HEADS_KEYS = {"falcon": "num_kv_heads", "chatglm": "multi_query_group_num"}


def kv_heads_key(config):
    return KV_HEADS_KEYS.get(config.model_type, "num_key_value_heads")


def kv_heads(config):
    return getattr(checkpoints.text_config(config), kv_heads_key(config))


def layers(model):
    """The blocks of a decoder, or of the language model inside it."""
    return getattr(model.model, "language_model", model.model).layers


def is_fused(name, config):
    layout = fused_layouts.BY_MODEL_TYPE.get(config.model_type)
    return layout is not None and name.endswith(layout.fused)


def pool_fused(stored, config, source, groups):
    layout = fused_layouts.BY_MODEL_TYPE[config.model_type]
    q, k, v = layout.split(stored.bits, config.num_attention_heads, source)
    return layout.join(q, *(exact_mean.pool(heads, stored.dtype, groups) for heads in (k, v)))


def pool_head_norms(tensors, groups):
    """StableLM has one norm [d] per head, named by its head."""
    matches = [match for match in map(HEAD_NORM.fullmatch, tensors) if match]
    pooled = {}
    for prefix in sorted({match[1] for match in matches}):
        heads = sum(match[1] == prefix for match in matches)
        norms = [tensors[f"{prefix}{head}.weight"] for head in range(heads)]
        means = exact_mean.pool(np.stack([norm.bits for norm in norms]), norms[0].dtype, groups)
        for group in range(groups):
            pooled[f"{prefix}{group}.weight"] = checkpoints.Stored(norms[0].dtype, means[group])
    return pooled


def pooled_only(tensors, config, groups, language=""):
    """Returns the tensors that pooling changes, after pooling. `language`: what the names of the language model's
    layers begin with."""
    pooled = pool_head_norms(tensors, groups)
    for name, stored in tensors.items():
        # The k_norm of OLMo 2, OLMo 3 and OLMoE spans all heads. Qwen3's has the size of one head and applies to all.
        whole_norm = name.endswith(".k_norm.weight") and config.model_type in ("olmo2", "olmo3", "olmoe")
        if is_fused(name, config):
            bits = pool_fused(stored, config, kv_heads(config), groups)
        elif name.startswith(language) and (checkpoints.is_key_or_value(name) or whole_norm):
            bits = exact_mean.pool_rows(stored.bits, stored.dtype, kv_heads(config), groups)
        else:
            continue
        pooled[name] = checkpoints.Stored(stored.dtype, bits)
    return pooled


def load_pooled(directory, case, groups):
    """Returns transformers' model of the directory pooled to `groups` kv heads, and the changed tensors."""
    tensors, _ = checkpoints.read_directory(directory)
    pooled = pooled_only(tensors, case.config, groups, case.language)
    kept = {name: stored for name, stored in tensors.items() if not HEAD_NORM.fullmatch(name)}
    with tempfile.TemporaryDirectory() as scratch:
        checkpoints.write_file(pathlib.Path(scratch, "model.safetensors"), kept | pooled)
        config = json.loads((directory / "config.json").read_text())
        part = config.get("text_config", config) if case.language else config
        part[kv_heads_key(case.config)] = groups
        pathlib.Path(scratch, "config.json").write_text(json.dumps(config))
        return checkpoints.load(scratch, attention=case.attention), pooled


def grouped_and_expanded(directory, config, groups):
    """Returns the pooled key and value tensors, and the same with each pooled head repeated: the original's shapes."""
    heads = config.num_attention_heads
    grouped, expanded = {}, {}
    for name, stored in checkpoints.read_directory(directory)[0].items():
        if is_fused(name, config):
            bits = pool_fused(stored, config, heads, groups)
            whole = fused_layouts.expand(fused_layouts.BY_MODEL_TYPE[config.model_type], bits, heads, groups)
            grouped[name], expanded[name] = (checkpoints.Stored(stored.dtype, part) for part in (bits, whole))
        elif checkpoints.is_key_or_value(name):
            bits = exact_mean.pool_rows(stored.bits, stored.dtype, heads, groups)
            whole = np.repeat(bits.reshape(groups, -1, *bits.shape[1:]), heads // groups, axis=0)
            grouped[name] = checkpoints.Stored(stored.dtype, bits)
            expanded[name] = checkpoints.Stored(stored.dtype, whole.reshape(stored.bits.shape))
    return grouped, expanded


def load_with(directory, case, tensors):
    """Returns transformers' model of the directory with some tensors replaced."""
    kept, _ = checkpoints.read_directory(directory)
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copy(directory / "config.json", scratch)
        checkpoints.write_file(pathlib.Path(scratch, "model.safetensors"), kept | tensors)
        return checkpoints.load(scratch, attention=case.attention)
