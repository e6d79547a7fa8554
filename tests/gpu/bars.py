"""Checks a `topoforge tune --json` report against the bars: every size selected, twice as fast as NCCL.

Usage: bars.py REPORT.json
"""

import json
import sys

report = json.load(open(sys.argv[1]))
bad = []
for row in report["rows"]:
    kib = row["bytes"] / 1024
    if not row["selected"]:
        bad.append(f"{kib:g} KiB: kept the comparator")
    elif row["comparator_us"] < 2 * row["us"]:
        bad.append(f"{kib:g} KiB: {row['comparator_us'] / row['us']:.2f} x NCCL, wanted 2")
    for other in row.get("comparators", []):
        if other["name"].startswith("one-shot-pull") and other["us"] < 1.5 * row["us"]:
            bad.append(f"{kib:g} KiB: {other['us'] / row['us']:.2f} x peer reads, wanted 1.5")
print("\n".join(bad) or f"{len(report['rows'])} sizes within the bars")
sys.exit(bool(bad) or not report["rows"])
