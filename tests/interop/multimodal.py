"""Language models inside vision and audio models: transformers loads converted models and computes the same."""

import json
import shutil

import checkpoints  # first: it skips the script if a package is missing
import exact_mean
import torch
import transformers
from regroup_binary import TOLERANCE, expect, expect_same_logits, largest_difference, run_script
from transformers import AutoModelForImageTextToText, Qwen2AudioForConditionalGeneration

HEADS = 6
TEXT = dict(
    vocab_size=64,
    hidden_size=24,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=HEADS,
    num_key_value_heads=HEADS,
    max_position_embeddings=64,
)
TOWER = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=2, num_attention_heads=2, image_size=4, patch_size=2)
CLIP, SIGLIP = (TOWER | {"model_type": f"{kind}_vision_model"} for kind in ("clip", "siglip"))
QWEN = dict(depth=1, hidden_size=24, num_heads=2, patch_size=2)
SECTIONS = {"rope_type": "default", "rope_theta": 300.0, "mrope_section": [1, 1, 0]}
IMAGE = 63  # the token that a part of an image replaces


def with_text(kind, tower=CLIP, **settings):
    return dict(vision_config=tower, text_config=TEXT | {"model_type": kind}, image_token_index=IMAGE) | settings


# What regroup's table of such models has, as classes of transformers.
CONFIGS = {
    "llava": lambda: transformers.LlavaConfig(**with_text("llama")),
    "llava_next": lambda: transformers.LlavaNextConfig(**with_text("mistral")),
    "llava_next_video": lambda: transformers.LlavaNextVideoConfig(**with_text("llama")),
    "llava_onevision": lambda: transformers.LlavaOnevisionConfig(**with_text("qwen2", SIGLIP)),
    "video_llava": lambda: transformers.VideoLlavaConfig(**with_text("llama")),
    "vipllava": lambda: transformers.VipLlavaConfig(**with_text("llama", vision_feature_layers=[-2, -1])),
    "mistral3": lambda: transformers.Mistral3Config(**with_text("mistral", TOWER | {"model_type": "pixtral"})),
    "internvl": lambda: transformers.InternVLConfig(
        vision_config=TOWER | dict(image_size=[4, 4], patch_size=[2, 2]),
        text_config=TEXT | dict(model_type="qwen2"),
        image_token_id=IMAGE,
    ),
    "idefics3": lambda: transformers.Idefics3Config(
        vision_config=TOWER, text_config=TEXT | dict(model_type="llama", pad_token_id=0), scale_factor=1
    ),
    "smolvlm": lambda: transformers.SmolVLMConfig(
        vision_config=TOWER, text_config=TEXT | dict(model_type="llama", pad_token_id=0), scale_factor=1
    ),
    "qwen2_vl": lambda: transformers.Qwen2VLConfig(
        vision_config=QWEN | dict(embed_dim=8, mlp_ratio=1), text_config=TEXT | dict(rope_parameters=SECTIONS)
    ),
    "qwen2_5_vl": lambda: transformers.Qwen2_5_VLConfig(
        vision_config=QWEN | dict(hidden_size=8, intermediate_size=8, out_hidden_size=24),
        text_config=TEXT | dict(rope_parameters=SECTIONS),
    ),
    "qwen3_vl": lambda: transformers.Qwen3VLConfig(
        vision_config=QWEN
        | dict(hidden_size=8, intermediate_size=8, out_hidden_size=24, num_position_embeddings=4)
        | dict(deepstack_visual_indexes=[0]),
        text_config=TEXT | dict(head_dim=4, rope_parameters=SECTIONS),
    ),
    "gemma3": lambda: transformers.Gemma3Config(
        vision_config=TOWER,
        text_config=TEXT
        | dict(head_dim=8, sliding_window=5, layer_types=["sliding_attention", "full_attention"]),
        mm_tokens_per_image=4,
        image_token_index=IMAGE,
    ),
    "qwen2_audio": lambda: transformers.Qwen2AudioConfig(
        audio_config=dict(d_model=8, encoder_ffn_dim=8, encoder_layers=1, encoder_attention_heads=2, num_mel_bins=4)
        | dict(max_source_positions=4),
        text_config=TEXT | dict(model_type="qwen2"),
        audio_token_index=IMAGE,
    ),
}


def class_of(config):
    audio = config.model_type == "qwen2_audio"
    return Qwen2AudioForConditionalGeneration if audio else AutoModelForImageTextToText


def load(directory):
    """Raises if any tensor is missing, unexpected or misshapen."""
    config = transformers.AutoConfig.from_pretrained(directory)
    model, info = class_of(config).from_pretrained(
        directory, output_loading_info=True, dtype=torch.float32, attn_implementation="eager"
    )
    complaints = {kind: found for kind, found in info.items() if found}
    expect(not complaints, f"{directory}: transformers loads it with {complaints}")
    return model.eval()


