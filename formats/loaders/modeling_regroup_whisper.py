# SPDX-License-Identifier: Apache-2.0
# Copyright the regroup authors. Part of regroup; written next to weights that it converted.
"""Whisper with grouped key and value heads. Written by regroup; see regroup_heads.py."""

from transformers import WhisperForConditionalGeneration, WhisperModel
from transformers.models.whisper.modeling_whisper import WhisperAttention

from .regroup_heads import GroupedHeads, other_classes


class GroupedWhisper(GroupedHeads):
    attention_class, packing, projections = WhisperAttention, "separate", ("k_proj", "v_proj")

    @staticmethod
    def role(name):
        if "encoder_attn" in name:
            return "cross_"
        return "encoder_" if name.removeprefix("model.").startswith("encoder.") else ""

    @staticmethod
    def kv_heads(config, role):
        # WhisperConfig has another meaning for num_key_value_heads.
        return getattr(config, role + "kv_heads", None)


class RegroupWhisperForConditionalGeneration(GroupedWhisper, WhisperForConditionalGeneration):
    pass


class RegroupWhisperModel(GroupedWhisper, WhisperModel):
    pass


__getattr__ = other_classes(__name__, GroupedWhisper, "Whisper")
