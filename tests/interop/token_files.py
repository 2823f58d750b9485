"""Token files: `regroup tokenize` gives the ids of SentencePiece's own tools and of transformers' LlamaTokenizer, and
scripts/tokenize_with_transformers.py those of a tokenizer.json. Skips comparisons with packages that are missing."""

import json
import pathlib
import shutil
import subprocess
import sys

import checkpoints  # noqa: F401  first: it skips the script if a package is missing
import numpy as np
import tokenizers
import transformers
from regroup_binary import expect, run_script

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = "".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))
ODD = "  two  spaces\tand\n\n\nlines é 漢字 🙂 </s> <unk> ½ ﬁ\u00a0x" + " tail "


def megatron(path):
    """The documents in X.bin, read through its index like Megatron."""
    raw = path.with_suffix(".idx").read_bytes()
    expect(raw[:9] == b"MMIDIDX\0\0", "not a Megatron index")
    dtype = {8: "<u2", 4: "<i4"}[raw[17]]
    sequences, documents = np.frombuffer(raw, "<u8", 2, 18).astype(int)
    lengths = np.frombuffer(raw, "<i4", sequences, 34)
    starts = np.frombuffer(raw, "<i8", sequences, 34 + 4 * sequences) // np.dtype(dtype).itemsize
    firsts = np.frombuffer(raw, "<i8", documents, 34 + 12 * sequences)
    expect(firsts.tolist() == list(range(sequences + 1)), "documents of more than one sequence")
    ids = np.fromfile(path, dtype)
    return [ids[start : start + length].tolist() for start, length in zip(starts, lengths)]


def put_documents(scratch):
    texts = [ODD, TEXT, "one line\n", "\u2581 and \u2581\u2581"]
    path = scratch / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path, texts


def check_sentencepiece(regroup, scratch, kind, options):
    (scratch / "corpus.txt").write_text(TEXT)
    model = scratch / f"{kind}.model"
    subprocess.run(["spm_train", f"--input={scratch / 'corpus.txt'}", f"--model_prefix={model.with_suffix('')}",
                    "--vocab_size=600", f"--model_type={kind}", "--minloglevel=3", *options], check=True, capture_output=True)
    path, texts = put_documents(scratch)
    output = scratch / f"{kind}.bin"
    regroup.run("tokenize", path, "--tokenizer", model, "-o", output, "--no-bos", "--no-eos")
    try:
        import sentencepiece

        processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
        expect(megatron(output) == [processor.encode(text) for text in texts], f"{kind}: other ids than sentencepiece")
        print(f"  {kind}: the ids of the package sentencepiece")
    except ImportError:
        print(f"  {kind}: not compared with the package sentencepiece, which is not installed")
    # spm_encode reads line by line, so the comparison uses a text of one line.
    line = "a line of text, as long as one line is"
    (scratch / f"{kind}.txt").write_text(line)
    regroup.run("tokenize", scratch / f"{kind}.txt", "--tokenizer", model, "-o", scratch / f"{kind}-line.bin", "--no-bos", "--no-eos")
    encoded = subprocess.run(["spm_encode", f"--model={model}", "--output_format=id"], input=line, capture_output=True, text=True, check=True)
    expect(megatron(scratch / f"{kind}-line.bin") == [[int(each) for each in encoded.stdout.split()]], f"{kind}: other ids than spm_encode")
    print(f"  {kind}: the ids of spm_encode")
    return model, texts, output


def check_llama_tokenizer(model, texts, output, scratch):
    directory = scratch / "llama"
    directory.mkdir()
    shutil.copy(model, directory / "tokenizer.model")
    (directory / "tokenizer_config.json").write_text('{"tokenizer_class": "LlamaTokenizer", "legacy": true}')
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    except (ImportError, ValueError) as missing:
        print(f"  not compared with LlamaTokenizer: {str(missing).splitlines()[0]}")
        return
    # In regroup and SentencePiece, special tokens spelled out in a text are text. A text's own U+2581 is a space to
    # SentencePiece, but LlamaTokenizer splits it differently.
    plain = [index for index, text in enumerate(texts) if "</s>" not in text and "\u2581" not in text]
    expect(len(plain) == 2, "the texts have changed")
    ours = megatron(output)
    for index in plain:
        theirs = tokenizer(texts[index], add_special_tokens=False)["input_ids"]
        expect(ours[index] == theirs, f"text {index}: other ids than LlamaTokenizer")
    print("  bpe: the ids of LlamaTokenizer")


def check_tokenizer_json(regroup, scratch):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=600, special_tokens=["<|end|>"], show_progress=False,
                                             initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.save(str(scratch / "tokenizer.json"))
    (scratch / "config.json").write_text('{"eos_token_id": 0}')
    path, texts = put_documents(scratch)
    script = [sys.executable, ROOT / "scripts" / "tokenize_with_transformers.py", path, "--tokenizer", scratch]
    for name in ("json.bin", "json.npy"):
        subprocess.run([*script, "-o", scratch / name], check=True, capture_output=True)
    expected = [tokenizer.encode(text, add_special_tokens=False).ids + [0] for text in texts]
    expect(megatron(scratch / "json.bin") == expected, "other ids than tokenizers")
    expect(np.load(scratch / "json.npy").tolist() == sum(expected, []), "other ids in the .npy")
    expect(not list(scratch.glob("*.partial*")), "something is left")
    again = subprocess.run([*script, "-o", scratch / "json.bin"], check=False, capture_output=True, text=True)
    expect(again.returncode == 2 and "exists already" in again.stderr, "an existing file was not refused")
    print("  tokenizer.json: the ids of the package tokenizers")


def check(regroup, scratch):
    check_tokenizer_json(regroup, scratch)
    if shutil.which("spm_train") is None:
        print("  SentencePiece's programs are not installed")
        return
    llama = ["--byte_fallback", "--normalization_rule_name=identity", "--remove_extra_whitespaces=false"]
    model, texts, output = check_sentencepiece(regroup, scratch, "bpe", llama)
    check_llama_tokenizer(model, texts, output, scratch)
    check_sentencepiece(regroup, scratch, "unigram", [])


if __name__ == "__main__":
    run_script(__doc__, check)
