#!/usr/bin/env python3
"""Fits the constants of src/dispatch/small_choice.hpp to a grid that flashcore_small_grid measured.

    fit_small_choice.py GRID.json [--block KERNEL]     prints the two tables of constants, how often
                                                       the choice is right, and its worst loss
"""
import argparse
import json
import math
import pathlib
import sys

MULTIPROCESSORS = 132


def work(row: dict, block_q: int, step_keys: int, at_once: int) -> tuple[float, float, float]:
    """(waves, average steps, longest): as work_of() in small_choice.hpp."""
    seqlen, tiles = row["seqlen"], -(-row["seqlen"] // block_q)
    stride = max(1, tiles // 32)
    steps = []
    for tile in range(0, tiles, stride):
        last = min((tiles - tile) * block_q, seqlen)
        steps.append(-(-(last if row["causal"] else seqlen) // step_keys))
    return tiles * row["heads"] / at_once, sum(steps) / len(steps), max(steps)


def predicted(features: tuple[float, float, float], wide: float, constants: list[float]) -> float:
    launch, unit, step_64, step_128 = constants
    waves, average, longest = features
    step = step_64 + wide * (step_128 - step_64)
    return launch + max(waves * (unit + average * step), unit + longest * step)


def fit(points: list[tuple[tuple[float, float, float], float, float]]) -> list[float]:
    """Constants that make the mean squared log error small: a pattern search, from plain values."""
    constants = [1.5, 1.0, 1.0, 1.5]

    def loss(candidate: list[float]) -> float:
        return sum(math.log(predicted(f, wide, candidate) / us) ** 2 for f, wide, us in points)

    best, stride = loss(constants), 0.5
    while stride > 1e-3:
        improved = False
        for i in range(len(constants)):
            for sign in (1, -1):
                candidate = list(constants)
                candidate[i] = max(candidate[i] + sign * stride, 0.05)
                value = loss(candidate)
                if value < best - 1e-12:
                    best, constants, improved = value, candidate, True
        if not improved:
            stride /= 2
    return constants


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("grid", type=pathlib.Path)
    parser.add_argument("--block", default="forward_sm80")
    options = parser.parse_args()
    shapes = {"forward_small_sm90": (64, 256, MULTIPROCESSORS // 2),
              options.block: (128, 64, MULTIPROCESSORS)}
    rows = json.loads(options.grid.read_text(encoding="utf-8"))["rows"]
    measured = []
    for row in rows:
        times = {cell["kernel"]: cell["us"] for cell in row["kernels"] if "us" in cell}
        if all(kernel in times for kernel in shapes):
            measured.append((row, times))
    fitted = {}
    for kernel, shape in shapes.items():
        fitted[kernel] = fit([(work(row, *shape), (row["head_dim"] - 64) / 64, times[kernel])
                              for row, times in measured])
        launch, unit, step_64, step_128 = fitted[kernel]
        print(f"{kernel}: .launch = {launch:.2f}, .unit = {unit:.2f}, .step_64 = {step_64:.2f}, "
              f".step_128 = {step_128:.2f}")
    right, worst, where = 0, 1.0, ""
    for row, times in measured:
        guess = {kernel: predicted(work(row, *shape), (row["head_dim"] - 64) / 64, fitted[kernel])
                 for kernel, shape in shapes.items()}
        chosen = min(guess, key=guess.get)
        best = min(times[kernel] for kernel in shapes)
        right += times[chosen] == best
        if times[chosen] / best > worst:
            worst = times[chosen] / best
            where = f" at heads {row['heads']} seqlen {row['seqlen']} D {row['head_dim']}"
    print(f"{right} of {len(measured)} right, at worst {worst:.3f} of the best{where}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
