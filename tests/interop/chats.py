"""Chats: `python -m regroup.documents --chat` and `regroup tokenize --parse-special` give the ids of transformers'
apply_chat_template, from messages and from ShareGPT's conversations. Without --parse-special, marks are text."""

import json
import os
import subprocess
import sys

import checkpoints  # noqa: F401  first: it skips the script if a package is missing
from regroup_binary import expect, run_script
from token_files import ODD, ROOT, TEXT, megatron
from tokenizer_kinds import KINDS
from transformers import AutoTokenizer, PreTrainedTokenizerFast

MARKS = ("<|im_start|>", "<|im_end|>", "<s>")
TEMPLATE = (
    "<s>{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
)


def chats():
    for number in range(20):
        said = TEXT[997 * number : 997 * number + 60 * number]
        yield [("system", "Be brief."), ("user", said), ("assistant", ODD + str(number))]


def as_messages(chat):
    return {"messages": [{"role": role, "content": content} for role, content in chat]}


def as_conversations(chat):
    names = {"user": "human", "assistant": "gpt", "system": "system"}
    return {"conversations": [{"from": names[role], "value": content} for role, content in chat]}


def check(regroup, scratch):
    name = next(iter(KINDS))
    made = KINDS[name]([TEXT[:60_000]], 600)
    made.add_special_tokens([mark for mark in MARKS if made.token_to_id(mark) is None])
    model = scratch / "model"
    PreTrainedTokenizerFast(tokenizer_object=made, bos_token="<s>", chat_template=TEMPLATE).save_pretrained(model)
    reference = AutoTokenizer.from_pretrained(model)
    expected = [reference.apply_chat_template(as_messages(chat)["messages"], return_dict=False) for chat in chats()]
    for form in (as_messages, as_conversations):
        rows = [form(chat) for chat in chats()]
        (scratch / "lines").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (scratch / "list").write_text(json.dumps(rows, indent=1))
        for source in ("lines", "list"):
            texts = subprocess.run(
                [sys.executable, "-m", "regroup.documents", scratch / source, "--chat", model],
                env={**os.environ, "PYTHONPATH": str(ROOT / "python")}, capture_output=True, check=True).stdout
            (scratch / "texts").write_bytes(texts)
            output = scratch / f"{form.__name__}-{source}.bin"
            regroup.run("tokenize", scratch / "texts", "--tokenizer", model, "--parse-special", "--no-bos", "--no-eos",
                        "-o", output)
            expect(megatron(output) == expected, f"{form.__name__}, {source}: other ids than apply_chat_template")
    output = scratch / "marks.bin"
    regroup.run("tokenize", scratch / "texts", "--tokenizer", model, "--no-bos", "--no-eos", "-o", output)
    expect(megatron(output) != expected, "marks are tokens without --parse-special")
    print(f"  {name}: {sum(map(len, expected)):,} ids of {len(expected)} chats")


if __name__ == "__main__":
    run_script(__doc__, check)
