"""The notebooks in examples/notebook run from start to end, in plain Python."""

import contextlib
import io
import json
import os
import pathlib
import re
import shutil
import unittest
from unittest import mock

import program

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(name, same=False):
    """The names that a notebook has at its end. `same`: on the model of the stored outputs."""
    notebook = json.loads((ROOT / "examples/notebook" / name).read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    names = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile("".join(cell["source"]), name, "exec"), names)
            if same:
                stored = "".join(
                    "".join(output["text"]) for output in cell["outputs"] if output.get("name") == "stdout"
                )
                assert without_digits(printed.getvalue()) == without_digits(stored), "run the notebook again and store it"
    return names


def without_digits(text):
    """Numbers differ in the last digits between machines."""
    return re.sub(r"\d", "#", text)


class Notebooks(unittest.TestCase):
    def setUp(self):
        scratch = program.Scratch()
        self.addCleanup(scratch.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(scratch.name)
        for left in ("kv-heads/untrained", "real-model/converted"):  # by an earlier run
            os.makedirs(left)

    def test_fewer_kv_heads_shows_what_conversion_costs_and_uptraining_recovers(self):
        names = run("fewer_kv_heads.ipynb", same=True)
        losses = names["losses"]
        self.assertLess(losses["mha"], losses["lowrank"])
        self.assertLess(losses["lowrank"], losses["mean"])
        self.assertLess(losses["mean-uptrained"], losses["mean"])
        self.assertLess(losses["lowrank-uptrained"], losses["mean"])
        self.assertIn("<svg", names["Drawing"]()._repr_svg_())
        self.real_model_follows()

    def real_model_follows(self):
        """On the model of the first notebook, which is trained: no test has a real one."""
        shutil.copy(ROOT / "tests/docs/tokenizer.json", "kv-heads/mha")
        pathlib.Path("corpus.txt").write_bytes(b"".join(path.read_bytes() for path in sources()))
        with mock.patch.dict(os.environ, MODEL="kv-heads/mha", TEXT="corpus.txt"):
            names = run("real_model.ipynb")
        losses = {name: row["loss"] for name, row in names["compared"].items()}
        self.assertLess(losses["result"], losses["mean"])
        self.assertTrue(names["verified"]["passed"])
        self.assertEqual(set(names["continuations"]), {"source", "result"})
        self.assertIn("<table", pathlib.Path("real-model/report.html").read_text(encoding="utf-8"))


def sources():
    """Text of the kind that the model was trained on."""
    return sorted(pathlib.Path(json.__file__).parent.parent.glob("*.py"))[:20]


if __name__ == "__main__":
    unittest.main()
