#!/usr/bin/env python3
"""What a model still knows after a conversion: one row for the source and for each of its results.

    python3 bench/real/mind.py SOURCE RESULT... --text wikitext=wiki.test.raw --text shakespeare=input.txt

Models are Hugging Face directories with a chat template. The columns: right answers to the questions of questions.txt (greedy, by
transformers); the divergence from the source, in nats per token, on the source's own answers to them, and on chats that the source
writes (`regroup sample --chats` and `regroup verify --logits`); the loss over the source's on each text (`regroup eval`); with
--bigbench DIR, the folder benchmark_tasks of the package bigbench, the accuracy on multiple-choice tasks, zero-shot, by sums of
log-probabilities. Intervals are of 95 % (Wilson). Prints a table in Markdown; --answers prints each answer, too.
"""

import argparse
import functools
import json
import math
import pathlib
import re
import subprocess
import tempfile

import torch
import transformers

TASKS = """analogical_similarity bbq_lite_json cause_and_effect code_line_description emoji_movie empirical_judgments figure_of_speech_detection
general_knowledge hhh_alignment intent_recognition known_unknowns misconceptions nonsense_words_grammar phrase_relatedness riddle_sense
sentence_ambiguity similarities_abstraction""".split()


def interval(right, all_cases):
    """Wilson's interval of a share, as half its width in percent."""
    z, n, p = 1.96, max(all_cases, 1), right / max(all_cases, 1)
    return 100 * z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)


def share(right, all_cases):
    return f"{100 * right / max(all_cases, 1):.1f} ± {interval(right, all_cases):.1f}"


def questions():
    lines = pathlib.Path(__file__).with_name("questions.txt").read_text(encoding="utf-8").splitlines()
    return [[part.strip() for part in line.split("|")] for line in lines if line and not line.startswith("#")]


def is_right(answer, accepted):
    return any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)|(?<!\w){re.escape(word)}s(?!\w)", answer, re.I) for word in accepted)


class Model:
    def __init__(self, path, device="cpu"):
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(path, padding_side="left", trust_remote_code=True)
        self.tokenizer.pad_token = self.tokenizer.pad_token or self.tokenizer.eos_token
        self.model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, trust_remote_code=True)
        self.model.eval().to(device)
        self.device = device

    @torch.no_grad()
    def answers(self, asked, batch=40):
        """Greedy answers, a batch at a time: tokens [B, T] with their prompts, the mask of what is no padding, the prompts' length."""
        for first in range(0, len(asked), batch):
            chats = [[{"role": "user", "content": question}] for question in asked[first : first + batch]]
            ids = self.tokenizer.apply_chat_template(
                chats, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
            ).to(self.device)
            out = self.model.generate(**ids, max_new_tokens=24, do_sample=False, pad_token_id=self.tokenizer.pad_token_id)
            length = ids["input_ids"].shape[1]
            mask = torch.cat([ids["attention_mask"], out[:, length:].ne(self.tokenizer.pad_token_id).long()], 1)
            yield out, mask, length

    def texts_of(self, answers):
        return [text for out, _, length in answers for text in self.tokenizer.batch_decode(out[:, length:], skip_special_tokens=True)]

    @torch.no_grad()
    def log_probabilities(self, out, mask, length):
        """Of each token of the answers, [B, t, V]."""
        return self.model(out, attention_mask=mask).logits[:, length - 1 : -1].log_softmax(-1)

    @torch.no_grad()
    def choice(self, prompt, choices):
        """The number of the likeliest continuation, by the sum of its tokens' log-probabilities."""
        begin = self.tokenizer(prompt)["input_ids"]
        scores = []
        for text in choices:
            ids = self.tokenizer(prompt + " " + text)["input_ids"]
            logits = self.model(torch.tensor([ids], device=self.device)).logits[0].log_softmax(-1)
            common = next((i for i, (a, b) in enumerate(zip(begin, ids)) if a != b), len(begin))
            scores.append(sum(logits[i - 1, ids[i]].item() for i in range(common, len(ids))))
        return max(range(len(choices)), key=scores.__getitem__)


