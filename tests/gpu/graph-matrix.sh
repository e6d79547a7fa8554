#!/usr/bin/env bash
# graph-matrix.sh [EXAMPLE] [DEVICES]: captured graphs on real GPUs. EXAMPLE is the built examples/graph_matrix.
set -euo pipefail
example=${1:-target/release/examples/graph_matrix}
exec timeout 300 "$example" "${2:-0,1}"
