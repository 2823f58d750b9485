"""Makes optimizers.json: the results of torch's AdamW and of transformers' Adafactor and schedules.

At update t = 1, 2, …, the gradient of element i of a parameter is sin(1.3 i + 0.7 t) / t. Its first value is
cos(0.9 i). Everything is computed in float64.
"""

import json
import math
import pathlib

import torch
from transformers import optimization

SHAPES = [[3, 4], [4], [2, 3, 2]]
UPDATES = 6
RATE = 0.05


def numbers(function, shape):
    values = [function(i) for i in range(math.prod(shape))]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def train(make_optimizer):
    """Returns the parameters after UPDATES updates, each as a flat list."""
    parameters = [torch.nn.Parameter(numbers(lambda i: math.cos(0.9 * i), shape)) for shape in SHAPES]
    matrices = [p for p in parameters if p.dim() >= 2]
    others = [p for p in parameters if p.dim() < 2]
    optimizer = make_optimizer(matrices, others)
    for t in range(1, UPDATES + 1):
        for parameter in parameters:
            parameter.grad = numbers(lambda i, t=t: math.sin(1.3 * i + 0.7 * t) / t, list(parameter.shape))
        optimizer.step()
    return [parameter.detach().flatten().tolist() for parameter in parameters]


def adamw(matrices, others):
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95), eps=1e-8)


def adafactor(scale, decay):
    def make(matrices, others):
        groups = [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
        return optimization.Adafactor(groups, lr=RATE, relative_step=False, scale_parameter=scale, warmup_init=False)

    return make


def schedule(make):
    """Returns the learning rates of updates 1, 2, …. Schedulers count from 0, before the first update."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
    scheduler = make(optimizer)
    rates = []
    for _ in range(20):
        optimizer.step()
        scheduler.step()
        rates.append(scheduler.get_last_lr()[0])
    return rates


def cosine(optimizer):
    return optimization.get_cosine_with_min_lr_schedule_with_warmup(optimizer, 4, 20, min_lr_rate=0.1)


def wsd(optimizer):
    # warm-up from 0 and a decay to 0.1; transformers would warm up from 0.1
    return optimization.get_wsd_schedule(optimizer, 0, 8, num_training_steps=20, decay_type="linear", min_lr_ratio=0.1)


def main():
    golden = {
        "shapes": SHAPES,
        "updates": UPDATES,
        "rate": RATE,
        "adamw": train(adamw),
        "adafactor": train(adafactor(False, 0.0)),
        "adafactor_decayed": train(adafactor(False, 0.1)),
        "adafactor_scaled": train(adafactor(True, 0.0)),
        "cosine": schedule(cosine),
        "wsd": schedule(wsd),
        "constant": schedule(lambda o: optimization.get_constant_schedule_with_warmup(o, 4)),
    }
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in golden.items())
    (pathlib.Path(__file__).parent / "optimizers.json").write_text(f"{{{lines}}}\n")


if __name__ == "__main__":
    main()
