"""Model directories for tests: generated at random, read bit for bit, loaded and run.

Importing this module ends the script with exit code 77 (skipped) if a Python package is missing.
"""

import dataclasses
import json
import pathlib
import sys

try:
    import numpy as np
    import safetensors  # noqa: F401  (transformers writes checkpoints through it)
    import torch
    import transformers
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

ELEMENT_BYTES = {"BOOL": 1, "U8": 1, "F16": 2, "BF16": 2, "F32": 4, "I64": 8}


@dataclasses.dataclass
class Stored:
    """A stored tensor as unsigned integers of the element's width, so that reading never rounds."""

    dtype: str
    bits: np.ndarray

    def same_as(self, other):
        return self.dtype == other.dtype and self.bits.shape == other.bits.shape and (self.bits == other.bits).all()


def read_file(path):
    """Returns tensors by name and __metadata__ of a safetensors file. Does not use the library that models use."""
    raw = pathlib.Path(path).read_bytes()
    header_end = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:header_end])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        begin, end = (header_end + offset for offset in entry["data_offsets"])
        bits = np.frombuffer(raw[begin:end], dtype=f"<u{ELEMENT_BYTES[entry['dtype']]}")
        tensors[name] = Stored(entry["dtype"], bits.reshape(entry["shape"]))
    return tensors, metadata


def read_directory(directory):
    """Returns tensors by name and __metadata__ by file name, from the weight files in a model directory."""
    tensors, metadata = {}, {}
    for path in sorted(pathlib.Path(directory).glob("model*.safetensors")):
        in_file, metadata[path.name] = read_file(path)
        twice = tensors.keys() & in_file.keys()
        if twice:
            raise ValueError(f"{directory}: in two shards: {sorted(twice)}")
        tensors.update(in_file)
    return tensors, metadata


def write_file(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name in sorted(tensors):
        stored = tensors[name]
        begin = len(data)
        data += np.ascontiguousarray(stored.bits).tobytes()
        header[name] = {"dtype": stored.dtype, "shape": list(stored.bits.shape), "data_offsets": [begin, len(data)]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(len(text).to_bytes(8, "little") + text + data)


KEYS_AND_VALUES = (".k_proj.", ".v_proj.", "Attention.k.", "Attention.v.", ".self.key.", ".self.value.")
KEYS_AND_VALUES += (".k_lin.", ".v_lin.", ".attn.k.", ".attn.v.")
ENCODERS = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert", "mpnet", "nomic_bert", "modernbert")
OWN_CLASSES = []  # functions from a config to a class of a model that transformers does not have, or None


def is_key_or_value(name):
    """For families with separate projections."""
    return any(part in name for part in KEYS_AND_VALUES)


def floats(stored):
    """Converts an F32 tensor to a float32 array."""
    assert stored.dtype == "F32", stored.dtype
    return stored.bits.view(np.float32)


SPECIAL = 4  # the highest tokens of models with images, which stand for parts of them


def text_config(config):
    """The config of the language model, which may be inside another model."""
    return getattr(config, "text_config", config)


def auto_class(config):
    for own_class in OWN_CLASSES:
        if own_class(config) is not None:
            return own_class(config)
    if config.model_type == "whisper":
        return transformers.AutoModelForSpeechSeq2Seq
    if hasattr(config, "text_config"):
        return transformers.AutoModelForImageTextToText
    if config.is_encoder_decoder:
        return transformers.AutoModelForSeq2SeqLM
    encoder_only = config.model_type in ENCODERS
    return transformers.AutoModelForMaskedLM if encoder_only else transformers.AutoModelForCausalLM


def random_model(config, seed, std=0.3, untie=False, cls=None):
    """A model with random values in every parameter, also in norms and biases, which HF initialises to ones and zeros.

    RandomState, because its stream is frozen across numpy versions. Names are sorted, because the order in which
    modules are declared may change.
    """
    cls = cls or auto_class(config)
    options = {"attn_implementation": "eager"}
    model = (cls.from_config if hasattr(cls, "from_config") else cls._from_config)(config, **options).eval()
    if untie:  # its own output projection; transformers ties every model's
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.lm_head.weight))
    random = np.random.RandomState(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            is_norm = parameter.ndim == 1 and name.endswith("weight")
            values = random.standard_normal(tuple(parameter.shape)) * std + (1.0 if is_norm else 0.0)
            parameter.copy_(torch.from_numpy(values))
        for name, buffer in model.named_buffers():
            if name == "final_logits_bias":  # BART's, which HF initialises to zeros
                buffer.copy_(torch.from_numpy(random.standard_normal(tuple(buffer.shape)) * std))
    return model


def save_random(config, seed, directory, dtype=torch.float32, **options):
    """Writes a random model as its users' tools do. Returns the directory."""
    random_model(config, seed).to(dtype).save_pretrained(directory, **options)
    return directory


def random_tokens(vocab_size, windows, context, seed):
    """int64 [windows, context]."""
    return np.random.RandomState(seed).randint(0, vocab_size, (windows, context)).astype(np.int64)


def load(directory, attention="eager", dtype=torch.float32, trusted=False, **options):
    """The directory's model; raises if any tensor is missing, unexpected or misshapen. `trusted`: runs its own code."""
    config = options.get("config") or transformers.AutoConfig.from_pretrained(directory, trust_remote_code=trusted)
    options |= {"dtype": dtype, "attn_implementation": attention, "trust_remote_code": trusted}
    if hasattr(config, "router_aux_loss_coef"):
        options["experts_implementation"] = "eager"  # the default takes no float64
    model, info = auto_class(config).from_pretrained(directory, output_loading_info=True, **options)
    complaints = {kind: found for kind, found in info.items() if found}
    if complaints:
        raise ValueError(f"{directory}: transformers loads it with {complaints}")
    return model.eval()


def halves(tokens, start):
    """Splits [B, T] into what regroup eval gives an encoder and a decoder: the first half, and the second shifted by
    one."""
    source, target = np.split(tokens, [tokens.shape[1] // 2], axis=1)
    return source, np.concatenate([np.full_like(target[:, :1], start), target[:, :-1]], axis=1)


def spectra(model, windows):
    """Random log-mel spectra as long as Whisper's encoder reads, in the model's dtype."""
    shape = (windows, model.config.num_mel_bins, 2 * model.config.max_source_positions)
    return torch.from_numpy(np.random.RandomState(windows).standard_normal(shape)).to(model.dtype)


def logits(model, tokens):
    """Logits [B, T, V] in the model's dtype for tokens [B, T]; for an encoder-decoder those of the second half."""
    inputs, spectrum = {"input_ids": tokens}, {}
    if model.config.is_encoder_decoder:
        start = getattr(model.config, "decoder_start_token_id", None)
        source, target = halves(tokens, model.config.pad_token_id if start is None else start)
        inputs = {"input_ids": source, "decoder_input_ids": target}
        if model.config.model_type == "whisper":
            spectrum = {"input_features": spectra(model, len(tokens))}
            del inputs["input_ids"]
    if model.config.model_type not in ENCODERS:
        inputs["use_cache"] = False
    with torch.no_grad():
        return model(**{name: torch.tensor(value) for name, value in inputs.items()}, **spectrum).logits.numpy()
