"""Cases in vLLM on the CPU."""

import gc
import os

import adapter  # first: it sets the environment
import numpy as np

os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR"}

import vllm  # noqa: E402

POSITIONS = 64


def allocated_per_token(worker):
    """Bytes of all layers' blocks of keys and values, divided by the positions of a block. Tensors of layers that differ
    share one allocation, which each gives as its size."""
    tensors = worker.model_runner.kv_cache_config.kv_cache_tensors
    blocks = sum(tensor.block_stride * len(tensor.layers) for tensor in tensors)
    return blocks / worker.vllm_config.cache_config.block_size


def run(folder, facts):
    by_code = (folder / "model" / "regroup_heads.py").exists()
    model = vllm.LLM(
        str(folder / "model"),
        model_impl="transformers" if by_code else "auto",
        dtype="float32",
        skip_tokenizer_init=True,
        enforce_eager=True,
        max_model_len=POSITIONS,
        max_num_seqs=4,
        max_logprobs=-1,
        trust_remote_code=True,
        disable_log_stats=True,
        generation_config="vllm",
    )
    try:
        sampling = vllm.SamplingParams(
            temperature=0.0, max_tokens=len(facts["tokens"][0]), logprobs=-1, ignore_eos=True, detokenize=False
        )
        prompts = [{"prompt_token_ids": prompt} for prompt in facts["prompts"]]
        outputs = [one.outputs[0] for one in model.generate(prompts, sampling, use_tqdm=False)]
        steps = [[row_of(step) for step in output.logprobs] for output in outputs]
        return [output.token_ids for output in outputs], steps, model.collective_rpc(allocated_per_token)[0]
    finally:
        model.llm_engine.engine_core.shutdown()
        del model
        gc.collect()


def row_of(step):
    row = np.full(max(step) + 1, np.nan)
    for token, found in step.items():
        row[token] = found.logprob
    return row


adapter.run_cases(run, f"vLLM {vllm.__version__}")
