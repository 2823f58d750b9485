"""Chats: `python -m regroup.documents --chat` and `regroup tokenize --parse-special` give the ids of transformers'
apply_chat_template, from messages and from ShareGPT's conversations. Without --parse-special, marks are text.
`regroup sample --prompt` answers as transformers does, in each form of chats and on tokenizers of several kinds."""

import json
import os
import subprocess
import sys

import checkpoints  # noqa: F401  first: it skips the script if a package is missing
import torch
from regroup_binary import expect, run_script
from token_files import ODD, ROOT, TEXT, megatron
from tokenizer_kinds import KINDS
from tokenizers import AddedToken
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

MARKS = ("<|im_start|>", "<|im_end|>", "<s>")
TEMPLATE = (
    "<s>{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
)


def each(user, answer):
    return ("{% for message in messages %}{% if message['role'] == 'user' %}" + user + "{% else %}" + answer +
            "{% endif %}{% endfor %}")


# Templates that write what the models' own write: name, special tokens, template. An added token may drop the space after it.
FORMS = {
    "ChatML": (["<|im_start|>", "<|im_end|>"],
               "{{ '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}"
               "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
               "{% endfor %}{{ '<|im_start|>assistant\\n' }}"),
    "Llama 3.1": (["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
                  "{{ bos_token + '<|start_header_id|>system<|end_header_id|>\\n\\n' + 'Cutting Knowledge Date: December 2023\\n' }}"
                  "{{ 'Today Date: ' + '26 Jul 2024' + '\\n\\n' + '<|eot_id|>' }}{% for message in messages %}"
                  "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] + '<|eot_id|>' }}"
                  "{% endfor %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}"),
    "Gemma": (["<start_of_turn>", "<end_of_turn>"],
              "{{ bos_token }}{% for message in messages %}{% set role = 'model' if message['role'] == 'assistant' else 'user' %}"
              "{{ '<start_of_turn>' + role + '\\n' + message['content'] + '<end_of_turn>\\n' }}{% endfor %}"
              "{{ '<start_of_turn>model\\n' }}"),
    "Phi-3": ([AddedToken(mark, special=True, rstrip=True) for mark in ("<|user|>", "<|assistant|>", "<|end|>")],
              "{% for message in messages %}{{ '<|' + message['role'] + '|>\\n' + message['content'] + '<|end|>\\n' }}{% endfor %}"
              "{{ '<|assistant|>\\n' }}{# <|user|> #}"),
    "Zephyr": ([], each("{{ '<|user|>\\n' + message['content'] + eos_token }}", "{{ '<|assistant|>\\n' + message['content'] + eos_token }}") +
               "{{ '\\n<|assistant|>\\n' }}"),
    "Llama 2": ([], each("{{ bos_token + '[INST] ' + message['content'] + ' [/INST]' }}", "{{ ' ' + message['content'] + eos_token }}")),
    "Mixtral": ([], "{{ bos_token }}" + each("{{ ' [INST] ' + message['content'] + ' [/INST]' }}", "{{ ' ' + message['content'] + eos_token }}")),
    "Mistral": (["[INST]", "[/INST]"],
                "{{ bos_token }}" + each("{{ '[INST] ' + message['content'] + '[/INST]' }}", "{{ ' ' + message['content'] + eos_token }}")),
}
# The tokens that end an answer, which the models' own generation_config.json lists beside eos_token.
TURN_ENDS = {"ChatML": "<|im_end|>", "Llama 3.1": "<|eot_id|>", "Gemma": "<end_of_turn>", "Phi-3": "<|end|>"}
PROMPTS = ("Hello", "What is the capital of France?", " two  spaces before")


def check_prompts(regroup, scratch):
    for kind in ("llama2", "gemma", "llama3"):
        for name, (special, template) in FORMS.items():
            made = KINDS[kind]([TEXT[:60_000]], 600)
            bos, eos = ("<|begin|>", "<|end|>") if kind == "llama3" else ("<s>", "</s>")
            made.add_special_tokens([AddedToken(mark, special=True, normalized=False) if isinstance(mark, str) else mark for mark in special])
            model = scratch / f"{kind}-{name.replace(' ', '-')}"
            torch.manual_seed(1)
            config = LlamaConfig(vocab_size=made.get_vocab_size(), hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                                 num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=512, initializer_range=0.2,
                                 bos_token_id=made.token_to_id(bos), eos_token_id=made.token_to_id(eos))
            LlamaForCausalLM(config).save_pretrained(model)
            PreTrainedTokenizerFast(tokenizer_object=made, bos_token=bos, eos_token=eos, chat_template=template).save_pretrained(model)
            tokenizer, reference = AutoTokenizer.from_pretrained(model), LlamaForCausalLM.from_pretrained(model)
            ends = [made.token_to_id(end) for end in (eos, TURN_ENDS.get(name, eos))]
            for prompt in PROMPTS:
                asked = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True, return_dict=False)
                with torch.no_grad():
                    written = reference.generate(torch.tensor([asked]), max_new_tokens=12, do_sample=False, eos_token_id=ends)[0][len(asked):]
                expected = tokenizer.decode(written, skip_special_tokens=True)
                report = json.loads(regroup.run("sample", model, "--prompt", prompt, "--temperature", 0, "--tokens", 12, "--dtype", "fp32", "--json"))
                expect(report["chat"] == ("Mistral" if name == "Mixtral" else name), f"{kind}: {name} is taken for {report['chat']}")
                expect(report["text"].strip() == expected.strip(),
                       f"{kind}, {name}, {prompt!r}: the answer is {report['text']!r}, transformers says {expected!r}")
    print(f"  answers in {len(FORMS)} forms of chats are those of transformers")


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
    check_prompts(regroup, scratch)
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
