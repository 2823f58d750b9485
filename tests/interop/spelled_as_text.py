"""The tokenizer that `regroup tokenize` is compared with: special tokens spelled out in a text are text."""

import json

from tokenizers import Tokenizer


def reference_of(tokenizer_json):
    """The tokenizer that a tokenizer.json describes, in which special tokens have names that no text spells. The ids are the same."""
    described = json.loads(tokenizer_json)
    hidden = {token["content"]: f"\ufdd0{token['id']}\ufdd1" for token in described["added_tokens"] if token["special"]}

    def renamed(text):
        return hidden.get(text, text)

    model = described["model"]
    if isinstance(model["vocab"], dict):
        model["vocab"] = {renamed(text): identity for text, identity in model["vocab"].items()}
    else:
        model["vocab"] = [[renamed(text), score] for text, score in model["vocab"]]
    if model.get("unk_token"):
        model["unk_token"] = renamed(model["unk_token"])
    for token in described["added_tokens"]:
        token["content"] = renamed(token["content"])
    described["post_processor"] = described["truncation"] = described["padding"] = None
    return Tokenizer.from_str(json.dumps(described))
