"""Checks that two checkpoints have the same tensors bit for bit, in any shards. A B"""

import json
import sys
from pathlib import Path

import torch
from safetensors import safe_open


def shard_of_each(directory):
    """The file of every tensor."""
    index = Path(directory) / "model.safetensors.index.json"
    if index.exists():
        names = json.loads(index.read_text())["weight_map"]
        return {name: Path(directory) / shard for name, shard in names.items()}
    only = Path(directory) / "model.safetensors"
    with safe_open(only, "pt") as file:
        return dict.fromkeys(file.keys(), only)


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.view(torch.uint8),
                                                                     b.view(torch.uint8))


def main():
    ours, theirs = map(shard_of_each, sys.argv[1:3])
    if ours.keys() != theirs.keys():
        sys.exit(f"other tensors: {sorted(ours.keys() ^ theirs.keys())[:3]}")
    for name in sorted(ours):
        with safe_open(ours[name], "pt") as a, safe_open(theirs[name], "pt") as b:
            if not same_bits(a.get_tensor(name), b.get_tensor(name)):
                sys.exit(f"tensor '{name}' differs")
    print(f"{len(ours)} tensors, the same bits")


if __name__ == "__main__":
    main()
