# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""GPT-J with grouped key and value heads. Written by regroup; see regroup_heads.py."""

from transformers import GPTJForCausalLM, GPTJModel
from transformers.models.gptj.modeling_gptj import GPTJAttention

from .regroup_heads import GroupedHeads


class GroupedGPTJ(GroupedHeads):
    attention_class, packing, projections = GPTJAttention, "separate", ("k_proj", "v_proj")


class RegroupGPTJModel(GroupedGPTJ, GPTJModel):
    pass


class RegroupGPTJForCausalLM(GroupedGPTJ, GPTJForCausalLM):
    pass
