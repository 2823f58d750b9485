#!/usr/bin/env bash
# One process for each of GPUS GPUs, on each of NODES machines. Start it on every machine; HEAD is the name of one of them.
#   MODEL=Llama-2-7b-gqa8 DATA=corpus.bin OUTPUT=Llama-2-7b-gqa8-up ./torchrun.sh --steps 2000 --accumulate 64
#   NODES=2 HEAD=node1 MODEL=... ./torchrun.sh --steps 2000 --accumulate 64
# A rank that fails ends all; torchrun starts them again, up to three times, from the last state.
set -euo pipefail
exec torchrun --no-python --nnodes "${NODES:-1}" --nproc-per-node "${GPUS:-8}" --max-restarts 3 \
  --rdzv-backend c10d --rdzv-endpoint "${HEAD:-localhost}:${PORT:-29400}" \
  regroup uptrain "$MODEL" --data "$DATA" --output "$OUTPUT" --resume=auto --device "${DEVICE:-cuda}" \
  --dtype "${DTYPE:-bf16}" --shard "${SHARD:-auto}" "$@"
