"""ALiBi: the slopes in the converted config.json and weight file equal the source's exactly."""

import json
import pathlib
import re

import checkpoints  # first: it skips the script if a package is missing
from regroup_binary import expect, run_script
from transformers import BloomConfig

REFERENCE = pathlib.Path(__file__).parent.parent / "golden" / "alibi_slopes.json"


def check(regroup, scratch):
    reference = json.loads(REFERENCE.read_text())
    for heads, kv_heads in ((8, 2), (12, 4), (71, 1)):
        config = BloomConfig(vocab_size=64, hidden_size=2 * heads, n_layer=2, n_head=heads)
        source = checkpoints.save_random(config, heads, scratch / f"bloom_{heads}")
        target = scratch / f"bloom_{heads}_{kv_heads}"
        regroup.convert(source, target, kv_heads)
        wanted = reference["slopes"][heads - 1]

        alibi = json.loads((target / "config.json").read_text())["regroup"]["alibi"]
        expect(alibi["bias_max"] == reference["bias_max"], f"config.json: bias_max {alibi['bias_max']}")
        expect(alibi["slopes"] == wanted, f"config.json: {heads} heads: {alibi['slopes']}, expected {wanted}")
        for file, metadata in checkpoints.read_directory(target)[1].items():
            text = metadata.get("regroup.alibi_slopes", "")
            found = [float(number) for number in re.findall(r"[^\s,\[\]]+", text)]  # a JSON list or only its numbers
            expect(found == wanted, f"{file}: regroup.alibi_slopes: {heads} heads: {text!r}, expected {wanted}")
        found = regroup.inspect(source)["alibi_slopes"]
        expect(found == wanted, f"inspect: alibi_slopes: {heads} heads: {found}, expected {wanted}")
        print(f"  {heads} heads: slopes equal")


run_script(__doc__, check)
