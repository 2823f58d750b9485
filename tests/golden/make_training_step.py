"""Makes training_step.safetensors in some fixtures: two training steps by torch and transformers.

It has the loss and its gradients, and for some fixtures every weight after two steps on the same tokens, by AdamW and
by Adafactor, with gradients clipped to a norm of 1. Everything is computed in float64 and stored in float32.
"""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "interop"))

import case
import checkpoints
import make_optimizers
import numpy as np
import own_experts  # noqa: F401  (transformers has no DeepSeek-MoE)
import torch

GRADIENTS = ("llama_mha", "gpt2", "bloom", "t5_v1_1", "mixtral_stacked", "deepseek")
UPDATES = ("llama_mha", "t5_v1_1")


def adamw(matrices, others):
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=make_optimizers.RATE, betas=(0.9, 0.95), eps=1e-2)


OPTIMIZERS = {"adamw": adamw, "adafactor": make_optimizers.adafactor(True, 0.0)}


def loss_of(model, tokens):
    """The mean over the predicted tokens: all but the first, or with an encoder the second half. With experts, plus the
    load-balancing loss."""
    if model.config.is_encoder_decoder:
        start = model.config.decoder_start_token_id
        source, shifted = checkpoints.halves(tokens, model.config.pad_token_id if start is None else start)
        targets = tokens[:, source.shape[1] :]
        inputs = {"input_ids": torch.tensor(source), "decoder_input_ids": torch.tensor(shifted)}
    else:
        targets = tokens[:, 1:]
        inputs = {"input_ids": torch.tensor(tokens[:, :-1])}
    routed = hasattr(model.config, "router_aux_loss_coef")
    output = model(**inputs, use_cache=False, **{"output_router_logits": True} if routed else {})
    loss = torch.nn.functional.cross_entropy(output.logits.flatten(0, 1), torch.tensor(targets).flatten())
    if routed:
        return loss + model.config.router_aux_loss_coef * output.aux_loss
    return loss + model.balance() if hasattr(model, "balance") else loss


def read_case(name):
    tokens, _ = checkpoints.read_file(HERE / name / "expected.safetensors")
    return checkpoints.load(HERE / name).double(), tokens["tokens"].bits.view(np.int64)


def after_two_steps(name, make_optimizer):
    model, tokens = read_case(name)
    parameters = list(model.parameters())
    optimizer = make_optimizer([p for p in parameters if p.dim() >= 2], [p for p in parameters if p.dim() < 2])
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(model, tokens).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
    return {parameter: value.detach() for parameter, value in model.named_parameters()}


def main():
    for name in sys.argv[1:] or GRADIENTS:
        model, tokens = read_case(name)
        loss = loss_of(model, tokens)
        loss.backward()
        found = {"loss": loss.detach()}
        found |= {f"gradient.{parameter}": value.grad for parameter, value in model.named_parameters()}
        for optimizer, make in OPTIMIZERS.items() if name in UPDATES else ():
            found |= {f"{optimizer}.{parameter}": value for parameter, value in after_two_steps(name, make).items()}
        stored = {key: case.float_bits(value.to(torch.float32).numpy()) for key, value in found.items()}
        checkpoints.write_file(HERE / name / "training_step.safetensors", stored)


if __name__ == "__main__":
    main()
