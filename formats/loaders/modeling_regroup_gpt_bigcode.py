# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""GPTBigCode with grouped key and value heads. Written by regroup; see regroup_heads.py."""

from transformers import GPTBigCodeForCausalLM, GPTBigCodeModel
from transformers.models.gpt_bigcode.modeling_gpt_bigcode import GPTBigCodeAttention

from .regroup_heads import GroupedHeads


class GroupedGPTBigCode(GroupedHeads):
    attention_class, packing, projections = GPTBigCodeAttention, "per group", ("c_attn",)


class RegroupGPTBigCodeModel(GroupedGPTBigCode, GPTBigCodeModel):
    pass


class RegroupGPTBigCodeForCausalLM(GroupedGPTBigCode, GPTBigCodeForCausalLM):
    pass
