"""Cases of language models inside vision models. Windows are text alone."""

import torch
from case import Case, rope
from transformers import LlavaConfig, Qwen2_5_VLConfig, Qwen3VLConfig

TEXT = dict(
    vocab_size=48,
    hidden_size=24,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=6,
    num_key_value_heads=6,
    max_position_embeddings=32,
)
TINY = dict(hidden_size=8, intermediate_size=8, num_heads=2, depth=1, patch_size=2, out_hidden_size=24)
CLIP = dict(
    model_type="clip_vision_model",
    hidden_size=8,
    intermediate_size=8,
    num_hidden_layers=2,
    num_attention_heads=2,
    image_size=4,
    patch_size=2,
)
SPECIAL = dict(image_token_id=47, video_token_id=46, vision_start_token_id=45, vision_end_token_id=44)


def mrope(theta, section):
    """`section`: pairs of dimensions for the time, height and width of a part of an image, which are equal in text."""
    return rope(theta, mrope_section=section)


def as_in_2025(config):
    """Like the hub's Qwen2.5-VL: the language model's keys at the top, RoPE's type "mrope"."""
    text = config.pop("text_config")
    rope = text.pop("rope_parameters")
    older = {"rope_theta": rope["rope_theta"], "torch_dtype": config.pop("dtype")}
    older["rope_scaling"] = {"type": "mrope", "mrope_section": rope["mrope_section"]}
    kept = {key: value for key, value in text.items() if key not in ("model_type", "layer_types", "dtype")}
    return dict(sorted((kept | config | older | {"transformers_version": "4.41.2"}).items()))


CASES = {
    "llava": Case(
        LlavaConfig(
            vision_config=CLIP,
            text_config=TEXT | dict(model_type="llama", rope_parameters=rope(300.0), rms_norm_eps=0.02),
            image_token_index=47,
        ),
        dtype=torch.bfloat16,
        pool=(3, 2),
        language="language_model.model.",
    ),
    "qwen2_5_vl": Case(
        Qwen2_5_VLConfig(
            vision_config=TINY | dict(out_hidden_size=48),
            text_config=TEXT | dict(hidden_size=48, rope_parameters=mrope(300.0, [1, 1, 2]), rms_norm_eps=0.02),
            tie_word_embeddings=True,
            **SPECIAL,
        ),
        rewrite=as_in_2025,
        pool=(3, 2),
        language="model.",
    ),
    "qwen3_vl": Case(
        Qwen3VLConfig(
            vision_config=TINY | dict(num_position_embeddings=4, deepstack_visual_indexes=[0]),
            text_config=TEXT | dict(head_dim=12, rope_parameters=mrope(300.0, [2, 2, 2]), rms_norm_eps=0.02),
            **SPECIAL,
        ),
        dtype=torch.bfloat16,
        pool=(3, 2),
        language="model.language_model.",
    ),
}
