# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""Persimmon with grouped key and value heads. Written by regroup; see regroup_heads.py."""

from transformers import PersimmonForCausalLM, PersimmonModel
from transformers.models.persimmon.modeling_persimmon import PersimmonAttention

from .regroup_heads import GroupedHeads


class GroupedPersimmon(GroupedHeads):
    attention_class, packing, projections = PersimmonAttention, "per group", ("query_key_value",)


class RegroupPersimmonModel(GroupedPersimmon, PersimmonModel):
    pass


class RegroupPersimmonForCausalLM(GroupedPersimmon, PersimmonForCausalLM):
    pass
