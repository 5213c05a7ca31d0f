#!/usr/bin/env python3
"""Fits the model of src/tuning/forward_sm90_tile.hpp to what tools/sm90_tile_times.py measured.

    fit_sm90_tiles.py TIMES.json      prints each tile's constants, and for the problems of the fit and
                                      for the others how often the choice is right and what it loses

The constants minimise the mean loss of the choice and a tenth of the mean squared error of the logarithms
of times, over the problems of the fit alone, by steps along one constant after the other.
"""
import argparse
import json
import math
import pathlib
import sys

MULTIPROCESSORS = 132
# Rows of queries, keys of a step and blocks an SM, as in src/cuda/forward_sm90/throughput/config.hpp.
TILES = {"192x128": (192, 128, 1), "64x128": (64, 128, 2), "64x64": (64, 64, 3)}
FIELDS = ("begin_and_end", "step", "mask", "alone")
START = {"192x128": [3.3, 1.15, 0.6, 1.0], "64x128": [3.0, 0.9, 0.6, 0.8], "64x64": [2.1, 0.9, 0.6, 0.7]}


def work(row: dict, tile: str) -> dict:
    """As work_of() and predicted_us() count it."""
    block_q, step_keys, blocks = TILES[tile]
    queries, keys, causal = row["queries"], row["keys"], row["causal"]
    tiles = -(-queries // block_q)
    steps = []
    for n in range(0, tiles, max(1, tiles // 32)):
        last = min((tiles - n) * block_q, queries)
        steps.append(-(-min(last if causal else keys, keys) // step_keys))
    return {"units": tiles * row["heads"], "average": sum(steps) / len(steps), "longest": max(steps),
            "full_tiles": row["heads"] * queries / block_q, "places": MULTIPROCESSORS * blocks,
            "causal": causal, "measured": row["us"][tile]}


def predicted(one: dict, model: list[float]) -> float:
    begin_and_end, step, mask, alone = model
    once = begin_and_end + (mask if one["causal"] else 0)
    longest = alone * (once + one["longest"] * step)
    everything = one["units"] * once + one["full_tiles"] * one["average"] * step
    if one["causal"]:
        return max(longest, everything / one["places"])
    waves = math.ceil(one["units"] / one["places"])
    return max(longest, waves * everything / one["units"])


def losses(problems: list[dict], models: dict) -> list[float]:
    result = []
    for problem in problems:
        chosen = min(TILES, key=lambda tile: predicted(problem[tile], models[tile]))
        best = min(problem[tile]["measured"] for tile in TILES)
        result.append(problem[chosen]["measured"] / best - 1)
    return result


def cost(problems: list[dict], models: dict) -> float:
    errors = [math.log(predicted(problem[tile], models[tile]) / problem[tile]["measured"]) ** 2
              for problem in problems for tile in TILES]
    loss = losses(problems, models)
    return sum(loss) / len(loss) + 0.1 * sum(errors) / len(errors)


def fit(problems: list[dict]) -> dict:
    models = {tile: list(start) for tile, start in START.items()}
    best = cost(problems, models)
    size = 0.2
    while size > 0.002:
        improved = False
        for tile in TILES:
            for field in range(len(FIELDS)):
                for factor in (1 + size, 1 / (1 + size)):
                    before = models[tile][field]
                    models[tile][field] = before * factor
                    now = cost(problems, models)
                    if now < best:
                        best, improved = now, True
                    else:
                        models[tile][field] = before
        if not improved:
            size /= 2
    return models


def report(name: str, problems: list[dict], models: dict) -> None:
    loss = sorted(losses(problems, models))
    right = sum(one == 0 for one in loss)
    only = {tile: sum(p[tile]["measured"] / min(p[t]["measured"] for t in TILES) for p in problems)
            / len(problems) - 1 for tile in TILES}
    print(f"{name}: {len(loss)} problems, right {right}, mean loss {100 * sum(loss) / len(loss):.2f}%, "
          f"nine of ten below {100 * loss[len(loss) * 9 // 10]:.1f}%, worst {100 * loss[-1]:.1f}%; "
          + ", ".join(f"{tile} alone {100 * one:.0f}%" for tile, one in only.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("times", type=pathlib.Path)
    options = parser.parse_args()
    rows = json.loads(options.times.read_text(encoding="utf-8"))["rows"]
    sets = {held_out: [{tile: work(row, tile) for tile in TILES} for row in rows
                       if row["held_out"] == held_out] for held_out in (False, True)}
    models = fit(sets[False])
    for tile, model in models.items():
        print(f"{tile}: " + ", ".join(f"{field} {value:.3f}" for field, value in zip(FIELDS, model)))
    report("fit", sets[False], models)
    report("held out", sets[True], models)
    return 0


if __name__ == "__main__":
    sys.exit(main())
