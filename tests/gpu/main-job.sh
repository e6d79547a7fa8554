#!/usr/bin/env bash
# The main job on real GPUs: every variant proven, routes timed against NCCL and peer reads, written and read again.
# Usage: tests/gpu/main-job.sh PATH/TO/topoforge [FOLDER FOR REPORTS]
# Needs one GPU for the proofs and two for the timings. Ends with a count; any failure makes the status non-zero.
set -u
bin=${1:?path to the topoforge binary}
out=${2:-$(mktemp -d)}
mkdir -p "$out"
# Ranks that share a GPU need a hardware queue each.
export CUDA_DEVICE_MAX_CONNECTIONS=32
passed=0 failed=0
check() {
  local name=$1
  shift
  local since=$SECONDS
  if "$@" >"$out/$name.txt" 2>"$out/$name.err"; then
    passed=$((passed + 1))
    echo "ok    $name ($((SECONDS - since)) s)"
  else
    failed=$((failed + 1))
    echo "FAIL  $name ($((SECONDS - since)) s)"
    tail -n 15 "$out/$name.txt" "$out/$name.err"
  fi
}
gpus=$("$bin" devices --json | python3 -c 'import json,sys; print(len(json.load(sys.stdin)["cuda"]))')
echo "$gpus GPUs"
check doctor "$bin" doctor
check qualify-all "$bin" qualify --device cuda --family all --virtual
check qualify-one-gpu "$bin" qualify --device cuda:0 --family all --virtual
check controls-pair "$bin" qualify --device cuda --family nvlink-pair --virtual --controls
for family in nvlink-pair nvlink-quad; do
  check "soak-virtual-$family" "$bin" soak --device cuda:0 --virtual --family "$family" --variant all --calls 4k --control
  cat "$out/soak-virtual-$family.txt"
done
if [ "$gpus" -ge 2 ]; then
  for partials in f16 f32; do
    check "tune-$partials" "$bin" tune --device cuda:0,1 --comparator nccl,pull --partials $partials --out "$out/routes-$partials.ron"
    cat "$out/tune-$partials.txt"
    check "start-$partials" "$bin" start --device cuda:0,1 --routes "$out/routes-$partials.ron"
    cat "$out/start-$partials.txt"
  done
  check tune-staged env NCCL_P2P_DISABLE=1 "$bin" tune --device cuda:0,1 --family no-peer-pair --comparator nccl
  cat "$out/tune-staged.txt"
  check floor "$bin" floor --device cuda:0,1
  cat "$out/floor.txt"
  for launch in plain programmatic; do
    check "bench-$launch" "$bin" bench --device cuda:0,1 --launch "$launch" --to 4MiB --svg "$out/bench-$launch.svg"
    cat "$out/bench-$launch.txt"
  done
  check tune-comparators "$bin" tune --device cuda:0,1 --comparator nccl,nccl-ll,nccl-ring,pull --launch both
  cat "$out/tune-comparators.txt"
  check tune-concurrency "$bin" tune --device cuda:0,1 --concurrency 3 --calls 5KiB:128,25KiB:64 --step-ms 8..20
  cat "$out/tune-concurrency.txt"
  check bench-nccl-tests "$bin" bench --device cuda:0,1 --style nccl-tests --groups pairs,full --output "$out/ranks"
  cat "$out/bench-nccl-tests.txt"
  check floor-staged "$bin" floor --device cuda:0,1 --family no-peer-pair
  cat "$out/floor-staged.txt"
  check soak-pair "$bin" soak --device cuda:0,1 --calls 1M --control
  cat "$out/soak-pair.txt"
  check bars python3 "$(dirname "$0")/bars.py" "$bin"
  cat "$out/bars.txt"
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
