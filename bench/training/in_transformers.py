"""Times training steps with PyTorch and transformers, for comparison with `regroup bench train`.

    in_transformers.py MODEL TOKENS --batch N --sequence T --steps N [--precision autocast|bf16|fp32] [--compile] ...

A plain loop: the model's own loss on consecutive windows of TOKENS (u16), fused AdamW, clipping. `autocast` keeps
weights and moments in float32 like regroup. `bf16` has everything in bfloat16. Prints JSON.
"""

import argparse
import json
import resource
import statistics
import time

import numpy as np
import torch
import transformers


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("tokens")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--precision", choices=("autocast", "bf16", "fp32"), default="autocast")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0)
    return parser.parse_args()


class Loop:
    def __init__(self, options):
        self.options = options
        dtype = torch.bfloat16 if options.precision == "bf16" else torch.float32
        self.model = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype)
        self.model.to(options.device).train()
        self.model.config.use_cache = False
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-4, betas=(0.9, 0.95), weight_decay=0.1,
                                           fused=True)
        self.forward = torch.compile(self.model) if options.compile else self.model
        self.tokens = np.memmap(options.tokens, dtype=np.uint16, mode="r")

    def batch(self, number):
        # One prediction in `sequence` less than regroup: a length that is no multiple of 8 costs attention its fast kernels.
        width = self.options.sequence
        count = self.options.batch * width
        begin = number * count % (len(self.tokens) - count)
        ids = self.tokens[begin:begin + count].astype(np.int64).reshape(self.options.batch, width)
        return torch.from_numpy(ids).to(self.options.device)

    def step(self, number):
        ids = self.batch(number)
        kind = torch.device(self.options.device).type
        with torch.autocast(kind, torch.bfloat16, enabled=self.options.precision == "autocast"):
            loss = self.forward(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()  # waits for the device, as regroup does in each step


def peak_memory(device):
    if torch.device(device).type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main():
    options = parse_arguments()
    if options.threads:
        torch.set_num_threads(options.threads)
    loop = Loop(options)
    seconds = []
    for number in range(options.warmup + options.steps):
        begin = time.perf_counter()
        loss = loop.step(number)
        if number >= options.warmup:
            seconds.append(time.perf_counter() - begin)
    per_step = statistics.median(seconds)
    print(json.dumps({"seconds_per_step": per_step, "last_loss": loss, "step_seconds": seconds,
                      "tokens_per_second": options.batch * options.sequence / per_step,
                      "peak_memory_bytes": peak_memory(options.device)}))


if __name__ == "__main__":
    main()