def cases_of(folder, task, limit):
    files = sorted((folder / task).rglob("task.json"))  # of the task, or of its parts
    found = [case for file in files for case in json.loads(file.read_text(encoding="utf-8")).get("examples", [])]
    cases = [case for case in found if "target_scores" in case]
    step = max(1, len(cases) // limit)
    return [("Q: " + case["input"].strip() + "\nA:", case["target_scores"]) for case in cases[::step][:limit]]


def right_choices(model, cases):
    return sum(scores[list(scores)[model.choice(prompt, list(scores))]] >= max(scores.values()) for prompt, scores in cases)


def report_of(options, *words):
    command = [options.regroup, *map(str, words), "--device", options.device, "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def own_divergence(options, result, chats):
    return report_of(options, "verify", options.source, result, "--logits", "--data", chats, "--max-tokens", 8192)["logits"]["kl"]


@functools.cache
def answers_of_source(path, device):
    """The source's answers, with the log-probabilities of their tokens."""
    model = Model(path, device)
    return [(*each, model.log_probabilities(*each)) for each in model.answers([question for question, *_ in questions()])]


def divergence_on_answers(options, model):
    total, tokens = 0.0, 0
    for out, mask, length, expected in answers_of_source(options.source, options.device):
        kl = (expected.exp() * (expected - model.log_probabilities(out, mask, length))).sum(-1)  # [B, t]
        total += (kl * mask[:, length:]).sum().item()
        tokens += mask[:, length:].sum().item()
    return total / tokens


def row_of(options, path, chats, texts, tasks):
    model = Model(path, options.device)
    asked, right = questions(), 0
    answers = model.texts_of(list(model.answers([question for question, *_ in asked])))
    for (question, *accepted), answer in zip(asked, answers):
        right += is_right(answer, accepted)
        if options.answers:
            print(f"{'right' if is_right(answer, accepted) else 'wrong'}: {question} -> {answer!r}", flush=True)
    losses = {}
    for name, file in texts.items():
        words = ["--text", file, "--context", 512, "--max-tokens", options.tokens]
        losses[name] = report_of(options, "eval", path, *words)["loss"]
    choices = {task: (right_choices(model, cases), len(cases)) for task, cases in tasks.items()}
    divergence = 0.0 if path == options.source else own_divergence(options, path, chats)
    on_answers = divergence_on_answers(options, model)
    return {"model": path.name, "right": right, "answers": on_answers, "divergence": divergence, "losses": losses, "choices": choices}


def print_table(rows, texts, tasks):
    """Each row as soon as it is measured; the first is the source."""
    count, source = len(questions()), None
    heads = ["model", f"right of {count}", "its answers", "own text", *texts] + (["BIG-bench", *tasks] if tasks else [])
    print("| " + " | ".join(heads) + " |\n|---" + "|--:" * (len(heads) - 1) + "|", flush=True)
    for row in rows:
        source = source or row
        cells = [row["model"], f"{row['right']} ({share(row['right'], count)} %)", f"{row['answers']:.3f}", f"{row['divergence']:.3f}"]
        cells += [f"{row['losses'][name] - source['losses'][name]:+.3f}" for name in texts]
        if tasks:
            totals = [sum(part) for part in zip(*row["choices"].values())]
            cells += [share(*totals)] + [f"{100 * right / cases:.0f}" for right, cases in row["choices"].values()]
        print("| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("results", type=pathlib.Path, nargs="*")
    parser.add_argument("--text", action="append", default=[], help="NAME=FILE")
    parser.add_argument("--tokens", type=int, default=8192, help="of each text")
    parser.add_argument("--bigbench", type=pathlib.Path)
    parser.add_argument("--cases", type=int, default=32, help="of each task")
    parser.add_argument("--answers", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--regroup", default="build/release/regroup")
    options = parser.parse_args()
    texts = dict(text.split("=", 1) for text in options.text)
    tasks = {task: cases_of(options.bigbench, task, options.cases) for task in TASKS} if options.bigbench else {}
    with tempfile.TemporaryDirectory() as folder:
        chats = pathlib.Path(folder) / "chats.bin"
        report_of(options, "sample", options.source, "-o", chats, "--chats", "--tokens", 8192, "--batch", 16, "--seed", 7)
        paths = [options.source, *options.results]
        print_table((row_of(options, path, chats, texts, tasks) for path in paths), texts, tasks)


if __name__ == "__main__":
    main()
