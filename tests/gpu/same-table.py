#!/usr/bin/env python3
"""Compares two tables of routes size by size: figures may differ by a share, 10 % unless given.

Usage: same-table.py one.ron two.ron [SHARE]. Status 1 when a figure of the second is farther off than that.
"""
import re
import sys


def table(path):
    text = open(path, encoding="utf-8").read()
    routes = {}
    for part in re.split(r"\bup_to\s*:\s*", text)[1:]:
        size = int(re.match(r"\d+", part).group())
        name = re.search(r'name\s*:\s*"([^"]*)"', part)
        us = re.search(r"\bus\s*:\s*Some\(([\d.]+)\)", part)
        other = re.search(r"comparator_us\s*:\s*Some\(([\d.]+)\)", part)
        routes[size] = (
            name.group(1) if name else "comparator",
            float(us.group(1)) if us else None,
            float(other.group(1)) if other else None,
        )
    return routes


def main():
    one, two = table(sys.argv[1]), table(sys.argv[2])
    share = float(sys.argv[3]) if len(sys.argv) > 3 else 0.10
    if sorted(one) != sorted(two) or not one:
        sys.exit(f"tables of other sizes: {sorted(one)} and {sorted(two)}")
    bad = 0
    print(f"{'bytes':>8} {'one us':>8} {'two us':>8} {'ratio':>6} {'nccl ratio':>10}  route in one process | in two")
    for size in sorted(one):
        (a_name, a, a_other), (b_name, b, b_other) = one[size], two[size]
        if a is None or b is None:
            print(f"{size:>8} has no figure in one of them")
            bad += 1
            continue
        ratio = b / a
        other = f"{b_other / a_other:10.3f}" if a_other and b_other else " " * 10
        off = "" if abs(ratio - 1) <= share else "  FAR OFF"
        bad += bool(off)
        print(f"{size:>8} {a:8.2f} {b:8.2f} {ratio:6.3f} {other}  {a_name} | {b_name}{off}")
    print(f"{bad} of {len(one)} sizes differ by more than {share:.0%}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
