"""The models the fixtures are made of: one entry per directory."""

import dataclasses

import checkpoints  # first: it ends the script where a package is missing
import torch
from transformers import BloomConfig, GPT2Config, LlamaConfig, MistralConfig, Qwen2Config

BATCH, CONTEXT = 2, 13


@dataclasses.dataclass(frozen=True)
class Case:
    config: object
    dtype: torch.dtype = torch.float32
    save: dict = dataclasses.field(default_factory=dict)  # options for save_pretrained
    rewrite: object = None  # the config.json that transformers wrote -> the one to leave
    pool: tuple = ()  # numbers of kv heads to make exact means for
    equal: int = 0  # number of kv heads that loses nothing, because the heads of each group are equal
    hub_twin: str = ""  # a second directory: the same model in the form of the family's original hub files
    controls: tuple = ()  # settings each of which, changed to this, must change the logits


def rope(theta):
    return {"rope_type": "default", "rope_theta": theta}


def llama(heads, kv_heads, **settings):
    shape = dict(vocab_size=64, hidden_size=36, intermediate_size=40, num_hidden_layers=2)
    return LlamaConfig(**shape | settings, num_attention_heads=heads, num_key_value_heads=kv_heads)


def gpt2(**settings):
    return GPT2Config(vocab_size=64, n_positions=16, n_layer=2, n_head=6, bos_token_id=0, eos_token_id=0, **settings)


def bloom(**settings):
    return BloomConfig(**dict(vocab_size=64, n_layer=2, n_head=6) | settings)


def as_transformers_4(config):
    """The keys of older files: rope_theta and rope_scaling, torch_dtype; and head_dim left to the reader."""
    theta = config.pop("rope_parameters")["rope_theta"]
    del config["head_dim"]
    older = {"rope_scaling": None, "rope_theta": theta, "torch_dtype": config.pop("dtype")}
    return dict(sorted((config | older | {"transformers_version": "4.40.0"}).items()))


def without_kv_heads(config):
    """As in the files of the first Llama, which knew only MHA."""
    del config["num_key_value_heads"]
    return config


GROUPED_LLAMA = llama(12, 4, head_dim=8, rope_parameters=rope(500.0), rms_norm_eps=0.02)
HALF_LLAMA = llama(12, 12, head_dim=4, rope_parameters=rope(100.0))

CASES = {
    "llama": Case(GROUPED_LLAMA, controls=({"rope_parameters": rope(10000.0)}, {"rms_norm_eps": 1e-6})),
    "llama_sharded": Case(GROUPED_LLAMA, save={"max_shard_size": "20KB"}),
    "llama_mha": Case(
        llama(6, 6, tie_word_embeddings=True, attention_bias=True, mlp_bias=True, rope_parameters=rope(300.0)),
        rewrite=as_transformers_4,
        pool=(3, 2),
        controls=({"rope_parameters": rope(10000.0)},),
    ),
    "llama_bf16": Case(HALF_LLAMA, dtype=torch.bfloat16, pool=(4, 1)),
    "llama_fp16": Case(HALF_LLAMA, dtype=torch.float16, pool=(4, 1), rewrite=without_kv_heads),
    "qwen2": Case(
        Qwen2Config(
            vocab_size=97,
            hidden_size=48,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=6,
            num_key_value_heads=2,
            tie_word_embeddings=True,
            rope_parameters=rope(1000000.0),
        ),
        controls=({"rope_parameters": rope(10000.0)},),
    ),
    "mistral": Case(
        MistralConfig(
            vocab_size=80,
            hidden_size=32,
            intermediate_size=56,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            sliding_window=5,  # query i sees keys i-4 … i
        ),
        controls=({"sliding_window": None}, {"sliding_window": 4}, {"sliding_window": 6}),
    ),
    "gpt2": Case(
        gpt2(n_embd=36, layer_norm_epsilon=0.05),
        hub_twin="gpt2_base",
        controls=({"layer_norm_epsilon": 1e-5}, {"activation_function": "relu"}),
    ),
    "bloom": Case(
        bloom(hidden_size=24, n_layer=3),
        hub_twin="bloom_base",
        controls=({"apply_residual_connection_post_layernorm": True},),
    ),
    "bloom_12": Case(
        bloom(hidden_size=36, n_head=12, apply_residual_connection_post_layernorm=True, layer_norm_epsilon=0.05),
        controls=({"apply_residual_connection_post_layernorm": False}, {"layer_norm_epsilon": 1e-5}),
    ),
    "equal_heads": Case(llama(8, 8, hidden_size=32, tie_word_embeddings=True), equal=2),
    "equal_heads_gpt2": Case(gpt2(n_embd=30), equal=2),
    "equal_heads_bloom": Case(bloom(hidden_size=30), equal=2),
}
