# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""MPT with grouped key and value heads. Written by regroup; see regroup_heads.py."""

import torch
from transformers import MptConfig, MptForCausalLM, MptModel
from transformers.models.mpt.modeling_mpt import MptAttention

from .regroup_heads import GroupedHeads, other_classes


def with_slopes(attention, args, kwargs):
    """ALiBi with the recorded slopes, which move with their heads."""
    stock = kwargs["position_bias"]  # [heads, 1, positions], 0 at the last position
    distances = torch.arange(1 - stock.shape[-1], 1, device=stock.device)
    return args, {**kwargs, "position_bias": attention.slopes.to(stock.device)[:, None, None] * distances}


class GroupedMpt(GroupedHeads):
    attention_class, packing, projections = MptAttention, "concatenated", ("Wqkv",)
    with_slopes = with_slopes

    @staticmethod
    def kv_heads(config, role):
        """transformers 4 drops keys of attn_config that it does not know: they are in regroup's record, too."""
        record = config.regroup
        heads = getattr(config.attn_config, "kv_n_heads", record.get("stored_kv_heads", record["kv_heads"]))
        config.attn_config.kv_n_heads = heads
        return heads


class RegroupMptModel(GroupedMpt, MptModel):
    pass


class RegroupMptForCausalLM(GroupedMpt, MptForCausalLM):
    pass


class RegroupAlibiMptConfig(MptConfig):
    """For heads that have moved: with a name that stock classes, which compute slopes from a formula, refuse."""

    model_type = "regroup_alibi_mpt"


class RegroupAlibiMptModel(RegroupMptModel):
    config_class = RegroupAlibiMptConfig


class RegroupAlibiMptForCausalLM(RegroupMptForCausalLM):
    config_class = RegroupAlibiMptConfig


__getattr__ = other_classes(__name__, GroupedMpt, "Mpt", RegroupAlibiMptConfig)
