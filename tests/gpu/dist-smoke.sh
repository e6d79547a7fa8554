#!/usr/bin/env bash
# The one file that `cargo xtask dist` makes, alone in an empty folder on a machine with GPUs: doctor, proofs, tune, bench.
# Usage: tests/gpu/dist-smoke.sh PATH/TO/topoforge-VERSION-ARCH-linux [FOLDER FOR REPORTS]
# Needs one GPU; two for the timings. No nvcc, Rust or network is used. Ends with a table; any failure makes the status non-zero.
set -u
file=$(realpath "${1:?path to the file}")
out=$(realpath -m "${2:-$(mktemp -d)}")
mkdir -p "$out"
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cp "$file" "$place/topoforge" && cd "$place" || exit 1
bin=./topoforge
# Nothing of a toolkit: only the system's own folders, and where the driver's and NCCL's libraries are.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin CUDA_DEVICE_MAX_CONNECTIONS=32
unset CUDA_HOME CUDA_PATH NVCC TOPOFORGE_NVCC
passed=0 failed=0 table=
check() {
  local name=$1 limit=$2
  shift 2
  local since=$SECONDS word
  if timeout "$limit" "$@" >"$out/$name.txt" 2>"$out/$name.err"; then
    passed=$((passed + 1)) word=ok
  else
    failed=$((failed + 1)) word=FAIL
    tail -n 15 "$out/$name.txt" "$out/$name.err"
  fi
  table+=$(printf '%-5s %-14s %4d s' "$word" "$name" $((SECONDS - since)))$'\n'
}
check version 20 "$bin" version
check check 120 "$bin" plan all --check
gpus=$("$bin" devices --json | grep -c '"ordinal"')
check doctor 300 "$bin" doctor
check prove-host 120 "$bin" qualify --family nvlink-pair --device host
check prove-one-gpu 300 "$bin" qualify --family nvlink-pair --device cuda:0 --virtual
if [ "$gpus" -ge 2 ]; then
  check prove-pair 300 "$bin" qualify --family nvlink-pair --device cuda:0,1
  check tune 300 "$bin" tune --device cuda:0,1 --out "$out/routes.ron"
  check bench 300 "$bin" bench --device cuda:0,1 --to 1MiB
  cat "$out/tune.txt" "$out/bench.txt"
fi
# No library of CUDA's toolkit may have been asked for.
if command -v ldd >/dev/null; then
  check needs 20 sh -c "ldd ./topoforge | tee /dev/stderr | grep -vE 'linux-vdso|libc\\.so|libpthread|libdl|libm\\.so|ld-linux' | grep -c . | grep -qx 0"
fi
echo
head -n 4 "$out/version.txt"
printf '%s bytes, %s GPUs\n%s%d passed, %d failed\n' "$(stat -c %s topoforge)" "$gpus" "$table" $passed $failed
[ $failed -eq 0 ]
