# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""GPT-2 with grouped key and value heads. Written by regroup; see regroup_heads.py."""

from transformers import GPT2LMHeadModel, GPT2Model
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

from .regroup_heads import GroupedHeads


class GroupedGPT2(GroupedHeads):
    attention_class, packing, projections = GPT2Attention, "concatenated", ("c_attn",)


class RegroupGPT2Model(GroupedGPT2, GPT2Model):
    pass


class RegroupGPT2LMHeadModel(GroupedGPT2, GPT2LMHeadModel):
    pass
