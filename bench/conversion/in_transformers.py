"""The usual way to do this conversion: load with transformers, pool, save. SRC DST GROUPS"""

import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM


def pooled(weight, heads, groups):
    rows, columns = weight.shape
    means = weight.view(groups, heads // groups, rows // heads, columns).double().mean(1)
    return means.to(weight.dtype).reshape(groups * rows // heads, columns)


def main():
    source, destination, groups = sys.argv[1], sys.argv[2], int(sys.argv[3])
    config = AutoConfig.from_pretrained(source)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
    heads = config.num_attention_heads
    for layer in model.model.layers:
        for projection in (layer.self_attn.k_proj, layer.self_attn.v_proj):
            projection.weight = torch.nn.Parameter(pooled(projection.weight.data, heads, groups))
            projection.out_features = projection.weight.shape[0]
    model.config.num_key_value_heads = groups
    model.save_pretrained(destination)


if __name__ == "__main__":
    main()
