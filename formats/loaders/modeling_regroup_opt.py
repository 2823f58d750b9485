# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""OPT with grouped key and value heads. Written by regroup; see regroup_heads.py."""

from transformers import OPTForCausalLM, OPTModel
from transformers.models.opt.modeling_opt import OPTAttention

from .regroup_heads import GroupedHeads


class GroupedOPT(GroupedHeads):
    attention_class, packing, projections = OPTAttention, "separate", ("k_proj", "v_proj")


class RegroupOPTModel(GroupedOPT, OPTModel):
    pass


class RegroupOPTForCausalLM(GroupedOPT, OPTForCausalLM):
    pass
