#!/usr/bin/env bash
# A process a rank on real GPUs: every way of sharing memory, masks, ranks on one GPU, many groups, and the table of two
# processes against that of one.
# Usage: tests/gpu/multi-process.sh PATH/TO/topoforge [WHAT] [FOLDER FOR REPORTS]
# Needs two GPUs; with one, only the ranks that share it. Some three minutes in two parts: WHAT is basics, tables or all. Any failure makes the status non-zero.
set -u
bin=${1:?path to the topoforge binary}
what=${2:-all}
out=${3:-$(mktemp -d)}
mkdir -p "$out"
here=$(dirname "$0")
. "$(dirname "$0")/checks.sh"
echo "$gpus GPUs"
small=(--payloads 5KiB --comparator none --deadline 5 --patience 20)
[ "$what" = tables ] || check one-gpu 60 "$bin" launch -n 2 --gpus 0,0 --port 29501 -- "${small[@]}" --shared-gpus --family nvlink-pair --calls 6
if [ "$gpus" -ge 2 ] && [ "$what" != tables ]; then
  check pair 60 "$bin" launch -n 2 --port 29502 -- "${small[@]}"
  cat "$out/pair.txt"
  check reordered 60 env CUDA_VISIBLE_DEVICES=1,0 "$bin" launch -n 2 --port 29503 -- "${small[@]}"
  check masked 60 "$bin" launch -n 2 --gpus 1,0 --masked --port 29504 -- "${small[@]}"
  for way in vmm ipc staged; do
    family=()
    [ "$way" = staged ] && family=(--family no-peer-pair)
    check "share-$way" 60 "$bin" launch -n 2 --port 29505 -- "${small[@]}" --share "$way" "${family[@]}"
  done
fi
if [ "$gpus" -ge 2 ] && [ "$what" != basics ]; then
  rm -f "$out"/one.ron "$out"/two.ron
  tune=(--payloads 1,5,10,25,40,80KiB --comparator nccl,pull)
  check tune-one 120 "$bin" tune --device cuda:0,1 "${tune[@]}" --out "$out/one.ron"
  check tune-two 120 "$bin" launch -n 2 --port 29506 -- "${tune[@]}" --routes "$out/two.ron"
  check same-table 10 python3 "$here/same-table.py" "$out/one.ron" "$out/two.ron"
  cat "$out/same-table.txt"
  check read-table 60 "$bin" launch -n 2 --port 29507 -- "${tune[@]}" --routes "$out/two.ron"
  check cycles 120 "$bin" launch -n 2 --port 29508 -- "${tune[@]}" --routes "$out/two.ron" --cycles 20 --calls 6
  cat "$out/cycles.txt"
  # Joining, memory and leaving without proofs, which would take too long a thousand times.
  check cycles-1000 170 env TOPOFORGE=0 "$bin" launch -n 2 --port 29509 -- "${small[@]}" --cycles 1000 --calls 0
  cat "$out/cycles-1000.txt"
fi
echo "$passed passed, $failed failed; reports in $out"
[ "$failed" -eq 0 ]
