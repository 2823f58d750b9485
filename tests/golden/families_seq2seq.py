"""Cases of BART and its relatives, with learned or sinusoidal positions, and of Whisper."""

import numpy as np
import torch
from case import Case, float_bits
from transformers import BartConfig, M2M100Config, MarianConfig, MBartConfig, PegasusConfig, WhisperConfig
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

HEADS = dict(encoder_attention_heads=6, decoder_attention_heads=6)
SIZES = dict(vocab_size=40, d_model=18, encoder_layers=2, decoder_layers=2, encoder_ffn_dim=20, decoder_ffn_dim=16)
SHAPE = HEADS | SIZES | dict(max_position_embeddings=16)

# The bias of the keys adds the same to all scores of a query.
IDLE = ("k_proj.bias",)


def with_copies(tensors):
    """Like bart-large-cnn's pytorch_model.bin: every copy of the embedding."""
    copies = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
    return tensors | {name: tensors["model.shared.weight"] for name in copies}


def as_in_2020(config):
    """With keys of transformers 3, which later versions ignore."""
    old = {"normalize_before": False, "normalize_embedding": True, "add_final_layer_norm": False, "add_bias_logits": False}
    return config | old


def with_tables(tensors):
    """Like Marian's older files, which hold the positions."""
    table = MarianSinusoidalPositionalEmbedding(16, 18).create_weight().numpy().astype(np.float32)
    names = (f"model.{stack}.embed_positions.weight" for stack in ("encoder", "decoder"))
    return tensors | {name: float_bits(table) for name in names}


def marian():
    return MarianConfig(**SHAPE, activation_function="swish", scale_embedding=True, decoder_start_token_id=39, pad_token_id=39)


CASES = {
    "bart": Case(
        BartConfig(**SHAPE),
        std=0.25,
        expand=(3, 2),
        controls=({"activation_function": "relu"}, {"scale_embedding": True}, {"decoder_start_token_id": 5}),
        inert=({"normalize_before": True},),
        idle=IDLE,
    ),
    "bart_copies": Case(BartConfig(**SHAPE), std=0.25, context=25, rewrite=as_in_2020, retensor=with_copies, idle=IDLE),
    "mbart": Case(
        MBartConfig(**SHAPE, scale_embedding=True, decoder_start_token_id=3),
        dtype=torch.bfloat16,
        expand=(2,),
        controls=({"activation_function": "relu"}, {"scale_embedding": False}, {"decoder_start_token_id": 5}),
        idle=IDLE,
    ),
    "marian": Case(
        marian(),
        expand=(3,),
        controls=({"activation_function": "gelu"}, {"scale_embedding": False}),
        idle=IDLE,
    ),
    "marian_tables": Case(marian(), std=0.25, context=25, retensor=with_tables, idle=IDLE),
    "m2m_100": Case(
        M2M100Config(**SHAPE),
        lowest=2,  # no padding tokens, which do not count as positions
        expand=(2,),
        controls=({"pad_token_id": 0}, {"scale_embedding": False}, {"activation_function": "gelu"}),
        idle=IDLE,
    ),
    "whisper": Case(  # its logits are those of random spectra, see checkpoints.spectra()
        WhisperConfig(
            **HEADS | SIZES,
            num_mel_bins=6,
            max_source_positions=8,
            max_target_positions=16,
            decoder_start_token_id=3,
            pad_token_id=0,
            bos_token_id=0,
            eos_token_id=0,
            begin_suppress_tokens=None,
        ),
        expand=(3, 2),
        controls=({"activation_function": "relu"}, {"decoder_start_token_id": 5}),
        inert=({"scale_embedding": True},),
    ),
    "pegasus": Case(
        PegasusConfig(**SHAPE, activation_function="relu", scale_embedding=True),
        expand=(3, 2),
        controls=({"scale_embedding": False}, {"activation_function": "gelu"}, {"decoder_start_token_id": 5}),
        idle=IDLE,
    ),
}
