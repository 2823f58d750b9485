"""The models of the study: their architecture and training.

There is one kind for each way to encode positions. Every kind has 8 query heads, which allows ratios of 2:1, 4:1 and
8:1 (multi-query), and reads bytes, token i is byte i, or the tokens of a tokenizer.
"""
from dataclasses import dataclass

QUERY_HEADS = 8
BYTES = 256  # the vocabulary without a tokenizer


@dataclass(frozen=True)
class Scale:
    """Model sizes and training lengths. Lengths are in tokens."""

    head_dim: int
    layers: int
    sequence: int
    batch: int
    pretrain_steps: int
    pretrain_rate: float
    uptrain_rates: tuple  # candidates, of which each method takes the best
    eval_windows: int
    calibration_tokens: int
    distilled_tokens: int = 262144
    declared: int = 1  # sequences that fit the positions of a model; those after the first are not trained
    vocabulary: int = BYTES  # T5 has one more token, with which its decoder starts
    dtype: str = "fp32"  # of the computation of training

    @property
    def hidden(self):
        return QUERY_HEADS * self.head_dim

    @property
    def deviation(self):
        """The standard deviation of fresh weights. It equals GPT-2's 0.02 at D = 2500. At D = 128, 0.02 would let heads
        grow from almost zero, and the models would have a lower rank than real ones."""
        return self.hidden ** -0.5

    @property
    def tokens_per_step(self):
        return self.batch * self.sequence


SCALES = {
    # 0.8 million parameters: the whole study in about an hour on two cores.
    "small": Scale(head_dim=16, layers=4, sequence=128, batch=8, pretrain_steps=1400,
                   pretrain_rate=3e-3, uptrain_rates=(1e-3, 2e-3, 4e-3), eval_windows=256,
                   calibration_tokens=4096),
    # 27 million parameters with 8192 tokens: an hour on two cores, for one kind and one seed.
    "medium": Scale(head_dim=64, layers=6, sequence=256, batch=8, pretrain_steps=1000,
                    pretrain_rate=1e-3, uptrain_rates=(6e-5, 2e-4, 5e-4), eval_windows=128,
                    calibration_tokens=16384, dtype="bf16"),
    # 25 million parameters: for a GPU, and more text than a few megabytes.
    "large": Scale(head_dim=64, layers=8, sequence=512, batch=32, pretrain_steps=8000,
                   pretrain_rate=1e-3, uptrain_rates=(3e-4, 6e-4, 1e-3), eval_windows=512,
                   calibration_tokens=65536),
    # For extrapolation.py: as "small", and read in windows of up to 16 sequences.
    "length-128": Scale(head_dim=16, layers=4, sequence=128, batch=8, pretrain_steps=1400,
                        pretrain_rate=3e-3, uptrain_rates=(1e-3,), eval_windows=512,
                        calibration_tokens=4096, declared=16),
    "length-512": Scale(head_dim=16, layers=4, sequence=512, batch=2, pretrain_steps=1400,
                        pretrain_rate=3e-3, uptrain_rates=(1e-3,), eval_windows=128,
                        calibration_tokens=4096, declared=16),
    # Takes seconds, to check that everything runs. The numbers mean nothing.
    "smoke": Scale(head_dim=4, layers=2, sequence=32, batch=2, pretrain_steps=200,
                   pretrain_rate=3e-3, uptrain_rates=(1e-3,), eval_windows=8,
                   calibration_tokens=64, distilled_tokens=4096),
    "length-smoke": Scale(head_dim=4, layers=2, sequence=16, batch=2, pretrain_steps=100,
                          pretrain_rate=3e-3, uptrain_rates=(1e-3,), eval_windows=32,
                          calibration_tokens=64, declared=16),
}


