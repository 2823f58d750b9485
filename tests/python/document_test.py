"""The Python code in docs/python.md runs, with short trainings, on a small model."""

import os
import pathlib
import re
import shutil
import unittest

import program
import regroup

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHORT = "steps=2, sequence=32, batch=1"
# The weights are random.
SHORT_TEXT = "allow_any_text=True, distill_steps=2, refit_tokens=2048, refit_context=128"


class Document(unittest.TestCase):
    def setUp(self):
        scratch = program.Scratch()
        self.addCleanup(scratch.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(scratch.name)
        regroup.init(ROOT / "tests/docs/llama.json", "Llama-2-7b-hf", seed=1)
        shutil.copy(ROOT / "tests/docs/tokenizer.json", "Llama-2-7b-hf")
        for name in ("corpus.txt", "held-out.txt"):
            shutil.copy(ROOT / "docs/python.md", name)
        regroup.tokenize("corpus.txt", "corpus.bin", tokenizer="Llama-2-7b-hf")

    def test_it_lists_every_name_of_the_package(self):
        text = (ROOT / "docs/python.md").read_text(encoding="utf-8")
        for name in set(regroup.__all__) - {"Callback", "Option", "Path", "Report"}:  # types
            self.assertRegex(text, rf"`{name}[`(]")

    def test_its_code_runs(self):
        text = (ROOT / "docs/python.md").read_text(encoding="utf-8")
        blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        self.assertGreaterEqual(len(blocks), 3)
        names = {}
        for block in blocks:
            block = block.replace("alpha=0.0005", SHORT)
            exec(block.replace('text="corpus.txt")', f'text="corpus.txt", {SHORT_TEXT})'), names)
        self.assertEqual(len(names["losses"]), 2)


if __name__ == "__main__":
    unittest.main()
