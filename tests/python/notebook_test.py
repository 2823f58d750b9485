"""The notebooks in examples/notebook run from start to end, in plain Python."""

import json
import os
import pathlib
import unittest

import program

NOTEBOOKS = sorted((pathlib.Path(__file__).resolve().parents[2] / "examples/notebook").glob("*.ipynb"))


def code_of(notebook):
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


class Notebooks(unittest.TestCase):
    def setUp(self):
        scratch = program.Scratch()
        self.addCleanup(scratch.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(scratch.name)

    def test_fewer_kv_heads_shows_what_conversion_costs_and_uptraining_recovers(self):
        [path] = NOTEBOOKS
        notebook = json.loads(path.read_text(encoding="utf-8"))
        self.assertEqual(notebook["nbformat"], 4)
        for cell in notebook["cells"]:
            self.assertFalse(cell.get("outputs"), "outputs are stripped: they would not stay true")
        names = {}
        for code in code_of(notebook):
            exec(compile(code, str(path), "exec"), names)
        losses = names["losses"]
        self.assertLess(losses["mha"], losses["lowrank"])
        self.assertLess(losses["lowrank"], losses["mean"])
        self.assertLess(losses["mean-uptrained"], losses["mean"])
        self.assertLess(losses["lowrank-uptrained"], losses["mean"])
        self.assertIn("<svg", names["Drawing"]()._repr_svg_())


if __name__ == "__main__":
    unittest.main()
