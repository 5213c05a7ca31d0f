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
SMALL, MEDIUM = "forward_small_sm90", "forward_medium_sm90"
NEXT = ("forward_sm90", "forward_sm80")


def shape_of(kernel: str, row: dict) -> tuple[int, int, int]:
    """Queries of a unit, keys of a step, SMs of a unit: as in small_choice.hpp."""
    def fits_twice(block_q: int) -> bool:
        return 2 * -(-row["seqlen"] // block_q) * row["heads"] <= MULTIPROCESSORS
    if kernel == SMALL:
        ranks = 1 if not fits_twice(64) and row["seqlen"] <= 256 else 2
        return 64, ranks * 128, ranks
    if kernel == MEDIUM:
        return 128, 128, 2
    return (128, 128, 1) if kernel == "forward_sm90" else (128, 64, 1)


def is_candidate(kernel: str, row: dict) -> bool:
    return kernel != MEDIUM or row["head_dim"] > 64


KERNELS = (SMALL, MEDIUM, *NEXT)
FIELDS = ("launch", "unit", "step_64", "step_128", "full_unit", "full_step_64", "full_step_128")


def work(kernel: str, row: dict) -> tuple[float, float, float]:
    """(waves, average steps, longest): as work_of() in small_choice.hpp."""
    block_q, step_keys, unit_sms = shape_of(kernel, row)
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


def choices(times: dict, row: dict, other: str) -> list[str]:
    """The kernels between which the choice is, where `other` would run otherwise."""
    return [kernel for kernel in (SMALL, MEDIUM, other)
            if kernel in times and is_candidate(kernel, row)]


def fit_choice(measured: list[tuple[dict, dict]], fitted: dict) -> dict:
    """From each kernel's own fit: what loses least by wrong choices, and still predicts well."""
    kernels = list(fitted)
    rows = [({kernel: (work(kernel, row), wide_of(row)) for kernel in kernels if kernel in times},
             times, [choices(times, row, other) for other in NEXT if other in times])
            for row, times in measured]

    def loss(flat: list[float]) -> float:
        total = 0.0
        for features, times, candidates in rows:
            guess = {kernel: predicted(f, wide, flat[7 * kernels.index(kernel):][:7])
                     for kernel, (f, wide) in features.items()}
            total += sum(math.log(guess[kernel] / times[kernel]) ** 2 for kernel in guess)
            for among in candidates:
                chosen = min(among, key=guess.get)
                total += 5 * (times[chosen] / min(times[kernel] for kernel in among) - 1)
        return total

    flat = search([value for kernel in kernels for value in fitted[kernel]], loss)
    return {kernel: flat[7 * n:7 * n + 7] for n, kernel in enumerate(kernels)}


def wide_of(row: dict) -> float:
    return (row["head_dim"] - 64) / 64


def report(measured: list[tuple[dict, dict]], fitted: dict, other: str) -> None:
    """How the choice where `other` would run otherwise does on what was measured."""
    right, count, worst, where = 0, 0, 1.0, ""
    for row, times in measured:
        among = choices(times, row, other)
        if SMALL not in among or other not in among:
            continue
        guess = {kernel: predicted(work(kernel, row), wide_of(row), fitted[kernel])
                 for kernel in among}
        chosen = min(guess, key=guess.get)
        best = min(times[kernel] for kernel in among)
        count += 1
        right += times[chosen] == best
        if times[chosen] / best > worst:
            worst = times[chosen] / best
            where = " at " + ", ".join(f"{key} {row[key]}"
                                       for key in ("heads", "seqlen", "head_dim", "causal"))
    print(f"before {other}: {right} of {count} right, at worst {worst:.3f} of the best{where}")


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
    for kernel in KERNELS:
        points = [(work(kernel, row), wide_of(row), times[kernel])
                  for row, times in measured if kernel in times and is_candidate(kernel, row)]
        if not points:
            continue
        fitted[kernel] = fit(points)
    fitted = fit_choice(measured, fitted)
    for kernel in KERNELS:
        points = [(work(kernel, row), wide_of(row), times[kernel])
                  for row, times in measured if kernel in times and is_candidate(kernel, row)]
        if not points:
            continue
        off = max(abs(math.log(predicted(f, wide, fitted[kernel]) / us)) for f, wide, us in points)
        print(f"{kernel}: " + ", ".join(f"{field} {value:.3f}"
                                        for field, value in zip(FIELDS, fitted[kernel])) +
              f"  (off by at most {math.expm1(off):.0%})")
    for other in NEXT:
        if other in fitted:
            report(measured, fitted, other)
    return 0


if __name__ == "__main__":
    sys.exit(main())
