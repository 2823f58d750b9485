"""The description of a fixture directory, and older forms of config.json that a case can use."""

import dataclasses

import checkpoints  # first: it ends the script if a package is missing
import torch


@dataclasses.dataclass(frozen=True)
class Case:
    config: object
    dtype: torch.dtype = torch.float32
    save: dict = dataclasses.field(default_factory=dict)  # options for save_pretrained
    attention: str = "eager"  # the attention implementation in transformers that computes the logits
    std: float = 0.3  # of the random weights
    spread: float = 0.5  # the least standard deviation of the logits; tied T5 divides them by the root of its width
    rewrite: object = None  # function from the config.json of transformers to the final one
    retensor: object = None  # function from the tensors of transformers to the final ones
    context: int = 13  # tokens in a window
    lowest: int = 0  # the lowest token in the windows
    untie: bool = False  # give the output projection its own weights
    expand: tuple = ()  # numbers of kv heads for grouped models, whose logits come from repeated heads
    pool: tuple = ()  # numbers of kv heads for exact means
    equal: int = 0  # number of kv heads without loss, because the heads of each group are equal
    hub_twin: str = ""  # a second directory with the same model in the form of the family's original hub files
    controls: tuple = ()  # settings that must change the logits, one by one
    inert: tuple = ()  # settings that transformers ignores: they must not change the logits
    language: str = ""  # what the names of the language model's layers begin with, if it is a part of another model
    idle: tuple = ()  # ends of the names of parameters that do not change the logits


def rope(theta, **settings):
    return {"rope_type": "default", "rope_theta": theta} | settings


def without(*keys):
    def rewrite(config):
        return {key: value for key, value in config.items() if key not in keys}

    return rewrite


def as_transformers_4(config):
    """Uses older keys: rope_theta, rope_scaling, partial_rotary_factor and torch_dtype."""
    scaling = config.pop("rope_parameters")
    older = {"rope_theta": scaling.pop("rope_theta"), "torch_dtype": config.pop("dtype")}
    if "partial_rotary_factor" in scaling:
        older["partial_rotary_factor"] = scaling.pop("partial_rotary_factor")
    older["rope_scaling"] = None if scaling == {"rope_type": "default"} else scaling
    return dict(sorted((config | older | {"transformers_version": "4.40.0"}).items()))


def float_bits(values, dtype="F32"):
    """A stored tensor from a numpy array of values."""
    return checkpoints.Stored(dtype, values.astype("<f4").view("<u4"))