def save_random(config, seed, directory):
    torch.manual_seed(seed)
    model = class_of(config)._from_config(config) if config.model_type == "qwen2_audio" else None
    model = model or AutoModelForImageTextToText.from_config(config)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            norm = parameter.ndim == 1 and name.endswith("weight")
            parameter.copy_(torch.randn(parameter.shape) * 0.3 + (1.0 if norm else 0.0))
    model.save_pretrained(directory)
    return directory


def is_language(name):
    return not any(part in name for part in ("vision", "visual", "audio_tower", "image_tower", "video_tower"))


def pool_by_hand(source, directory, groups):
    """Writes the source with exactly pooled keys and values and the number of them in text_config."""
    shutil.copytree(source, directory)
    tensors, _ = checkpoints.read_directory(source)
    for name, stored in tensors.items():
        if is_language(name) and checkpoints.is_key_or_value(name):
            pooled = exact_mean.pool_rows(stored.bits, stored.dtype, HEADS, groups)
            tensors[name] = checkpoints.Stored(stored.dtype, pooled)
    checkpoints.write_file(directory / "model.safetensors", tensors)
    config = json.loads((source / "config.json").read_text())
    config["text_config"]["num_key_value_heads"] = groups
    (directory / "config.json").write_text(json.dumps(config))


def text_logits(model, tokens):
    with torch.no_grad():
        return model(input_ids=torch.tensor(tokens), use_cache=False).logits.numpy()


def image_logits(model):
    """Of two windows with an image of four parts."""
    tokens = torch.tensor(checkpoints.random_tokens(IMAGE, 2, 12, seed=5))
    tokens[:, 3:7] = IMAGE
    pixels = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return model(input_ids=tokens, pixel_values=pixels, use_cache=False).logits.numpy()


def check_images(source, result, by_hand):
    """LLaVA with an image: the result computes the same as the pooled weights, which is not what the source does."""
    ours, theirs = image_logits(load(result)), image_logits(load(by_hand))
    expect((ours == theirs).all(), f"with an image, logits differ by {largest_difference(ours, theirs):.3g}")
    moved = largest_difference(image_logits(load(source)), theirs)
    expect(moved > 100 * TOLERANCE, f"pooling moved the logits with an image by {moved:.3g} only")
    print("  llava with an image: the same logits as pooled weights")


# Where transformers ties an output that is not stored, by tie_word_embeddings of the whole model and of its language model.
TIED = {"llava": (False, True), "qwen2_vl": (False, True), "mistral3": (None, None), "internvl": (None, None)}


def remove_output(source, directory, settings):
    shutil.copytree(source, directory)
    tensors, _ = checkpoints.read_directory(source)
    kept = {name: stored for name, stored in tensors.items() if "lm_head" not in name}
    checkpoints.write_file(directory / "model.safetensors", kept)
    config = json.loads((source / "config.json").read_text())
    for part, tied in zip((config, config["text_config"]), settings, strict=True):
        part.pop("tie_word_embeddings", None)
        part.update({} if tied is None else {"tie_word_embeddings": tied})
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def check(regroup, scratch):
    for seed, (name, config) in enumerate(CONFIGS.items()):
        source = save_random(config(), seed, scratch / name)
        result, by_hand = scratch / f"{name}_2", scratch / f"{name}_by_hand"
        tokens = checkpoints.random_tokens(IMAGE - 3, 2, 13, seed)
        expect_same_logits(regroup.logits(source, tokens), text_logits(load(source), tokens), name)
        regroup.convert(source, result, 2)
        pool_by_hand(source, by_hand, 2)
        tensors, _ = checkpoints.read_directory(result)
        wanted, _ = checkpoints.read_directory(by_hand)
        same = tensors.keys() == wanted.keys() and all(tensors[key].same_as(wanted[key]) for key in wanted)
        expect(same, f"{name}: the result's tensors are not the pooled ones")
        model = load(result)
        expect_same_logits(regroup.logits(result, tokens), text_logits(model, tokens), f"{name} at 2")
        if name in TIED:
            tied = remove_output(source, scratch / f"{name}_tied", TIED[name])
            expect_same_logits(regroup.logits(tied, tokens), text_logits(load(tied), tokens), f"{name} tied")
        if name == "llava":
            check_images(source, result, by_hand)
        regroup.run("expand", result, scratch / f"{name}_6", "--kv-heads", HEADS)
        expect_same_logits(
            text_logits(load(scratch / f"{name}_6"), tokens), text_logits(model, tokens), f"{name} expanded"
        )


run_script(__doc__, check)
