"""Makes a Hugging Face directory of a GPT-2 of nanoGPT's ckpt.pt, which has no config and its projections transposed.

    python -m regroup.nanogpt ckpt.pt OUTPUT

needs torch and transformers. The file's pickle is not executed. There is no tokenizer in it: copy one into OUTPUT, for most
models GPT-2's.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

TRANSPOSED = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")


def convert(checkpoint: str, output: str) -> None:
    """Writes `output`, whose logits are those of the checkpoint."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    content: dict[str, Any] = torch.load(checkpoint, map_location="cpu", weights_only=True)
    sizes = content["model_args"]
    config = GPT2Config(
        vocab_size=sizes["vocab_size"],
        n_positions=sizes["block_size"],
        n_embd=sizes["n_embd"],
        n_layer=sizes["n_layer"],
        n_head=sizes["n_head"],
        activation_function="gelu",
    )
    model = GPT2LMHeadModel(config)
    state = {name: torch.zeros_like(value) for name, value in model.state_dict().items() if name.endswith(".bias")}
    for name, value in content["model"].items():
        name = name.removeprefix("_orig_mod.")
        state[name] = value.t().contiguous() if name.endswith(TRANSPOSED) else value
    model.load_state_dict(state, strict=True)
    model.save_pretrained(output)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m regroup.nanogpt", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkpoint", help="ckpt.pt")
    parser.add_argument("output", help="a directory")
    options = parser.parse_args(words)
    try:
        convert(options.checkpoint, options.output)
    except ImportError as fault:
        print(f"regroup.nanogpt: {fault}: pip install torch transformers", file=sys.stderr)
        return 4
    except (KeyError, RuntimeError, OSError, ValueError, TypeError) as fault:
        print(f"regroup.nanogpt: {options.checkpoint}: no checkpoint of nanoGPT: {str(fault).splitlines()[0]}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
