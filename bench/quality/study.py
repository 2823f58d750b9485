"""A study on disk: its models, methods, ratios and alphas, and the paths of its files.

    data/training.bin, held-out.bin, other.bin         token files
    KIND-SEED/untrained, trained, calibration.*.safetensors
    KIND-SEED/METHOD-G/converted                       G: the remaining kv heads
    KIND-SEED/METHOD-G/alpha-A-lr-R/                    uptrained
Each has a record of the command that made it and the command's report.
"""
import dataclasses
import hashlib
import json
from pathlib import Path

from kinds import BYTES, KINDS, QUERY_HEADS, SCALES
from methods import METHODS
from program import CommandFailed, write_atomically

ALPHAS = (0.01, 0.05, 0.10)
TOTAL_ALPHA = 0.01  # calibration, refit and uptraining together
RATIOS = (2, 4, 8)
SEEDS = (1, 2, 3)
TOKEN_BYTES = 2  # of an id in a token file
HELD_OUT_SHARE = 10  # the last tenth of the text
TUNING_ALPHA, TUNING_RATIO = 0.05, 4
SOURCE = "source"  # instead of a method: the MHA model itself, trained further


@dataclasses.dataclass(frozen=True)
class Model:
    """One trained MHA model of the study."""

    kind: str
    seed: int

    @property
    def name(self):
        return f"{self.kind}-{self.seed}"

    @property
    def trained(self):
        return f"{self.name}/trained"


@dataclasses.dataclass(frozen=True)
class Conversion:
    """A model converted by one method at one ratio."""

    model: Model
    method: str
    ratio: int

    @property
    def kv_heads(self):
        return QUERY_HEADS // self.ratio

    @property
    def folder(self):
        return f"{self.model.name}/{self.method}-{self.kv_heads}"

    @property
    def converted(self):
        return f"{self.folder}/converted"


class Study:
    """The request: `scale` and `data` determine the numbers, and the other members select which are computed."""

    def __init__(self, work, scale, program, kinds, seeds, methods, ratios, alphas, tokenizer=None):
        self.work = Path(work).resolve()
        self.scale_name = scale
        self.tokenizer = Path(tokenizer).read_text(encoding="utf-8") if tokenizer else None
        self.scale = dataclasses.replace(SCALES[scale], vocabulary=vocabulary_of(self.tokenizer))
        self.program = program
        self.kinds = [KINDS[key] for key in kinds]
        self.seeds = seeds
        self.ratios = ratios
        self.alphas = alphas
        self.notes = []
        self.methods = [METHODS[key] for key in methods if self.is_known_(METHODS[key])]
        self.models = [Model(kind.key, seed) for seed in seeds for kind in self.kinds]

    def is_known_(self, method):
        missing = [option for option in method.needs
                   if not self.program.has_option("convert", option)]
        if missing:
            self.notes.append(f"{method.label}: left out, this program's convert has no "
                              f"{', '.join(missing)}")
        return not missing

    def conversions(self, uptrained=False):
        return [Conversion(model, method.key, ratio) for model in self.models
                for method in self.methods for ratio in self.ratios
                if method.uptrained or not uptrained]

    def tuning_seed(self):
        return min(self.seeds)

    def write_data(self, text_files, other_files=()):
        """Makes the token files, or checks that they came from the same texts."""
        text = b"".join(Path(file).read_bytes() for file in text_files)
        other = b"".join(Path(file).read_bytes() for file in other_files)
        split = len(text) - len(text) // HELD_OUT_SHARE
        parts = {"training": text[:split], "held-out": text[split:], **({"other": other} if other_files else {})}
        self.check_settings_({name: hashlib.sha256(part).hexdigest()
                              for name, part in parts.items()})
        least = 2 * self.scale.sequence * self.scale.eval_windows + 1  # T5 predicts half of each window
        for name, part in parts.items():
            if not (self.work / self.data(name)).exists():
                self.write_tokens_(name, part)
            tokens = (self.work / self.data(name)).stat().st_size // TOKEN_BYTES
            if tokens < least:
                raise CommandFailed(f"{name} text: {tokens} tokens, at least {least} are needed")
        self.write_text_("training", parts["training"])

    def write_text_(self, name, text):
        """The same part as text, for methods that read text."""
        path = self.work / self.text(name)
        if not path.exists():
            staged = path.with_suffix(".partial")
            staged.write_bytes(text)
            staged.replace(path)

    def write_tokens_(self, name, text):
        path = self.work / self.data(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.tokenizer is None:
            staged = path.with_suffix(".partial")
            staged.write_bytes(byte_tokens(text))
            staged.replace(path)
            return
        write_atomically(self.work / "data/tokenizer.json", self.tokenizer)
        path.with_suffix(".raw").write_bytes(text)
        self.program.run_once(f"{self.data(name)}.json",
                              ["tokenize", f"data/{name}.raw", "--tokenizer", "data/tokenizer.json", "--format", "raw",
                               "--replace-invalid", "-o", self.data(name)], self.data(name))
        path.with_suffix(".raw").unlink()

    def check_settings_(self, texts):
        """A work folder belongs to one study: scale and texts must not change."""
        if self.tokenizer is not None:
            texts = {**texts, "tokenizer": hashlib.sha256(self.tokenizer.encode()).hexdigest()}
        settings = {"scale": self.scale_name, **dataclasses.asdict(self.scale), "texts": texts}
        settings = json.loads(json.dumps(settings))
        path = self.work / "settings.json"
        if not path.exists():
            write_atomically(path, json.dumps(settings, indent=1) + "\n")
            return
        found = json.loads(path.read_text(encoding="utf-8"))
        for key in sorted({*found, *settings}):
            if found.get(key) != settings.get(key):
                raise CommandFailed(f"{path}: {key} is {found.get(key)}, requested is "
                                    f"{settings.get(key)}; choose another folder with --work")

    @staticmethod
    def data(name):
        return f"data/{name}.bin"

    @staticmethod
    def text(name):
        return f"data/{name}.txt"

    @property
    def text_tokenizer(self):
        return "bytes" if self.tokenizer is None else "data/tokenizer.json"


def vocabulary_of(tokenizer):
    """The number of tokens of a tokenizer.json; without one, of bytes."""
    if tokenizer is None:
        return BYTES
    try:
        described = json.loads(tokenizer)
        ids = [*described["model"]["vocab"].values(), *(token["id"] for token in described["added_tokens"])]
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        raise CommandFailed(f"the tokenizer is not a tokenizer.json with a vocabulary of names: {fault!r}") from fault
    if max(ids) >= 1 << 8 * TOKEN_BYTES:
        raise CommandFailed(f"the tokenizer has ids up to {max(ids)}; the study stores tokens in {TOKEN_BYTES} bytes")
    return max(ids) + 1


def byte_tokens(text):
    """Raw little-endian u16, one token per byte."""
    tokens = bytearray(2 * len(text))
    tokens[::2] = text
    return bytes(tokens)