@dataclass(frozen=True)
class Kind:
    key: str
    label: str
    sizes: object  # Scale -> dict, the family's part of a config.json
    # The encoder reads the first half of a window, and the decoder writes the second. Therefore windows are twice as
    # long and batches half as large. Span corruption, T5's own task, predicts too few bytes of a window for such a
    # short training. The number of steps is doubled, because the learned bias table starts at zero and needs a
    # thousand steps to grow.
    has_encoder: bool = False

    def config(self, scale):
        return {**self.sizes(scale), "initializer_range": scale.deviation, "bos_token_id": None,
                "torch_dtype": "float32"}

    @property
    def task_options(self):
        return ("--objective", "continuation") if self.has_encoder else ()

    def window(self, scale):
        return scale.sequence * (2 if self.has_encoder else 1)

    def batch(self, scale):
        return scale.batch // (2 if self.has_encoder else 1)

    def pretrain_steps(self, scale):
        return scale.pretrain_steps * (2 if self.has_encoder else 1)


def rope(scale):
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "hidden_size": scale.hidden, "intermediate_size": scale.hidden * 43 // 16,
        "num_hidden_layers": scale.layers, "num_attention_heads": QUERY_HEADS,
        "num_key_value_heads": QUERY_HEADS, "head_dim": scale.head_dim, "vocab_size": scale.vocabulary,
        "max_position_embeddings": max(8, scale.declared) * scale.sequence, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False,
        "eos_token_id": None}


def qk_all(scale):
    return {**rope(scale), "architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2"}


def qk_each(scale):
    return {**rope(scale), "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": False}


def alibi(scale):
    return {
        "architectures": ["BloomForCausalLM"], "model_type": "bloom",
        "hidden_size": scale.hidden, "n_layer": scale.layers, "n_head": QUERY_HEADS,
        "vocab_size": scale.vocabulary, "layer_norm_epsilon": 1e-5,
        "apply_residual_connection_post_layernorm": False, "tie_word_embeddings": True,
        "eos_token_id": None}


def learned(scale):
    return {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": scale.hidden,
        "n_layer": scale.layers, "n_head": QUERY_HEADS, "n_positions": scale.declared * scale.sequence,
        "vocab_size": scale.vocabulary, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": True, "eos_token_id": None}


def sinusoidal(scale):
    return {
        "architectures": ["XGLMForCausalLM"], "model_type": "xglm", "d_model": scale.hidden,
        "ffn_dim": 4 * scale.hidden, "num_layers": scale.layers, "attention_heads": QUERY_HEADS,
        "max_position_embeddings": scale.declared * scale.sequence, "vocab_size": scale.vocabulary,
        "activation_function": "gelu", "scale_embedding": True, "init_std": scale.deviation,
        "tie_word_embeddings": True, "eos_token_id": None, "pad_token_id": None}


def t5(scale):
    return {
        "architectures": ["T5ForConditionalGeneration"], "model_type": "t5",
        "is_encoder_decoder": True, "d_model": scale.hidden, "d_kv": scale.head_dim,
        "d_ff": 2 * scale.hidden, "num_layers": max(1, scale.layers // 2),
        "num_decoder_layers": max(1, scale.layers - 1), "num_heads": QUERY_HEADS,
        "vocab_size": scale.vocabulary + 1, "feed_forward_proj": "gated-gelu",
        "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128,
        "layer_norm_epsilon": 1e-6, "tie_word_embeddings": False, "pad_token_id": scale.vocabulary,
        "decoder_start_token_id": scale.vocabulary}


KINDS = {kind.key: kind for kind in (
    Kind("rope", "RoPE (Llama)", rope),
    Kind("qk-all", "RoPE, queries and keys normalised over all heads (OLMo 2)", qk_all),
    Kind("qk-each", "RoPE, queries and keys normalised in each head (Qwen3)", qk_each),
    Kind("alibi", "ALiBi (BLOOM)", alibi),
    Kind("learned", "learned positions (GPT-2)", learned),
    Kind("sinusoidal", "sinusoids (XGLM)", sinusoidal),
    Kind("t5", "relative bias (T5)", t5, has_encoder=True),
)}

COMPARED_KINDS = ("rope", "alibi", "learned", "t5")  # those of the study of methods
POSITION_KINDS = (*COMPARED_KINDS, "sinusoidal")
