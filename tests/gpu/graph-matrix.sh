#!/usr/bin/env bash
# graph-matrix.sh [EXAMPLE] [DEVICES] [SECONDS]: captured graphs on real GPUs, then mixed at random for SECONDS (0: not at all).
# EXAMPLE is the built examples/graph_matrix.
set -euo pipefail
example=${1:-target/release/examples/graph_matrix}
seconds=${3:-0}
exec timeout $((300 + seconds)) "$example" "${2:-0,1}" "$seconds"
