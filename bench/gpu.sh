#!/usr/bin/env bash
# Builds regroup on a machine with a GPU, runs the GPU's tests, and measures. The tables about GPUs in
# docs/benchmarks.md come from this script. bench/README.md explains it.
#
#   bench/gpu.sh packages [DIR]    on a machine with network: puts the headers, libraries and build tools that the
#                                  GPU machine may lack into DIR (build/gpu-packages)
#   bench/gpu.sh next              runs what is unfinished, part after part, until the time limit
#   bench/gpu.sh PART | all        one part, or all of them, each within the time limit
#   bench/gpu.sh --again PART      forgets the part's results and repeats it
#   bench/gpu.sh status            what is done, failed and left
#   bench/gpu.sh tables            writes the results into docs/benchmarks.md
#
# Parts, most useful first: build test train compare batches forms profile decode attention conversion memory peers
# cpu-tests. A part is a list of steps. Each step that ends writes a file, so a call that is interrupted loses one step, and the next call continues
# there. A failed step is kept with its last lines and does not stop the others, except those that run a program which
# could not be built: they wait for a later call that builds it.
#
# Exit status: 0 all is done; 1 a step or a build failed; 2 wrong usage; 3 steps are left for the next call.
#
# Environment: LIMIT (540: seconds for a part), DEVICE (cuda), SHAPES ("0.1b 0.5b 1.5b 1.5b-alibi"; tiny: everything in
# small, for a CPU), PEAK_FLOPS (989e12, an H100's or H200's in bf16), PEERS (autocast,bf16-compiled,autocast-compiled),
# BUILD (a finished build to use instead of building), OTHER (another one, for the part compare), PACKAGES
# (build/gpu-packages), RESULTS (build/gpu/results),
# COPY (a folder for results.json, a copy of all results, which are taken from there if RESULTS is empty), WORK
# (build/gpu/work: models of up to 6 GB), DOC (docs/benchmarks.md), COMMIT (where there is no git), PYTHON (python3).
# To check the script on a CPU: DEVICE=cpu SHAPES=tiny BUILD=build/release bench/gpu.sh all
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case ${1:-} in
  packages) exec bench/gpu/packages "${2:-${PACKAGES:-build/gpu-packages}}" ;;
  '' | -h | --help | help) sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//'; [[ -n ${1:-} ]] || exit 2 ;;
  *) exec env PYTHONDONTWRITEBYTECODE=1 "${PYTHON:-python3}" bench/gpu/gpu.py "$@" ;;
esac
