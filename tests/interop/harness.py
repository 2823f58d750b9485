"""lm-evaluation-harness (lm_eval) on source, mean and result with a task of local JSON, by the command of
docs/other-programs.md: bits per byte are those of `regroup eval`. Skips itself without lm_eval."""

import importlib.util
import json
import math
import os
import subprocess
import sys

import checkpoints  # noqa: F401  first: it skips the script if a package is missing
import torch
from regroup_binary import expect, run_script
from token_files import TEXT
from tokenizer_kinds import KINDS
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TASK = """task: own_text
dataset_path: json
dataset_kwargs:
  data_files: {{test: {file}}}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{text}}}}"
metric_list:
- metric: bits_per_byte
"""


def put_model(directory):
    made = KINDS["llama3" if "llama3" in KINDS else next(iter(KINDS))]([TEXT[:60_000]], 600)
    made.add_special_tokens(["<s>"])
    made.post_processor = None
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=made.get_vocab_size(), hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=512, initializer_range=0.2)
    LlamaForCausalLM(config).save_pretrained(directory)
    PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>").save_pretrained(directory)


def bits_in_harness(scratch, model):
    output = scratch / f"harness-{model.name}"
    done = subprocess.run(
        [sys.executable, "-m", "lm_eval", "--model", "hf", "--model_args", f"pretrained={model},dtype=float32", "--tasks", "own_text",
         "--include_path", scratch / "tasks", "--device", "cpu", "--output_path", output],
        env={**os.environ, "HF_HOME": str(scratch / "hub"), "HF_HUB_OFFLINE": "1"}, check=False, capture_output=True, text=True)
    expect(done.returncode == 0, f"lm_eval: {done.stderr[-2000:]}")
    results = json.loads(next(output.rglob("results_*.json")).read_text())
    return results["results"]["own_text"]["bits_per_byte,none"]


def bits_in_regroup(regroup, scratch, model, texts):
    tokens = scratch / f"{model.name}.bin"
    regroup.run("tokenize", scratch / "texts.jsonl", "--tokenizer", model, "--bos", "--no-eos", "-o", tokens)
    report = json.loads(regroup.run("eval", model, "--data", tokens, "--documents", "separate", "--context", 400, "--json"))
    return report["loss"] * report["tokens"] / math.log(2) / sum(len(text.encode()) for text in texts)


def check(regroup, scratch):
    texts = [TEXT[300 * number : 300 * number + 250] for number in range(12)]
    (scratch / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (scratch / "tasks").mkdir()
    (scratch / "tasks" / "own_text.yaml").write_text(TASK.format(file=scratch / "texts.jsonl"))
    source, mean = scratch / "source", scratch / "mean"
    put_model(source)
    regroup.run("convert", source, mean, "--kv-heads", 1)
    regroup.run("tokenize", scratch / "texts.jsonl", "--tokenizer", source, "-o", scratch / "training.bin")
    regroup.run("uptrain", mean, "--data", scratch / "training.bin", "--steps", 30, "--batch", 4, "--sequence", 64, "--lr", "3e-3",
                "--output", scratch / "result")
    bits = []
    for model in (source, mean, scratch / "result"):
        theirs, ours = bits_in_harness(scratch, model), bits_in_regroup(regroup, scratch, model, texts)
        expect(abs(theirs - ours) < 1e-4 * ours, f"{model.name}: {theirs} bits per byte in lm_eval, {ours} in regroup")
        print(f"  {model.name}: {theirs:.4f} bits per byte")
        bits.append(theirs)
    expect(bits[2] < bits[1] != bits[0], "source, mean and result do not differ")


if __name__ == "__main__":
    if importlib.util.find_spec("lm_eval") is None:
        print("skipped: lm_eval is not installed (pip install lm_eval)")
        sys.exit(77)
    run_script(__doc__, check)
