"""Documents of Parquet, Arrow and JSON files, of Hugging Face datasets and of chats, for `regroup tokenize`.

    python -m regroup.documents FILE... | regroup tokenize - --tokenizer MODEL -o corpus.bin
    python -m regroup.documents CHATS --chat MODEL | regroup tokenize - --tokenizer MODEL --parse-special \\
        --no-bos --no-eos -o chats.bin

The first writes JSON lines with the field "text". The second applies the chat template of MODEL (with transformers) to
`messages` or `conversations`; --parse-special makes tokens of the special tokens that the template writes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from regroup._errors import BadInputError, EnvironmentFailedError, UsageError

Row = Any
CHAT_FIELDS = ("messages", "conversations")
# ShareGPT's names of roles.
ROLES = {"human": "user", "gpt": "assistant"}


def is_columns(path: Any) -> bool:
    """Whether a file is Parquet or Arrow, which the program does not read."""
    if not os.path.isfile(path):  # a pipe can be read only once
        return False
    try:
        with open(path, "rb") as file:
            return file.read(6).startswith((b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"))
    except OSError:
        return False


def rows_of(path: Any) -> Iterator[Row]:
    """The rows of a Parquet, Arrow or JSON file, a batch in memory at a time."""
    if not is_columns(path):
        yield from _json_rows(path)
        return
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise EnvironmentFailedError(f"{path}: reading it needs pyarrow: pip install pyarrow", 4) from None
    try:
        for batch in _batches(pyarrow, path):
            yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as fault:
        raise BadInputError(f"{path}: {str(fault).splitlines()[0]}", 3) from None


def _batches(pyarrow: Any, path: Any) -> Iterator[Any]:
    with open(path, "rb") as file:
        start = file.read(6)
    if start.startswith(b"PAR1"):
        yield from pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=1024)
        return
    with pyarrow.memory_map(os.fsdecode(path)) as source:
        if start.startswith(b"ARROW1"):
            reader = pyarrow.ipc.open_file(source)
            yield from map(reader.get_batch, range(reader.num_record_batches))
        else:
            yield from pyarrow.ipc.open_stream(source)


def _json_rows(path: Any) -> Iterator[Row]:
    try:
        with open(path, encoding="utf-8") as file:
            listed = file.read(1) == "["
            file.seek(0)
            yield from json.load(file) if listed else (json.loads(line) for line in file if not line.isspace())
    except (OSError, ValueError) as fault:
        raise BadInputError(f"{path}: Parquet, Arrow, a JSON list or JSON lines are needed: {fault}", 3) from None


def member(row: Row, field: str) -> Any:
    """The member `a.b`, or else `b` inside `a`; None if there is none."""
    if not isinstance(row, Mapping) or field in row:
        return row[field] if isinstance(row, Mapping) else None
    outer, dot, inner = field.partition(".")
    return member(row.get(outer), inner) if dot else None


def texts_of(rows: Iterable[Row], field: str = "text") -> Iterator[str]:
    """The text of each row: the row itself, or its member `field`. Raises UsageError for anything else."""
    if isinstance(rows, Mapping):
        raise UsageError(f"a mapping is no list of documents: pass one of {', '.join(map(str, rows))}", 2)
    for number, row in enumerate(rows):
        text = row if isinstance(row, str) else member(row, field)
        if not isinstance(text, str):
            keys = f"; it has {', '.join(map(str, row))}" if isinstance(row, Mapping) else ""
            raise UsageError(f"document {number}: a text or a row with the text in {field!r} is needed{keys}", 2)
        yield text


def chats_of(rows: Iterable[Row], model: str, field: str | None = None) -> Iterator[str]:
    """The messages of each row as the chat template of `model` writes them."""
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise EnvironmentFailedError("chat templates need transformers: pip install transformers", 4) from None
    tokenizer = AutoTokenizer.from_pretrained(model)
    if not getattr(tokenizer, "chat_template", None):
        raise BadInputError(f"{model}: its tokenizer has no chat template", 3)
    for number, row in enumerate(rows):
        found = [member(row, name) for name in ([field] if field else CHAT_FIELDS)]
        messages = next((each for each in found if isinstance(each, list)), None)
        if messages is None:
            raise UsageError(f"document {number}: {field or ' or '.join(CHAT_FIELDS)} is no list of messages", 2)
        yield tokenizer.apply_chat_template([_message(each, number) for each in messages], tokenize=False)


def _message(message: Any, number: int) -> dict[str, Any]:
    if isinstance(message, Mapping) and "from" in message and "value" in message:  # ShareGPT's form
        return {"role": ROLES.get(message["from"], message["from"]), "content": message["value"]}
    if not isinstance(message, Mapping) or "role" not in message:
        raise UsageError(f"document {number}: a message needs a role and a content", 2)
    return dict(message)


def main(words: list[str] | None = None) -> int:
    summary, examples = (__doc__ or "").split("\n\n", 1)
    parser = argparse.ArgumentParser(
        "python -m regroup.documents", description=summary, epilog=examples, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("files", nargs="+", help="Parquet, Arrow, a JSON list or JSON lines")
    parser.add_argument("--field", help="the column of the text (default: text), such as body or data.text")
    parser.add_argument("--chat", metavar="MODEL", help="write chats as the template of this model does")
    options = parser.parse_args(words)
    try:
        for path in options.files:
            rows = rows_of(path)
            texts = chats_of(rows, options.chat, options.field) if options.chat else texts_of(rows, options.field or "text")
            for text in texts:
                print(json.dumps({"text": text}))
    except (BadInputError, EnvironmentFailedError, UsageError) as fault:
        print(f"regroup.documents: {fault}", file=sys.stderr)
        return fault.exit_code
    except BrokenPipeError:  # the program has said why
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return 0


if __name__ == "__main__":
    sys.exit(main())
