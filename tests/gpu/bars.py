"""The table of bars, measured: every figure beside its bar, and whether it is met.

Usage: bars.py TOPOFORGE [--device cuda:0,1] [--strict] [--keep FOLDER]

Runs, one after the other, each bounded: a sweep with plain and programmatic launches, and one without peer access
(NCCL_P2P_DISABLE=1), both against NCCL as found and the compiled peer reads. Takes about a minute on two GPUs. The status is 0 whatever the figures are, unless --strict asks for all bars; 1 or 2 where nothing could be measured.
"""

import argparse
import json
import os
import subprocess
import sys

# KiB, then: at most so many times the reference (programmatic, plain), at least so many times faster than NCCL, than pull.
BARS = [
    ((1, 1), 1.23, 1.30, 4.5, 2.5),
    ((5, 80), 1.17, 1.25, 4.0, 2.1),
    ((128, 512), 1.13, 1.20, 3.0, 1.6),
    ((1024, 4096), 1.35, 1.35, 2.0, 1.2),
]
# KiB, at least so many times faster than NCCL where neither has peer access.
STAGED = [(1, 4.0), (5, 4.0), (10, 4.0), (25, 3.3), (40, 3.3), (80, 2.8), (256, 2.3)]
SIZES = [1, 5, 10, 25, 40, 80, 128, 256, 512, 1024, 2048, 4096]
LIMIT = 240


def run(arguments, **environment):
    """One command's JSON; bounded."""
    line = [args.topoforge, *arguments, "--json", "--quiet"]
    try:
        done = subprocess.run(
            line, env={**os.environ, **environment}, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        sys.exit(f"{' '.join(line)}: not done after {LIMIT} s")
    if done.returncode not in (0, 1):
        sys.exit(f"{' '.join(line)}: status {done.returncode}\n{done.stderr}")
    try:
        document = json.loads(done.stdout)
    except ValueError:
        sys.exit(f"{' '.join(line)}: no document\n{done.stderr}")
    if "error" in document:
        sys.exit(f"{' '.join(line)}: {document['error']}")
    if args.keep:
        os.makedirs(args.keep, exist_ok=True)
        name = "-".join(a.strip("-").replace("/", "_") for a in arguments if not a.startswith("cuda"))
        with open(os.path.join(args.keep, name + ".json"), "w", encoding="utf-8") as file:
            file.write(done.stdout)
    return document


def figures(document):
    """KiB -> (the sweep's row, NCCL, pull)."""
    rows = {}
    for row in document["rows"]:
        nccl, pull = None, None
        for column, figure in zip(document["columns"], row["figures"]):
            if figure is not None and column.startswith("nccl/"):
                nccl = figure["us"]
            elif figure is not None and ("/pull/" in column or column.startswith("two-stage-pull/")):
                pull = min(pull or 1e9, figure["us"])
        rows[row["bytes"] / 1024] = (row, nccl, pull)
    return rows


def line(kib, what, measured, bar, most):
    """One bar. `most`: the figure must not be above it; else not below."""
    if measured is None:
        met = None
    else:
        met = measured <= bar + 0.005 if most else measured >= bar - 0.005
    sign = "<=" if most else ">="
    shown = "-" if measured is None else f"{measured:.2f}"
    word = {True: "met", False: "MISSED", None: "not measured"}[met]
    print(f"{kib:>6g} KiB  {what:<34} {shown:>7}  {sign} {bar:<5g} {word}")
    verdicts.append(met)


parser = argparse.ArgumentParser()
parser.add_argument("topoforge")
parser.add_argument("--device", default="cuda:0,1")
parser.add_argument("--strict", action="store_true")
parser.add_argument("--keep")
args = parser.parse_args()
verdicts = []

sweep = ["bench", "--device", args.device, "--from", "1KiB", "--to", "4MiB", "--comparator", "nccl,pull", "--launch", "both"]
rows = figures(run(sweep))
staged_sizes = ",".join(str(kib) for kib, _ in STAGED) + "KiB"
staged = run(
    [
        "tune", "--device", args.device, "--family", "no-peer-pair", "--comparator", "nccl", "--launch", "both",
        "--payloads", staged_sizes,
    ],
    NCCL_P2P_DISABLE="1",
)

print("route = the fastest proven variant of ours; us a call; reference = floor of the same run")
for kib in SIZES:
    for (low, high), times_programmatic, times_plain, times_nccl, times_pull in BARS:
        if not low <= kib <= high:
            continue
        row, nccl, pull = rows.get(kib, ({}, None, None))
        for mode, bar in (("programmatic", times_programmatic), ("plain", times_plain)):
            best = row.get(mode)
            us = best and best["us"]
            if best:
                given = "-" if best["reference_us"] is None else f"{best['reference_us']:.2f}"
                print(f"{kib:>6g} KiB  {mode}: {us:.2f} by {best['route']} {best['geometry']}, reference {given}")
            line(kib, f"{mode}, times the reference", best and best["over_reference"], bar, True)
            line(kib, f"{mode}, times faster than NCCL", nccl / us if us and nccl else None, times_nccl, False)
            line(kib, f"{mode}, times faster than pull", pull / us if us and pull else None, times_pull, False)
for kib, bar in STAGED:
    row = next((r for r in staged["rows"] if r["bytes"] == kib * 1024), None)
    ratio = row and row["us"] and row["comparator_us"] and row["comparator_us"] / row["us"]
    if ratio:
        print(f"{kib:>6g} KiB  without peer access: {row['us']:.2f} by {row['route']} {row['geometry']}, NCCL {row['comparator_us']:.2f}")
    line(kib, "no peer access, times faster than NCCL", ratio or None, bar, False)

met, missed = verdicts.count(True), verdicts.count(False)
unknown = verdicts.count(None)
print(f"{len(verdicts)} bars: {met} met, {missed} missed, {unknown} not measured")
if args.strict and missed + unknown:
    sys.exit(1)
if unknown == len(verdicts):
    sys.exit(2)
