"""The models that are converted for the runtimes: one for each architecture, with 8 query heads and as many kv heads.

Sizes are ones that all runtimes compute: some have kernels only for head dimensions of 32 and more, and Nemotron-NAS
needs an MLP whose width is a multiple of 256.
"""

import copy
import dataclasses
import json
import pathlib

import checkpoints  # first: it skips the script if a package is missing
import transformers

LAYERS, HEADS, HEAD_DIM, WIDTH, MLP, VOCABULARY, POSITIONS = 2, 8, 32, 256, 512, 512, 256
FIRST_PLAIN_TOKEN = 4  # the ids below may be special
SPECIAL = dict(bos_token_id=1, eos_token_id=2, pad_token_id=0)
SHAPE = dict(
    SPECIAL,
    vocab_size=VOCABULARY,
    hidden_size=WIDTH,
    intermediate_size=MLP,
    num_hidden_layers=LAYERS,
    num_attention_heads=HEADS,
    max_position_embeddings=POSITIONS,
)
PLAIN = dict(SHAPE, num_key_value_heads=HEADS)
# Some runtimes assume MLPs of this width for the relatives of GPT.
GPT = dict(SPECIAL, vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_positions=POSITIONS)
NEOX = dict(SHAPE, intermediate_size=4 * WIDTH, rotary_pct=0.25)
OPT = dict(SHAPE, ffn_dim=4 * WIDTH, word_embed_proj_dim=WIDTH)
FALCON = dict(SHAPE, ffn_hidden_size=4 * WIDTH, multi_query=False, bias=False)


@dataclasses.dataclass(frozen=True)
class Source:
    config: object
    attention: str = "eager"  # transformers adds Falcon's ALiBi twice in "eager"
    std: float = 0.1  # of the weights: attention chooses between positions, and tokens do not repeat themselves


SOURCES = {
    "llama": Source(transformers.LlamaConfig(**PLAIN)),
    "mistral": Source(transformers.MistralConfig(**PLAIN, head_dim=HEAD_DIM, sliding_window=None)),
    "qwen2": Source(transformers.Qwen2Config(**PLAIN)),
    "qwen3": Source(transformers.Qwen3Config(**PLAIN, head_dim=HEAD_DIM)),
    "gemma": Source(transformers.GemmaConfig(**PLAIN, head_dim=HEAD_DIM)),
    "olmo": Source(transformers.OlmoConfig(**PLAIN)),
    "olmo2": Source(transformers.Olmo2Config(**PLAIN)),
    "phi": Source(transformers.PhiConfig(**PLAIN, partial_rotary_factor=0.5)),
    "stablelm": Source(transformers.StableLmConfig(**PLAIN, partial_rotary_factor=0.25)),
    "starcoder2": Source(transformers.Starcoder2Config(**PLAIN, sliding_window=None)),
    "nemotron": Source(transformers.NemotronConfig(**PLAIN, head_dim=HEAD_DIM, partial_rotary_factor=0.5)),
    "falcon": Source(
        transformers.FalconConfig(**FALCON, new_decoder_architecture=True, num_kv_heads=HEADS, alibi=False, parallel_attn=True)
    ),
    "falcon_rw": Source(transformers.FalconConfig(**FALCON | {"bias": True}, alibi=True, parallel_attn=False), attention="sdpa"),
    "gpt_bigcode": Source(transformers.GPTBigCodeConfig(**GPT, n_inner=4 * WIDTH, multi_query=False)),
    "gpt2": Source(transformers.GPT2Config(**GPT)),
    "opt": Source(transformers.OPTConfig(**OPT)),
    "gpt_neox": Source(transformers.GPTNeoXConfig(**NEOX)),
    "gpt_neox_sequential": Source(transformers.GPTNeoXConfig(**NEOX, use_parallel_residual=False)),
    "gptj": Source(transformers.GPTJConfig(**GPT, rotary_dim=16)),
    "bloom": Source(transformers.BloomConfig(**SPECIAL, vocab_size=VOCABULARY, hidden_size=WIDTH, n_layer=LAYERS, n_head=HEADS), std=0.3),
    "mpt": Source(
        transformers.MptConfig(
            **SPECIAL, vocab_size=VOCABULARY, d_model=WIDTH, n_layers=LAYERS, n_heads=HEADS, max_seq_len=POSITIONS
        )
    ),
}

# The same model with another spelling of its config, which some runtimes do not read.
NEW_SPELLING = ", saved by transformers 5"
ROPE = {"rope_type": "default", "rope_theta": 50000.0}
RESPELLED = ("llama", "mistral", "qwen2", "gemma", "olmo2", "phi", "stablelm", "starcoder2", "nemotron", "qwen3")


def respelled(source):
    config = copy.deepcopy(source.config)
    config.rope_parameters = dict(config.rope_parameters) | ROPE
    return dataclasses.replace(source, config=config)


SOURCES |= {name + NEW_SPELLING: respelled(SOURCES[name]) for name in RESPELLED}

# Rotary settings as transformers 4 wrote them, and as most published models still have them.
OLDER_KEYS = ("rope_theta", "partial_rotary_factor")
RENAMED = {"gpt_neox": {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"}}


def as_published(config):
    """A config.json of transformers 5 with the keys of transformers 4."""
    config = dict(config)
    rope = dict(config.pop("rope_parameters", None) or {})
    names = RENAMED.get(config["model_type"], {})
    for key in OLDER_KEYS:
        if key in rope:
            config[names.get(key, key)] = rope[key]
    config["torch_dtype"] = config.pop("dtype")
    if config["model_type"] == "gpt2":
        config["n_ctx"] = config["n_positions"]
    return config


def write_source(name, directory):
    """Writes the model with random weights."""
    source = SOURCES[name]
    checkpoints.random_model(source.config, seed=len(name), std=source.std).save_pretrained(directory)
    if name == "gpt2":  # its published files have no prefix
        weights = pathlib.Path(directory, "model.safetensors")
        tensors, _ = checkpoints.read_file(weights)
        checkpoints.write_file(weights, {key.removeprefix("transformer."): value for key, value in tensors.items()})
    path = pathlib.Path(directory, "config.json")
    if NEW_SPELLING not in name:
        path.write_text(json.dumps(as_published(json.loads(path.read_text())), indent=2))
    pathlib.Path(directory, "generation_config.json").unlink(missing_ok=True)  # it would name ids as ends
