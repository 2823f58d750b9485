#!/usr/bin/env python3
"""Tokenizes text with a tokenizer that exists only as Python code, or without regroup.

    scripts/tokenize_with_transformers.py articles.jsonl --tokenizer Qwen-7B --transformers -o corpus.bin

Reads the same input as `regroup tokenize`: text files with one document each, or JSON lines. Writes X.bin with
Megatron's X.idx (ids as u16 if the vocabulary allows it, else i32), or X.npy. Needs the packages transformers and numpy;
without --transformers tokenizers, for a tokenizer.json.
"""

import argparse
import array
import itertools
import json
import os
import pathlib
import sys

import numpy as np

MAGIC = b"MMIDIDX\0\0"


def documents_of(paths, field):
    """Each document's text, in order."""
    for path in paths:
        stream = sys.stdin.buffer if path == "-" else open(path, "rb")
        with stream:
            if pathlib.Path(path).suffix not in (".jsonl", ".ndjson"):
                yield stream.read().decode("utf-8")
                continue
            for number, line in enumerate(stream, 1):
                if line.strip():
                    text = json.loads(line).get(field)
                    if not isinstance(text, str):
                        sys.exit(f'{path}:{number}: "{field}" is no string')
                    yield text


class FastTokenizer:
    def __init__(self, path):
        import tokenizers

        path = pathlib.Path(path)
        self.tokenizer = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json" if path.is_dir() else path))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.vocabulary = self.tokenizer.get_vocab_size(with_added_tokens=True)

    def encode(self, texts):
        return [each.ids for each in self.tokenizer.encode_batch(texts, add_special_tokens=False)]


class SlowTokenizer:
    def __init__(self, path):
        import transformers

        self.tokenizer = transformers.AutoTokenizer.from_pretrained(path, local_files_only=True)
        self.vocabulary = len(self.tokenizer)

    def encode(self, texts):
        return self.tokenizer(texts, add_special_tokens=False)["input_ids"]


def special_token(directory, role, given, wanted):
    """The id to put at one end of each document, or None."""
    if given is not None or not wanted:
        return given
    for name in ("generation_config.json", "config.json"):
        file = pathlib.Path(directory, name)
        identity = json.loads(file.read_text()).get(f"{role}_token_id") if file.is_file() else None
        identity = identity[0] if isinstance(identity, list) else identity
        if isinstance(identity, int):
            return identity
    sys.exit(f"{directory}: no config names the {role} token: give --{role}-token ID, or --no-{role}")


def write_index(path, code, token_bytes, lengths):
    lengths = np.frombuffer(lengths, np.int32)
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    with open(path, "xb") as file:
        file.write(MAGIC + np.uint64(1).tobytes() + bytes([code]))
        file.write(np.array([len(lengths), len(lengths) + 1], np.uint64).tobytes())
        file.write(lengths.tobytes() + (starts * token_bytes).tobytes())
        file.write(np.arange(len(lengths) + 1, dtype=np.int64).tobytes())


def tokenize(tokenizer, texts, ends, data, dtype):
    """Appends ids to the file `data`. Returns each document's length. Skips documents without text."""
    bos, eos = ([] if token is None else [token] for token in ends)
    lengths = array.array("i")
    while batch := list(itertools.islice(texts, 256)):
        for ids in tokenizer.encode(batch):
            if ids:
                ids = bos + ids + eos
                data.write(np.array(ids, dtype).tobytes())
                lengths.append(len(ids))
    return lengths


def publish(output, data, lengths, code, dtype):
    """Renames the files to their final names, last the one that readers open first."""
    if output.suffix == ".npy":
        ids = np.memmap(data, dtype, "r")
        partial = data.with_suffix(".npy")
        np.save(partial, ids)
        data.unlink()
        partial.rename(output)
        return
    write_index(output.with_suffix(".idx"), code, np.dtype(dtype).itemsize, lengths)
    data.rename(output)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+", help="text files or JSON lines; - for standard input")
    parser.add_argument("--tokenizer", required=True, help="tokenizer.json or its directory")
    parser.add_argument("-o", "--output", required=True, type=pathlib.Path, help="X.bin or X.npy, new")
    parser.add_argument("--field", default="text", help="JSON lines: the field with the document")
    parser.add_argument("--transformers", action="store_true", help="tokenize with transformers' AutoTokenizer")
    for role, default in (("bos", False), ("eos", True)):
        parser.add_argument(f"--{role}", action=argparse.BooleanOptionalAction, default=default,
                            help=f"put the {role} token of the model's config around each document")
        parser.add_argument(f"--{role}-token", type=int, help="its id")
    options = parser.parse_args()
    output = options.output
    if output.suffix not in (".bin", ".npy"):
        parser.error(f"{output}: allowed are names that end in .bin or .npy")
    for path in (output, output.with_suffix(".idx")):
        if path.exists() and (path == output or output.suffix == ".bin"):
            parser.error(f"{path}: exists already")

    tokenizer = (SlowTokenizer if options.transformers else FastTokenizer)(options.tokenizer)
    ends = [special_token(options.tokenizer, role, getattr(options, f"{role}_token"), getattr(options, role))
            for role in ("bos", "eos")]
    vocabulary = max([tokenizer.vocabulary] + [token + 1 for token in ends if token is not None])
    dtype, code = ("<u2", 8) if vocabulary <= 65536 else ("<u4" if output.suffix == ".npy" else "<i4", 4)
    partial = output.with_name(f"{output.name}.partial-{os.getpid()}")
    try:
        with open(partial, "xb") as data:
            lengths = tokenize(tokenizer, documents_of(options.inputs, options.field), ends, data, dtype)
        if not lengths:
            sys.exit("no text in the inputs")
        publish(output, partial, lengths, code, dtype)
    finally:
        partial.unlink(missing_ok=True)
    print(f"{output}: {sum(lengths):,} tokens in {len(lengths):,} documents, {np.dtype(dtype).itemsize * 8} bits each")


if __name__ == "__main__":
    main()
