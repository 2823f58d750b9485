# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""GPT-Neo with grouped key and value heads. Written by regroup; see regroup_heads.py."""

from transformers import GPTNeoForCausalLM, GPTNeoModel
from transformers.models.gpt_neo.modeling_gpt_neo import GPTNeoSelfAttention

from .regroup_heads import GroupedHeads


class GroupedGPTNeo(GroupedHeads):
    attention_class, packing, projections = GPTNeoSelfAttention, "separate", ("k_proj", "v_proj")


class RegroupGPTNeoModel(GroupedGPTNeo, GPTNeoModel):
    pass


class RegroupGPTNeoForCausalLM(GroupedGPTNeo, GPTNeoForCausalLM):
    pass
