#!/usr/bin/env bash
# Builds regroup on a machine with a GPU, runs the GPU's tests, and measures training and decoding. The numbers
# in docs/benchmarks.md come from this script.
#
#   bench/gpu.sh packages DIR      on a machine with network: unpacks headers and libraries that the GPU
#                                  machine may lack (CLI11, fmt, nlohmann-json, Catch2) into DIR
#   bench/gpu.sh build [DIR]       configures and builds build/gpu with the packages in DIR
#   bench/gpu.sh test              runs the tests labelled gpu, then those of uptrain/
#   bench/gpu.sh attention|train|decode    measures and writes $RESULTS/attention.md, train.md, decode.md
#   bench/gpu.sh all [DIR]         all of these in order
#
# RESULTS (build/gpu/results), WORK (build/gpu/work: models of up to 6 GB), DEVICE (cuda), SHAPES and PEAK_FLOPS
# (989e12, an H100's or H200's in bf16) can be set. To check the script on a CPU:
#   DEVICE=cpu SHAPES=tiny PEAK_FLOPS=0 bench/gpu.sh train
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=${BUILD:-build/gpu}
results=${RESULTS:-$build/results}
work=${WORK:-$build/work}
device=${DEVICE:-cuda}
shapes=${SHAPES:-0.1b 0.5b 1.5b 1.5b-alibi}
peak_flops=${PEAK_FLOPS:-989e12}
python=${PYTHON:-python3}

packages() {
  mkdir -p "$1/archives"
  (cd "$1/archives" && apt-get download libcli11-dev libfmt-dev libfmt9 nlohmann-json3-dev catch2/bookworm-backports)
  for archive in "$1"/archives/*.deb; do dpkg -x "$archive" "$1"; done
  rm -r "$1/archives"
}

build() {
  local prefix=()
  if [[ -n ${1:-} ]]; then prefix=("-DCMAKE_PREFIX_PATH=$(realpath "$1")/usr"); fi
  cmake -S . -B "$build" -G "$(command -v ninja >/dev/null && echo Ninja || echo 'Unix Makefiles')" \
    -DCMAKE_BUILD_TYPE=Release -DREGROUP_BENCH=ON "${prefix[@]}"
  cmake --build "$build" --parallel "$(nproc)" --target regroup regroup_compute test_gpu \
    test_uptrain bench_alibi_attention
}

run_tests() {
  nvidia-smi || true
  "$build/tests/test_gpu" --skip-benchmarks
  "$build/tests/test_uptrain"
}

# Sequences per batch that fill the card at 2048 tokens each.
batch_of() {
  case $1 in tiny) echo 2 ;; 0.1b) echo 32 ;; 0.5b) echo 16 ;; *) echo 8 ;; esac
}

# The cost of ALiBi relative to plain causal attention.
attention() {
  mkdir -p "$results"
  local size=(--heads 32 --kv-heads 8 --head-dim 128 --batch 4 --rounds 20)
  if [[ $device == cpu ]]; then size=(--lengths 128,256 --rounds 2); fi
  "$build/bench/bench_alibi_attention" --device "$device" "${size[@]}" | tee "$results/attention.md"
}

train() {
  mkdir -p "$results"
  for shape in $shapes; do
    local sequence=2048 peers=autocast,bf16-compiled,autocast-compiled
    if [[ $shape == tiny ]]; then sequence=64 peers=bf16; fi
    "$python" bench/training/training.py --work "$work" --shape "$shape" --device "$device" --rounds 3 \
      --batch "$(batch_of "$shape")" --sequence "$sequence" --steps 10 --warmup 4 --peak-flops "$peak_flops" \
      --peers "$peers" --regroup "$build/regroup"
    echo
  done | tee "$results/train.md"
}

# One MHA model, and the same model with fewer kv heads.
decode() {
  mkdir -p "$results"
  local shape=1.5b batch=64 context=4096
  if [[ $device == cpu ]]; then shape=tiny batch=2 context=64; fi
  "$python" bench/training/training.py --work "$work" --shape "$shape-mha" --prepare-only --regroup "$build/regroup"
  "$build/regroup" bench decode "$work/$shape-mha" --kv-heads 16,8,4,2,1 --batch "$batch" --context "$context" \
    --device "$device" --dtype bf16 | tee "$results/decode.md"
}

case ${1:-} in
  packages) packages "${2:?a directory}" ;;
  build) build "${2:-}" ;;
  test) run_tests ;;
  attention) attention ;;
  train) train ;;
  decode) decode ;;
  all) build "${2:-}" && run_tests && attention && train && decode ;;
  *) sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//' && exit 2 ;;
esac
