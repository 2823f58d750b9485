"""The options of each command, for editors, type checkers and help(). Made by scripts/option-lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypedDict

from regroup._program import Path

if TYPE_CHECKING:
    from typing_extensions import Required


class ProgramOptions(TypedDict, total=False):
    quiet: bool | None
    verbose: bool | None



class InspectOptions(ProgramOptions, total=False):
    layout: Path | None
    layers: bool | None
    tensors: bool | None
    stats: bool | None
    filter: str | None
    sort: Literal["shard", "name", "bytes"] | None
    context: int | None
    batch: int | None
    html: Path | None
    conversion: Path | None
    run: Path | None


class PlanOptions(ProgramOptions, total=False):
    vram: str | None
    context: int | Sequence[int] | None
    batch: int | None
    bandwidth: str | None
    cache_dtype: Literal["bf16", "fp16", "fp32", "fp8", "int8", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0"] | None
    layout: Path | None
    html: Path | None


class DiffOptions(ProgramOptions, total=False):
    filter: str | None
    html: Path | None


class PlotOptions(ProgramOptions, total=False):
    chart: Literal["loss", "learning-rate", "gradient-norm", "speed"] | None


class TokenizeOptions(ProgramOptions, total=False):
    tokenizer: Required[Path]
    format: Literal["megatron", "npy", "raw"] | None
    jsonl: bool | None
    field: str | None
    document_separator: str | None
    bos: bool | None
    bos_token: int | None
    eos: bool | None
    eos_token: int | None
    parse_special: bool | None
    replace_invalid: bool | None
    skip_invalid: bool | None
    threads: int | None


class VerifyOptions(ProgramOptions, total=False):
    calibration: Path | None
    layout: Path | None
    logits: bool | None
    data: Path | None
    context: int | None
    max_tokens: int | None
    device: str | None
    threads: int | None
    html: Path | None


class ConvertOptions(ProgramOptions, total=False):
    kv_heads: int | Sequence[int] | None
    text: Path | Sequence[Path] | None
    tokenizer: Path | None
    jsonl: bool | None
    field: str | None
    sample: bool | None
    effort: Literal["quick", "normal", "thorough"] | int | str | None
    own_text: float | None
    resume: bool | None
    distill_steps: int | None
    distill_lr: float | None
    distill_attention: float | None
    allow_any_text: bool | None
    max_shard_size: str | None
    dry_run: bool | None
    target: str | None
    positions: Literal["keep", "alibi"] | None
    to: Literal["gguf", "safetensors", "torch"] | None
    dtype: Literal["bf16", "fp16", "fp32", "q8_0"] | None
    loader: Literal["auto", "none", "transformers"] | None
    skip_logits_check: bool | None
    layout: Path | None
    attention: str | None
    pool: Literal["mean", "first", "random", "lowrank"] | None
    pool_seed: int | None
    grouping: Literal["contiguous", "similar"] | None
    calibration: Path | None
    measure: bool | None
    allow_nonfinite: bool | None
    kv_budget: str | None
    kv_budget_data: Path | None
    kv_budget_tokens: int | None
    refit: Path | None
    refit_steps: int | None
    refit_batch: int | None
    refit_tokens: int | None
    refit_context: int | None
    refit_lr: float | None
    device: str | None
    threads: int | None


class ExpandOptions(ProgramOptions, total=False):
    max_shard_size: str | None
    dry_run: bool | None
    kv_heads: Required[int | Sequence[int]]


class BenchTrainOptions(ProgramOptions, total=False):
    data: Required[Path | Sequence[Path]]
    steps: int | None
    warmup: int | None
    context: int | None
    batch: int | None
    accumulate: int | None
    train: Literal["all", "attention", "kv"] | None
    optimizer: Literal["adamw", "adafactor"] | None
    moments: Literal["fp32", "bf16"] | None
    activation_checkpointing: bool | None
    dtype: Literal["fp32", "bf16"] | None
    memory: Literal["auto", "full", "compact", "host"] | None
    device: str | None
    peak_flops: float | None
    memory_check: Literal["on", "off"] | None
    threads: int | None


class BenchDecodeOptions(ProgramOptions, total=False):
    kv_heads: int | Sequence[int] | None
    batch: int | Sequence[int] | None
    context: int | Sequence[int] | None
    tokens: int | None
    rounds: int | None
    prefill_chunk: int | None
    window: int | None
    sinks: int | None
    device: str | None
    dtype: Literal["fp32", "bf16"] | None
    threads: int | None
    no_graphs: bool | None


class CalibrateOptions(ProgramOptions, total=False):
    data: Path | None
    text: Path | Sequence[Path] | None
    tokenizer: Path | None
    jsonl: bool | None
    field: str | None
    context: int | None
    max_tokens: int | None
    batch: int | None
    device: str | None
    dtype: Literal["fp32", "bf16"] | None
    threads: int | None
    allow_any_text: bool | None


class EvalOptions(ProgramOptions, total=False):
    data: Path | None
    text: Path | Sequence[Path] | None
    tokenizer: Path | None
    jsonl: bool | None
    field: str | None
    context: int | Sequence[int] | None
    documents: Literal["pack", "separate"] | None
    document_end: int | None
    document_start: int | None
    batch: int | None
    max_tokens: int | None
    device: str | None
    dtype: Literal["fp32", "bf16"] | None
    threads: int | None
    objective: Literal["next-token", "masked-tokens", "continuation", "span-corruption", "text-infilling"] | None
    first_sentinel: int | None
    end_token: int | None
    mask_token: int | None
    seed: int | None
    write_logits: Path | None


class InitOptions(ProgramOptions, total=False):
    seed: int | None
    dtype: Literal["bf16", "fp16", "fp32"] | None


class SampleOptions(ProgramOptions, total=False):
    prompt: str | None
    plain: bool | None
    chats: bool | None
    tokenizer: Path | None
    tokens: int | None
    context: int | None
    batch: int | None
    temperature: float | None
    seed: int | None
    first_token: int | None
    dtype: Literal["fp32", "bf16"] | None
    device: str | None
    threads: int | None


class TeachOptions(ProgramOptions, total=False):
    data: Required[Path | Sequence[Path]]
    documents: Literal["pack", "separate"] | None
    document_end: int | None
    document_start: int | None
    context: int | None
    batch: int | None
    seed: int | None
    windows: int | None
    objective: Literal["next-token", "masked-tokens", "continuation", "span-corruption", "text-infilling"] | None
    first_sentinel: int | None
    end_token: int | None
    mask_token: int | None
    top: int | None
    temperature: float | None
    dtype: Literal["fp32", "bf16"] | None
    device: str | None
    threads: int | None
    dry_run: bool | None


class UptrainOptions(ProgramOptions, total=False):
    data: Path | Sequence[Path] | None
    text: Path | Sequence[Path] | None
    tokenizer: Path | None
    jsonl: bool | None
    field: str | None
    documents: Literal["pack", "separate"] | None
    document_end: int | None
    document_start: int | None
    alpha: float | None
    pretrain_steps: int | None
    pretrain_tokens: int | None
    steps: int | None
    context: int | None
    batch: int | None
    accumulate: int | None
    train: Literal["all", "attention", "kv"] | None
    optimizer: Literal["adamw", "adafactor"] | None
    moments: Literal["fp32", "bf16"] | None
    schedule: Literal["cosine", "wsd", "constant", "inverse-sqrt"] | None
    lr: float | None
    min_lr_ratio: float | None
    warmup: int | None
    decay_steps: int | None
    start_step: int | None
    weight_decay: float | None
    beta1: float | None
    beta2: float | None
    epsilon: float | None
    scale_by_parameter: bool | None
    clip: float | None
    seed: int | None
    objective: Literal["next-token", "masked-tokens", "continuation", "span-corruption", "text-infilling"] | None
    first_sentinel: int | None
    end_token: int | None
    mask_token: int | None
    teacher: Path | None
    teacher_weight: float | None
    temperature: float | None
    teacher_dtype: Literal["fp32", "bf16"] | None
    teacher_logits: Path | None
    other_teacher: bool | None
    distill_attention: float | None
    dtype: Literal["fp32", "bf16"] | None
    activation_checkpointing: bool | None
    memory: Literal["auto", "full", "compact", "host"] | None
    shard: Literal["auto", "optimizer", "full"] | None
    replicate: int | None
    sequence_parallel: int | None
    device: str | None
    threads: int | None
    timeout: int | None
    memory_check: Literal["on", "off"] | None
    eval_data: Path | None
    eval_every: int | None
    eval_max_tokens: int | None
    save_every: int | None
    keep_state: bool | None
    resume: bool | None
    dry_run: bool | None
    ranks: int | None
    ranks_per_machine: int | None
