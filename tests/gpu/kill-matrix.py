#!/usr/bin/env python3
"""Kills one rank of two at random moments and checks the survivor, on real GPUs.

Usage: kill-matrix.py PATH/TO/topoforge [KILLS] [SEED] [GPUS, e.g. 0,1 or 0,0]

Each time two ranks set up (join, qualify, serve) and are left alone for a random while; then one gets SIGKILL, or is
stopped for good in every fourth round. The survivor must end by itself within the bound with an error that names the
rank, and all memory of the GPUs must be free again. At the end a whole group must work at once. Under three minutes.
"""
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

BIN = sys.argv[1]
KILLS = int(sys.argv[2]) if len(sys.argv) > 2 else 24
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 1
GPUS = (sys.argv[4] if len(sys.argv) > 4 else "0,1").split(",")
DEADLINE, PATIENCE = 2, 6
# A killed process is seen at once; a stopped one only by the deadline of kernels and the patience of set-up.
BOUND = {"kill": 12, "stop": PATIENCE + 4 * DEADLINE + 30 + 10}
BUDGET = 170


def start(rank, run, calls):
    env = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2",
               MASTER_ADDR="127.0.0.1", MASTER_PORT="29600", TORCHELASTIC_RUN_ID=run)
    line = [BIN, "rank", "--gpu", GPUS[rank], "--payloads", "5KiB", "--comparator", "none", "--calls", str(calls),
            "--deadline", str(DEADLINE), "--patience", str(PATIENCE)]
    if GPUS[0] == GPUS[1]:
        line += ["--shared-gpus", "--family", "nvlink-pair"]
    out = tempfile.TemporaryFile(mode="w+")
    return subprocess.Popen(line, env=env, stdout=out, stderr=subprocess.STDOUT), out


def used():
    try:
        text = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                              capture_output=True, text=True, timeout=20).stdout
        return [int(x) for x in re.findall(r"\d+", text)]
    except (OSError, subprocess.TimeoutExpired):
        return []


def end(process):
    process.kill()
    process.wait()


def main():
    random.seed(SEED)
    began = time.monotonic()
    idle = used()
    whole_s = None
    bad, moments = [], []
    a, b = start(0, f"warm-{os.getpid()}", 20), start(1, f"warm-{os.getpid()}", 20)
    since = time.monotonic()
    codes = [a[0].wait(90), b[0].wait(90)]
    whole_s = time.monotonic() - since
    if codes != [0, 0]:
        a[1].seek(0)
        sys.exit(f"a whole group fails before anybody is killed: {codes}\n{a[1].read()}")
    print(f"a whole group takes {whole_s:.1f} s")
    done = 0
    for number in range(KILLS):
        if time.monotonic() - began > BUDGET - 60:
            break
        how = "stop" if number % 12 == 11 else "kill"
        victim = random.randrange(2)
        moment = random.uniform(0, 1.5 * whole_s)
        run = f"{os.getpid()}-{number}"
        ranks = [start(0, run, 1 << 30), start(1, run, 1 << 30)]
        time.sleep(moment)
        signal_ = signal.SIGKILL if how == "kill" else signal.SIGSTOP
        ranks[victim][0].send_signal(signal_)
        since = time.monotonic()
        survivor, out = ranks[1 - victim]
        try:
            code = survivor.wait(BOUND[how])
        except subprocess.TimeoutExpired:
            code = None
        took = time.monotonic() - since
        end(survivor)
        end(ranks[victim][0])
        out.seek(0)
        said = out.read()
        named = re.search(rf"\brank {victim}\b", said.rsplit("error:", 1)[-1]) is not None
        good = code == 1 and named
        moments.append((how, moment, took))
        done += 1
        if not good:
            bad.append(number)
            print(f"FAIL  {number}: rank {victim}, {how} after {moment:.2f} s: status {code} after {took:.1f} s\n{said[-800:]}")
    time.sleep(1)
    held = [u - i for u, i in zip(used(), idle)]
    if any(h > 64 for h in held):
        bad.append("memory")
        print(f"FAIL  memory still held: {held} MiB")
    a, b = start(0, f"after-{os.getpid()}", 20), start(1, f"after-{os.getpid()}", 20)
    codes = [a[0].wait(90), b[0].wait(90)]
    if codes != [0, 0]:
        bad.append("after")
        print(f"FAIL  no group afterwards: {codes}")
    for how in ("kill", "stop"):
        times = [t for h, _, t in moments if h == how]
        if times:
            print(f"{how}: {len(times)} times, survivor ended after at most {max(times):.1f} s")
    print(f"{done} rounds, {len(bad)} failures, {time.monotonic() - began:.0f} s")
    sys.exit(1 if bad or not done else 0)


if __name__ == "__main__":
    main()
