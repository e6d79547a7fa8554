# Sourced by scripts that run a process a rank: check NAME SECONDS COMMAND.. counts and reports, its output goes to $out.
# Wants $bin, the path of topoforge, and $out, a folder that is there; sets $gpus, $passed and $failed.
# shellcheck shell=bash
passed=0 failed=0
check() {
  local name=$1 limit=$2
  shift 2
  local since=$SECONDS
  if timeout -k 5 "$limit" "$@" >"$out/$name.txt" 2>"$out/$name.err"; then
    passed=$((passed + 1))
    echo "ok    $name ($((SECONDS - since)) s)"
  else
    local code=$?
    failed=$((failed + 1))
    echo "FAIL  $name (status $code, $((SECONDS - since)) s)"
    tail -n 12 "$out/$name.txt" "$out/$name.err"
  fi
}
gpus=$("$bin" devices --json | python3 -c 'import json,sys; print(len(json.load(sys.stdin)["cuda"]))')
