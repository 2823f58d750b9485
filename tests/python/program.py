"""What the tests of the Python package share: the program's commands, as it lists them itself."""

import dataclasses
import json
import pathlib
import struct
import subprocess
import tempfile
import unittest

import regroup

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "golden"


@dataclasses.dataclass
class Command:
    positionals: list[str]  # in order
    options: dict[str, bool]  # "--kv-heads": whether it takes a value


def commands() -> dict[str, Command]:
    """The program's commands by their names, such as "bench decode"."""
    printed = subprocess.run([regroup.program(), "manual", "--json"], capture_output=True, check=True).stdout
    found = {}
    for command in json.loads(printed):
        options = command["options"]
        found[command["name"]] = Command(
            [option["names"][0] for option in options if option["positional"]],
            {name: bool(option["value"]) for option in options for name in option["names"] if name.startswith("--")},
        )
    return found


class Scratch(tempfile.TemporaryDirectory):
    """A temporary folder: scratch / "name" is a path in it."""

    def __truediv__(self, name):
        return pathlib.Path(self.name) / name


class TrainingTest(unittest.TestCase):
    """A test with a folder, `scratch`, that holds a corpus of 4000 tokens of the golden Llama: corpus.bin."""

    def setUp(self):
        scratch = Scratch()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        tokens = [(7 * i) % 31 + 4 for i in range(4000)]
        (self.scratch / "corpus.bin").write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
