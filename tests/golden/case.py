"""What describes one directory of fixtures, and the older forms of config.json that a case can ask for."""

import dataclasses

import checkpoints  # first: it ends the script where a package is missing
import torch


@dataclasses.dataclass(frozen=True)
class Case:
    config: object
    dtype: torch.dtype = torch.float32
    save: dict = dataclasses.field(default_factory=dict)  # options for save_pretrained
    attention: str = "eager"  # the implementation in transformers whose logits are expected
    std: float = 0.3  # of the random weights
    spread: float = 0.5  # at least so much, of the logits; T5 with tied weights divides them by the root of its width
    rewrite: object = None  # the config.json that transformers wrote -> the one to leave
    retensor: object = None  # the tensors that transformers wrote -> those to leave
    context: int = 13  # tokens in a window
    lowest: int = 0  # the first token that may occur in them
    untie: bool = False  # give the output projection weights of its own
    expand: tuple = ()  # numbers of kv heads to make a grouped model for, whose logits come from repeated heads
    pool: tuple = ()  # numbers of kv heads to make exact means for
    equal: int = 0  # number of kv heads that loses nothing, because the heads of each group are equal
    hub_twin: str = ""  # a second directory: the same model in the form of the family's original hub files
    controls: tuple = ()  # settings each of which, changed to this, must change the logits
    inert: tuple = ()  # settings that transformers does not heed: changed to this, they must not change the logits
    idle: tuple = ()  # ends of the names of parameters that cannot change the logits


def rope(theta, **settings):
    return {"rope_type": "default", "rope_theta": theta} | settings


def without(*keys):
    def rewrite(config):
        return {key: value for key, value in config.items() if key not in keys}

    return rewrite


def as_transformers_4(config):
    """The keys of older files: rope_theta, rope_scaling and partial_rotary_factor; torch_dtype."""
    scaling = config.pop("rope_parameters")
    older = {"rope_theta": scaling.pop("rope_theta"), "torch_dtype": config.pop("dtype")}
    if "partial_rotary_factor" in scaling:
        older["partial_rotary_factor"] = scaling.pop("partial_rotary_factor")
    older["rope_scaling"] = None if scaling == {"rope_type": "default"} else scaling
    return dict(sorted((config | older | {"transformers_version": "4.40.0"}).items()))


def float_bits(values, dtype="F32"):
    """A stored tensor, given its values as an array of numpy's."""
    return checkpoints.Stored(dtype, values.astype("<f4").view("<u4"))
