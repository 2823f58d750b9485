#!/usr/bin/env python3
"""Compares `regroup tokenize` with Python's `tokenizers`: the ids of every document, and the time per core.

    .venv/bin/python bench/tokenizers/tokenizers_package.py --work DIR --text wiki.txt /usr/include /usr/lib/python3

The text is what --text names (files, and all files in folders), then every character of Unicode, random words of many scripts,
emoji, control characters and broken UTF-8. Trains a tokenizer of each kind on it, or takes those of --tokenizer. Text and trained
tokenizers are kept in DIR. Exits with 1 if an id differs.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

import kinds  # noqa: E402  after the setting above, which counts when the package is loaded
import mixed_text  # noqa: E402
import numpy as np  # noqa: E402
import tokenizers  # noqa: E402


def slices_of(documents, size):
    """Lists of documents of about `size` bytes each."""
    part, held = [], 0
    for document in documents:
        part.append(document)
        held += len(document.encode())
        if held >= size:
            yield part
            part, held = [], 0
    if part:
        yield part


def reference_of(path):
    """The tokenizer, in which special tokens have names that no text spells. regroup takes spelled special tokens for text."""
    described = json.loads(path.read_text())
    hidden = {token["content"]: f"\ufdd0{token['id']}\ufdd1" for token in described["added_tokens"] if token["special"]}
    model = described["model"]
    if isinstance(model["vocab"], dict):
        model["vocab"] = {hidden.get(text, text): identity for text, identity in model["vocab"].items()}
    else:
        model["vocab"] = [[hidden.get(text, text), score] for text, score in model["vocab"]]
    if "unk_token" in model:
        model["unk_token"] = hidden.get(model["unk_token"], model["unk_token"])
    for token in described["added_tokens"]:
        token["content"] = hidden.get(token["content"], token["content"])
    described["post_processor"] = described["truncation"] = described["padding"] = None
    return tokenizers.Tokenizer.from_str(json.dumps(described))


def megatron(path):
    raw = path.with_suffix(".idx").read_bytes()
    sequences = int(np.frombuffer(raw, "<u8", 1, 18)[0])
    lengths = np.frombuffer(raw, "<i4", sequences, 34)
    return np.split(np.fromfile(path, {8: "<u2", 4: "<i4"}[raw[17]]), np.cumsum(lengths)[:-1])


def encoded_by_regroup(program, tokenizer, documents, work):
    """The ids of each document that is not empty, and the seconds of processor time."""
    text, output = work / "slice.jsonl", work / "slice.bin"
    text.write_text("".join(json.dumps({"text": document}) + "\n" for document in documents))
    for path in (output, output.with_suffix(".idx")):
        path.unlink(missing_ok=True)
    before = os.times()
    subprocess.run([program, "tokenize", text, "--tokenizer", tokenizer, "-o", output, "--no-bos", "--no-eos", "--threads", "1"],
                   check=True, capture_output=True)
    after = os.times()
    return megatron(output), after.children_user + after.children_system - before.children_user - before.children_system


def encoded_by_package(reference, documents):
    begin = time.process_time()
    encodings = reference.encode_batch_fast(documents, add_special_tokens=False)
    seconds = time.process_time() - begin
    return [each.ids for each in encodings if each.ids], seconds


def compare(program, path, documents, work):
    """One row of the table, and the number of documents whose ids differ."""
    reference = reference_of(path)
    size = tokens = differing = 0
    ours, theirs, ratios = 0.0, 0.0, []
    for part in slices_of(documents, 10_000_000):
        mine, seconds = encoded_by_regroup(program, path, part, work)
        expected, other_seconds = encoded_by_package(reference, part)
        differing += abs(len(mine) - len(expected)) + sum(not np.array_equal(a, b) for a, b in zip(mine, expected))
        tokens += sum(map(len, expected))
        size += sum(len(document.encode()) for document in part)
        ours, theirs = ours + seconds, theirs + other_seconds
        ratios.append(other_seconds / seconds)
    row = (f"| {path.stem} | {reference.get_vocab_size():,} | {size / 1e6:.0f} MB | {tokens:,} | {differing} | {size / 1e6 / ours:.1f} | "
           f"{size / 1e6 / theirs:.1f} | {theirs / ours:.1f} ({min(ratios):.1f} to {max(ratios):.1f}) |")
    return row, differing


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", required=True, type=pathlib.Path)
    parser.add_argument("--text", nargs="+", type=pathlib.Path, default=[], help="files and folders of text")
    parser.add_argument("--tokenizer", nargs="+", type=pathlib.Path, help="files like tokenizer.json (default: train one of each kind)")
    parser.add_argument("--size", type=int, default=100, help="megabytes of text (default: 100)")
    parser.add_argument("--regroup", default=pathlib.Path(__file__).resolve().parents[2] / "build/release/regroup")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    documents = mixed_text.documents(options.work / "text.jsonl", options.text, options.size * 1_000_000)
    paths = options.tokenizer or kinds.trained(options.work, documents)
    print("| Tokenizer | Tokens | Text | Ids | Documents that differ | regroup, MB/s | tokenizers, MB/s | Ratio (of slices) |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    wrong = 0
    for path in paths:
        row, differing = compare(options.regroup, path, documents, options.work)
        print(row, flush=True)
        wrong += differing
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
