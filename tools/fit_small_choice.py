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


def search(constants: list[float], loss) -> list[float]:
    """A pattern search for what makes the loss small."""
    constants, best, stride = list(constants), loss(constants), 0.5
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


def fit(points: list[tuple[tuple[float, float, float], float, float]]) -> list[float]:
    """Constants that make the mean squared log error small, from plain values."""
    return search([1.5, 1.0, 1.0, 1.5, 1.0, 1.0, 1.5],
                  lambda c: sum(math.log(predicted(f, wide, c) / us) ** 2
                                for f, wide, us in points))


def fit_choice(measured: list[tuple[dict, dict]], fitted: dict) -> dict:
    """From each kernel's own fit: what loses least by wrong choices, and still predicts well."""
    kernels = list(fitted)
    rows = [({kernel: (work(row, *SHAPES[kernel]), wide_of(row), times[kernel])
              for kernel in kernels if kernel in times}) for row, times in measured]

    def loss(flat: list[float]) -> float:
        total = 0.0
        for row in rows:
            guess = {kernel: predicted(f, wide, flat[7 * kernels.index(kernel):][:7])
                     for kernel, (f, wide, _) in row.items()}
            total += sum(math.log(guess[kernel] / row[kernel][2]) ** 2 for kernel in row)
            for other in row:
                if other == SMALL or SMALL not in row:
                    continue
                chosen = SMALL if guess[SMALL] < guess[other] else other
                total += 5 * (row[chosen][2] / min(row[SMALL][2], row[other][2]) - 1)
        return total

    flat = search([value for kernel in kernels for value in fitted[kernel]], loss)
    return {kernel: flat[7 * n:7 * n + 7] for n, kernel in enumerate(kernels)}


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
    fitted = fit_choice(measured, fitted)
    for kernel, shape in SHAPES.items():
        points = [(work(row, *shape), wide_of(row), times[kernel])
                  for row, times in measured if kernel in times]
        if not points:
            continue
        off = max(abs(math.log(predicted(f, wide, fitted[kernel]) / us)) for f, wide, us in points)
        print(f"{kernel}: " + ", ".join(f"{field} {value:.3f}"
                                        for field, value in zip(FIELDS, fitted[kernel])) +
              f"  (off by at most {math.expm1(off):.0%})")
    for other in ("forward_sm90", "forward_sm80"):
        if other in fitted:
            report(measured, fitted, other)
    return 0


if __name__ == "__main__":
    sys.exit(main())
