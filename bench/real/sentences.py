#!/usr/bin/env python3
"""What an encoder's conversion does to its sentence embeddings: one row for each result.

    python3 bench/real/sentences.py SOURCE RESULT... --text wiki.test.txt

Models are directories that sentence-transformers loads; it pools and normalises as their modules.json says, and runs the code that a result carries (`pip install
sentence-transformers`). Sentences are taken from all over the text. The columns: the mean cosine of each embedding with the source's,
the least one, and the order of the similarities of all pairs (Spearman). Prints a table in Markdown.
"""

import argparse
import pathlib
import re

import torch
from sentence_transformers import SentenceTransformer


def sentences_of(path, count):
    text = " ".join(line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith(" ="))
    found = [part.strip() for part in re.split(r"(?<=[.!?])\s+", text)]
    found = [part for part in found if 40 <= len(part) <= 300]
    if len(found) < count:
        raise SystemExit(f"{path}: has {len(found)} sentences of 40 to 300 characters, {count} are needed")
    return found[:: len(found) // count][:count]


def similarities(embeddings):
    """Of all pairs, without a sentence and itself."""
    above = torch.triu_indices(len(embeddings), len(embeddings), 1)
    return (embeddings @ embeddings.T)[above[0], above[1]]


def spearman(left, right):
    ranks = [values.argsort().argsort().double() for values in (left, right)]
    return torch.corrcoef(torch.stack(ranks))[0, 1].item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("results", type=pathlib.Path, nargs="+")
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--sentences", type=int, default=500)
    options = parser.parse_args()
    sentences = sentences_of(options.text, options.sentences)

    def embeddings_by(path):
        return SentenceTransformer(str(path), device="cpu", trust_remote_code=True).encode(sentences, convert_to_tensor=True)

    source = embeddings_by(options.source)
    print("| model | cosine to source | least | order of similarities |\n|---|--:|--:|--:|")
    for path in options.results:
        result = embeddings_by(path)
        cosines = torch.nn.functional.cosine_similarity(source, result)
        order = spearman(similarities(source), similarities(result))
        print(f"| {path.name} | {cosines.mean():.4f} | {cosines.min():.4f} | {order:.4f} |")


if __name__ == "__main__":
    main()
