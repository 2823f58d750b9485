# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""XGLM with grouped key and value heads. Written by regroup; see regroup_heads.py."""

from transformers import XGLMForCausalLM, XGLMModel
from transformers.models.xglm.modeling_xglm import XGLMAttention

from .regroup_heads import GroupedHeads


class GroupedXGLM(GroupedHeads):
    attention_class, packing, projections = XGLMAttention, "separate", ("k_proj", "v_proj")


class RegroupXGLMModel(GroupedXGLM, XGLMModel):
    pass


class RegroupXGLMForCausalLM(GroupedXGLM, XGLMForCausalLM):
    pass
