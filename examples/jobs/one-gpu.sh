#!/usr/bin/env bash
# One process on one GPU:
#   MODEL=Llama-2-7b-gqa8 DATA=corpus.bin OUTPUT=Llama-2-7b-gqa8-up ./one-gpu.sh --steps 2000
set -euo pipefail
exec regroup uptrain "$MODEL" --data "$DATA" --output "$OUTPUT" --resume=auto --device "${DEVICE:-cuda}" \
  --dtype "${DTYPE:-bf16}" "$@"
