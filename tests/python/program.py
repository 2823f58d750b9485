"""What the tests of the Python package share: the program's commands, read from its manual page."""

import dataclasses
import pathlib
import re
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
    manual = subprocess.run([regroup.program(), "manual"], capture_output=True, text=True, check=True).stdout
    found = {}
    for section in manual.replace("\\-", "-").split("\n.SS ")[1:]:
        name, synopsis, *_ = section.split("\n")
        words = re.findall(r"\\fI(\w+)\\fR", synopsis)
        options = {}
        for names, value in re.findall(r"\.TP\n\\fB([^\\]*)\\fR(.*)\n", section):
            options |= {each: bool(value) for each in names.split(", ") if each.startswith("--")}
        found[name] = Command([word for word in words if word != "options"], options)
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
