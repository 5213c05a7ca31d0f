#!/usr/bin/env python3
"""Fits the models of src/dispatch/small_choice.hpp to grids that flashcore_small_grid measured.

    fit_small_choice.py GRID.json...     prints the constants of each kernel's model, and for each
                                         kernel that may be the other choice how often the choice is
                                         right, and its worst loss
"""
import argparse
import json
import math
import pathlib
import sys

MULTIPROCESSORS = 132
SMALL = "forward_small_sm90"
# Queries of a unit, keys of a step, SMs of a unit.
SHAPES = {SMALL: (64, 256, 2), "forward_sm90": (128, 128, 1), "forward_sm80": (128, 64, 1)}
FIELDS = ("launch", "unit", "step_64", "step_128", "full_unit", "full_step_64", "full_step_128")


def work(row: dict, block_q: int, step_keys: int, unit_sms: int) -> tuple[float, float, float]:
    """(waves, average steps, longest): as work_of() in small_choice.hpp."""
    seqlen, tiles = row["seqlen"], -(-row["seqlen"] // block_q)
    stride = max(1, tiles // 32)
    steps = []
    for tile in range(0, tiles, stride):
        last = min((tiles - tile) * block_q, seqlen)
        steps.append(-(-(last if row["causal"] else seqlen) // step_keys))
    waves = tiles * row["heads"] * unit_sms / MULTIPROCESSORS
    return waves, sum(steps) / len(steps), max(steps)


def predicted(features: tuple[float, float, float], wide: float, constants: list[float]) -> float:
    launch, unit, step_64, step_128, full_unit, full_64, full_128 = constants
    waves, average, longest = features
    alone = unit + longest * (step_64 + wide * (step_128 - step_64))
    full = full_unit + average * (full_64 + wide * (full_128 - full_64))
    return launch + max(alone, waves * full)


def fit(points: list[tuple[tuple[float, float, float], float, float]]) -> list[float]:
    """Constants that make the mean squared log error small: a pattern search, from plain values."""
    constants = [1.5, 1.0, 1.0, 1.5, 1.0, 1.0, 1.5]

    def loss(candidate: list[float]) -> float:
        return sum(math.log(predicted(f, wide, candidate) / us) ** 2 for f, wide, us in points)

    best, stride = loss(constants), 0.5
    while stride > 1e-3:
        improved = False
        for i in range(len(constants)):
            for sign in (1, -1):
                candidate = list(constants)
                candidate[i] = max(candidate[i] + sign * stride, 0.01)
                value = loss(candidate)
                if value < best - 1e-12:
                    best, constants, improved = value, candidate, True
        if not improved:
            stride /= 2
    return constants


def wide_of(row: dict) -> float:
    return (row["head_dim"] - 64) / 64


def report(measured: list[tuple[dict, dict]], fitted: dict, other: str) -> None:
    """How the choice between the small kernel and `other` does on what was measured."""
    right, count, worst, where = 0, 0, 1.0, ""
    for row, times in measured:
        if SMALL not in times or other not in times:
            continue
        guess = {kernel: predicted(work(row, *SHAPES[kernel]), wide_of(row), fitted[kernel])
                 for kernel in (SMALL, other)}
        chosen = min(guess, key=guess.get)
        best = min(times[SMALL], times[other])
        count += 1
        right += times[chosen] == best
        if times[chosen] / best > worst:
            worst = times[chosen] / best
            where = " at " + ", ".join(f"{key} {row[key]}"
                                       for key in ("heads", "seqlen", "head_dim", "causal"))
    print(f"against {other}: {right} of {count} right, at worst {worst:.3f} of the best{where}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("grids", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    measured = []
    for grid in options.grids:
        for row in json.loads(grid.read_text(encoding="utf-8"))["rows"]:
            times = {cell["kernel"]: cell["us"] for cell in row["kernels"] if "us" in cell}
            measured.append((row, times))
    fitted = {}
    for kernel, shape in SHAPES.items():
        points = [(work(row, *shape), wide_of(row), times[kernel])
                  for row, times in measured if kernel in times]
        if not points:
            continue
        fitted[kernel] = fit(points)
        off = max(abs(math.log(predicted(f, wide, fitted[kernel]) / us)) for f, wide, us in points)
        print(f"{kernel}: " + ", ".join(f"{field} {value:.2f}"
                                        for field, value in zip(FIELDS, fitted[kernel])) +
              f"  (off by at most {math.expm1(off):.0%})")
    for other in ("forward_sm90", "forward_sm80"):
        if other in fitted:
            report(measured, fitted, other)
    return 0


if __name__ == "__main__":
    sys.exit(main())
