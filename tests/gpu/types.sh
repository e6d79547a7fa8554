#!/usr/bin/env bash
# Several element types in one communicator, starts with and without NCCL, a single rank, and ranks that no family fits, on
# real GPUs, a process a GPU.
# Usage: tests/gpu/types.sh PATH/TO/topoforge [FOLDER FOR REPORTS]
# Needs two GPUs and a build with the features bf16 and f32 (types that are not compiled in are left out). Two minutes. Any
# failure makes the status non-zero.
set -u
bin=${1:?path to the topoforge binary}
out=${2:-$(mktemp -d)}
mkdir -p "$out"
. "$(dirname "$0")/checks.sh"
types=f16
for type in bf16 f32; do
  "$bin" families --json | grep -q "\"$type\"" && types=$types,$type
done
echo "$gpus GPUs, types $types"
rm -f "$out"/r*.ron
small=(--payloads 1,5,10KiB --deadline 5 --patience 30)
# Set up three times over: measured, read, and read without NCCL where no range is NCCL's.
check types 120 "$bin" launch -n 2 --port 29701 -- "${small[@]}" --comparator nccl --dtype "$types" --routes "$out/r.ron" --calls 36
for type in ${types//,/ }; do
  file=$out/r.$type.ron
  [ "$types" = f16 ] && file=$out/r.ron
  check "table-$type" 5 grep -q "element: \"$type\"" "$file"
  check "explained-$type" 5 grep -q "$type, 1 to 1024 bytes" "$out/types.txt"
done
check read 60 "$bin" launch -n 2 --port 29702 -- "${small[@]}" --comparator nccl --dtype "$types" --routes "$out/r.ron" --calls 36
check was-read 5 grep -q "proven again" "$out/read.txt"
check routed 60 "$bin" launch -n 2 --port 29703 -- "${small[@]}" --comparator nccl --dtype "$types" --routes "$out/r.ron" --calls 36 --nccl routed
if ! grep -q 'Comparator' "$out"/r*.ron; then
  check no-nccl 5 grep -q "wants it for nothing else" "$out/routed.txt"
fi
first=$(ls "$out"/r*.ron | head -n 1)
for when in start routed; do
  check "start-$when" 60 "$bin" start --routes "$first" --device cuda:0,1 --nccl "$when"
  grep -i -E 'total|ready|NCCL' "$out/start-$when.txt" | head -n 5
done
check single 60 "$bin" launch -n 1 --port 29704 -- "${small[@]}" --calls 12
check single-said 5 grep -q "a single rank" "$out/single.txt"
check single-alone 60 "$bin" launch -n 1 --port 29705 -- "${small[@]}" --comparator none --calls 12
if [ "$gpus" -ge 3 ]; then
  check unmatched 90 "$bin" launch -n 3 --port 29706 -- "${small[@]}" --calls 12
  cat "$out/unmatched.txt" | head -n 12
fi
echo "$passed passed, $failed failed; reports in $out"
[ "$failed" -eq 0 ]
