# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""GPT-NeoX with grouped key and value heads. Written by regroup; see regroup_heads.py."""

from transformers import GPTNeoXForCausalLM, GPTNeoXModel
from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXAttention

from .regroup_heads import GroupedHeads, other_classes


class GroupedGPTNeoX(GroupedHeads):
    attention_class, packing, projections = GPTNeoXAttention, "per group", ("query_key_value",)


class RegroupGPTNeoXModel(GroupedGPTNeoX, GPTNeoXModel):
    pass


class RegroupGPTNeoXForCausalLM(GroupedGPTNeoX, GPTNeoXForCausalLM):
    @classmethod
    def from_pretrained(cls, *args, **kwargs):
        """The files have "embed_out". transformers 5 calls it "lm_head", and translates for its own classes only."""
        if "lm_head.weight" in GPTNeoXForCausalLM._tied_weights_keys:
            kwargs.setdefault("key_mapping", {r"^embed_out\.": "lm_head."})
        return super().from_pretrained(*args, **kwargs)


__getattr__ = other_classes(__name__, GroupedGPTNeoX, "GPTNeoX")
