#!/usr/bin/env python3
"""Fits the models of src/tuning/small_choice.hpp to grids that flashcore_small_grid measured.

    fit_small_choice.py GRID.json...     prints the constants of each kernel's model, and for each
                                         set of kernels that a choice is between how often it is
                                         right, and its worst loss
"""
import argparse
import json
import math
import pathlib
import sys

MULTIPROCESSORS = 132
SMALL, MEDIUM = "forward_sm90_latency", "forward_sm90_latency_wide"
SMALL_SM80 = "forward_sm80_latency"
# The kernels that a choice is between, the last one what runs otherwise.
ON_HOPPER = ((SMALL, MEDIUM, "forward_sm90_throughput"), (SMALL, MEDIUM, "forward_sm80_throughput"))
BEFORE_HOPPER = ((SMALL_SM80, "forward_sm80_throughput"),)


def one_wave(row: dict) -> bool:
    """Whether all clusters of forward_sm90_latency run at once."""
    return 2 * -(-row["seqlen"] // 64) * row["heads"] <= MULTIPROCESSORS


def small_shape(row: dict) -> tuple[int, int, float]:
    """Of forward_sm90_latency, as its plan decides."""
    ranks = 1 if not one_wave(row) and row["seqlen"] <= 256 else 2
    return 64, ranks * 128, ranks


def small_sm80_shape(row: dict) -> tuple[int, int, float]:
    """Of forward_sm80_latency, as its plan decides where a block may have 134 KB."""
    one_wave = -(-row["seqlen"] // 32) * row["heads"] <= MULTIPROCESSORS
    alone = one_wave and row["seqlen"] > 256
    return 32, (8 if alone else 4) * (64 if row["head_dim"] <= 64 else 32), 1 if alone else 0.5


# Each model's kernel, the head dimensions that it is for, and by the row queries of a unit, keys of
# a step, SMs of a unit.
MODELS = {SMALL: (SMALL, (64, 128), small_shape),
          MEDIUM: (MEDIUM, (128,), lambda row: (128, 128, 2)),
          "forward_sm90_throughput, 64": ("forward_sm90_throughput", (64,), lambda row: (64, 128, 0.5)),
          "forward_sm90_throughput, 128": ("forward_sm90_throughput", (128,), lambda row: (128, 128, 1)),
          "forward_sm80_throughput": ("forward_sm80_throughput", (64, 128), lambda row: (128, 64, 1)),
          SMALL_SM80: (SMALL_SM80, (64, 128), small_sm80_shape)}
FIELDS = ("launch", "unit", "step_64", "step_128", "full_unit", "full_step_64", "full_step_128")


def work(row: dict, model: str) -> tuple[float, float, float]:
    """(waves, average steps, longest): as in small_choice.hpp."""
    block_q, step_keys, unit_sms = MODELS[model][2](row)
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


def wide_of(row: dict) -> float:
    return (row["head_dim"] - 64) / 64


def points_of(row: dict, times: dict) -> dict:
    """For each model of the row: what it goes by, the head dimension, and what was measured."""
    return {model: (work(row, model), wide_of(row), times[kernel])
            for model, (kernel, head_dims, _) in MODELS.items()
            if kernel in times and row["head_dim"] in head_dims}


def choices(row: dict, points: dict, kernels: tuple) -> list[str]:
    """The models of these kernels between which the choice is; none where the first or last is not
    there."""
    among = [model for model in points if MODELS[model][0] in kernels]
    found = {MODELS[model][0] for model in among}
    return among if {kernels[0], kernels[-1]} <= found else []


def fit_choice(measured: list[tuple[dict, dict]], free: dict, fixed: dict, between: tuple) -> dict:
    """From each free model's own fit: what loses least by wrong choices, and still predicts well."""
    models = list(free)
    rows = [{model: points[model] for model in points if model in free or model in fixed}
            for _, points in measured]
    candidates = [[among for kernels in between if (among := choices(row, points, kernels))]
                  for row, points in measured]

    def loss(flat: list[float]) -> float:
        constants = fixed | {model: flat[7 * n:7 * n + 7] for n, model in enumerate(models)}
        total = 0.0
        for row, each in zip(rows, candidates):
            guess = {model: predicted(f, wide, constants[model])
                     for model, (f, wide, _) in row.items()}
            total += sum(math.log(guess[model] / row[model][2]) ** 2 for model in row)
            for among in each:
                chosen = min(among, key=guess.get)
                total += 5 * (row[chosen][2] / min(row[model][2] for model in among) - 1)
        return total

    flat = search([value for model in models for value in free[model]], loss)
    return {model: flat[7 * n:7 * n + 7] for n, model in enumerate(models)}


def report(measured: list[tuple[dict, dict]], fitted: dict, kernels: tuple) -> None:
    """How the choice between these kernels does on what was measured."""
    right, count, worst, where = 0, 0, 1.0, ""
    for row, points in measured:
        among = choices(row, points, kernels)
        if not among:
            continue
        guess = {model: predicted(*points[model][:2], fitted[model]) for model in among}
        chosen = points[min(guess, key=guess.get)][2]
        best = min(its[2] for model, its in points.items() if MODELS[model][0] in kernels)
        count += 1
        right += chosen == best
        if chosen / best > worst:
            worst = chosen / best
            where = " at " + ", ".join(f"{key} {row[key]}" for key in
                                       ("heads", "seqlen", "head_dim", "causal", "dtype"))
    print(f"{', '.join(kernels)}: {right} of {count} right, at worst {worst:.3f} of the best{where}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("grids", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    measured = []
    for grid in options.grids:
        for row in json.loads(grid.read_text(encoding="utf-8"))["rows"]:
            times = {cell["kernel"]: cell["us"] for cell in row["kernels"] if "us" in cell}
            measured.append((row, points_of(row, times)))
    points = {model: [its[model] for _, its in measured if model in its] for model in MODELS}
    points = {model: its for model, its in points.items() if its}
    own = {model: fit(its) for model, its in points.items()}
    fitted = fit_choice(measured, {m: own[m] for m in own if m != SMALL_SM80}, {}, ON_HOPPER)
    fitted |= fit_choice(measured, {m: own[m] for m in own if m == SMALL_SM80}, fitted,
                         BEFORE_HOPPER)
    for model, its in points.items():
        off = max(abs(math.log(predicted(f, wide, fitted[model]) / us)) for f, wide, us in its)
        print(f"{model}: " + ", ".join(f"{field} {value:.5f}"
                                       for field, value in zip(FIELDS, fitted[model])) +
              f"  (off by at most {math.expm1(off):.0%})")
    for kernels in ON_HOPPER + BEFORE_HOPPER:
        report(measured, fitted, kernels)
    return 0


if __name__ == "__main__":
    sys.exit(main())
