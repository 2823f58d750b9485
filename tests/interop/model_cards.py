"""The metadata of model cards, read by YAML readers: values of the source's card are the same text in the result's."""

import pathlib
import shutil

import checkpoints  # first: it skips the script if a package is missing
import yaml
from huggingface_hub import ModelCard
from regroup_binary import expect, run_script

LLAMA = pathlib.Path(__file__).parent.parent / "golden" / "llama_mha"
# Each is plain in the source's card, where YAML may take it for something else: the result says what it says as text.
VALUES = ["mit", "yes", "No", "on", "OFF", "y", "n", "true", "null", "0x10", "0o17", "1e3", "12", "1.5", "1:30", "685_230",
          "2024-01-01", "2001-12-14t21:59:43.10-05:00", "https://x.org/a"]


def metadata(directory):
    text = (directory / "README.md").read_text(encoding="utf-8")
    values = yaml.safe_load(text.split("---\n")[1])
    expect(ModelCard.load(directory / "README.md").data.to_dict() == values, "huggingface_hub reads other metadata")
    return values


def check(regroup, scratch):
    for i, value in enumerate(VALUES):
        source, result = scratch / f"source {i}", scratch / f"result {i}"
        shutil.copytree(LLAMA, source)
        (source / "README.md").write_text(f"---\nlicense: {value}\nlanguage:\n- {value}\n- '{value}'\n---\n", encoding="utf-8")
        regroup.convert(source, result, 2)
        found = metadata(result)
        expect(found["license"] == value and found["language"] == [value, value], f"{value} became {found}")


run_script(__doc__, check)
