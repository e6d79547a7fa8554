#!/usr/bin/env bash
# What limits routes through host memory: the way through it piece by piece, a prototype by how it polls, and the routes.
# Usage: tests/gpu/staged.sh PATH/TO/topoforge
# Needs two GPUs; each run is bounded, both take about a minute.
set -u
bin=${1:?path to the topoforge binary}
failed=0
timeout 180 "$bin" floor --device cuda:0,1 --family no-peer-pair --payloads 1,5,10,25,40,80,256KiB || failed=1
NCCL_P2P_DISABLE=1 timeout 180 "$bin" tune --device cuda:0,1 --family no-peer-pair --launch both \
  --payloads 1,5,10,25,40,80,256KiB --comparator nccl || failed=1
exit $failed
