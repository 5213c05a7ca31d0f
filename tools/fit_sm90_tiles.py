#!/usr/bin/env python3
"""Fits the model of src/tuning/forward_sm90_tile.hpp to what tools/sm90_tile_times.py measured.

    fit_sm90_tiles.py TIMES.json      prints the constants, and for the problems of the fit and for the
                                      others, causal and full apart, how often the choice is right, what
                                      it loses, and how far predictions are off (some minutes)

The constants minimise the mean loss of the choice plus the mean squared error of the logarithms of times,
over the problems of the fit alone. In the first term a problem counts by the square root of its time.
Without the second term the constants would fit the noise of single problems. Each of several searches
takes random steps that get smaller, and the search with the least cost counts.
"""
import argparse
import json
import math
import pathlib
import random
import sys

MULTIPROCESSORS = 132
GROUP_ROWS = 64
# Rows of queries, keys of a block and blocks per SM, as in src/cuda/forward_sm90/throughput/config.hpp.
TILES = {"192x128": (192, 128, 1), "64x128": (64, 128, 2), "64x64": (64, 64, 3)}
FIELDS = ("begin_and_end", "step", "mask", "alone")
START = {"192x128": [2.0, 1.2, 0.3, 1.0], "64x128": [2.0, 1.0, 0.3, 0.8], "64x64": [2.0, 0.8, 0.3, 0.6]}
START_LAUNCH = 2.0
SEARCHES, STEPS = 8, 12000
LARGEST_STEP, SMALLEST_STEP = 0.3, 0.003


def work(row: dict, tile: str) -> dict:
    """As work_of() counts it, by warpgroups."""
    block_q, step_keys, blocks = TILES[tile]
    queries, keys, causal = row["queries"], row["keys"], row["causal"]
    groups = -(-queries // GROUP_ROWS)
    steps = []
    for n in range(0, groups, max(1, groups // 32)):
        last = min((groups - n) * GROUP_ROWS, queries)
        steps.append(-(-min(last + keys - queries if causal else keys, keys) // step_keys))
    tiles = -(-queries // block_q)
    return {"units": tiles * row["heads"], "blocks": blocks, "causal": causal,
            "average": sum(steps) / len(steps) * groups / (tiles * block_q // GROUP_ROWS),
            "longest": max(steps), "shortest": min(steps), "measured": row["us"][tile]}


def predicted(one: dict, model: list[float], launch: float) -> float:
    """As predicted_us()."""
    begin_and_end, step, mask, alone = model
    blocks, per_sm = one["blocks"], one["units"] / MULTIPROCESSORS
    if blocks == 1:
        alone = 1.0

    def slowed(others: float) -> float:
        return alone + (1 - alone) * others / max(blocks - 1, 1)

    once = begin_and_end + (mask if one["causal"] else 0)
    average = once + one["average"] * step
    others = min(max(per_sm - 1, 0), blocks - 1) * one["average"] / one["longest"]
    longest = slowed(others) * (once + one["longest"] * step)
    if one["causal"]:
        everything = per_sm / blocks * average
        if per_sm > blocks:
            everything += alone * (once + one["shortest"] * step) / 2
    else:
        waves, left = divmod(math.ceil(per_sm), blocks)
        everything = (waves + (slowed(left - 1) if left else 0)) * average
    return launch + max(longest, everything)


def losses(problems: list[dict], times: dict) -> list[float]:
    """Of each problem: by how much the chosen tile is slower than the fastest one."""
    result = []
    for n, problem in enumerate(problems):
        chosen = min(problem, key=lambda tile: times[tile][n])
        best = min(one["measured"] for one in problem.values())
        result.append(problem[chosen]["measured"] / best - 1)
    return result


def times_of(problems: list[dict], tile: str, model: list[float], launch: float) -> list[float]:
    return [predicted(problem[tile], model, launch)
            for problem in problems]


def search(problems: list[dict], seed: int) -> tuple[float, dict, float]:
    """The cost, each tile's model and the launch."""
    draw = random.Random(seed)
    models, launch = {tile: list(start) for tile, start in START.items()}, START_LAUNCH
    logarithms = {tile: [math.log(problem[tile]["measured"]) for problem in problems]
                  for tile in TILES}
    weights = [math.sqrt(min(one["measured"] for one in problem.values())) for problem in problems]
    weights = [weight / sum(weights) for weight in weights]

    def error(tile: str, times: list[float]) -> float:
        return sum((math.log(us) - measured) ** 2 for us, measured in zip(times, logarithms[tile])) \
            / len(TILES) / len(problems)

    def cost(times: dict, errors: dict) -> float:
        return (sum(loss * weight for loss, weight in zip(losses(problems, times), weights))
                + sum(errors.values()))

    times = {tile: times_of(problems, tile, models[tile], launch) for tile in TILES}
    errors = {tile: error(tile, times[tile]) for tile in TILES}
    least = cost(times, errors)
    for n in range(STEPS):
        size = LARGEST_STEP * (SMALLEST_STEP / LARGEST_STEP) ** (n / STEPS)
        tile = draw.choice([*TILES, None])
        if tile is None:
            model, new_launch = None, launch * math.exp(draw.gauss(0, size))
            new = {one: [us + new_launch - launch for us in times[one]] for one in TILES}
            new_errors = {one: error(one, new[one]) for one in TILES}
        else:
            model, new_launch = [value * math.exp(draw.gauss(0, size)) if draw.random() < 0.5 else value
                                 for value in models[tile]], launch
            new = {**times, tile: times_of(problems, tile, model, launch)}
            new_errors = {**errors, tile: error(tile, new[tile])}
        now = cost(new, new_errors)
        if now < least:
            least, times, errors, launch = now, new, new_errors, new_launch
            if tile is not None:
                models[tile] = model
    return least, models, launch


def report(name: str, problems: list[dict], models: dict, launch: float) -> None:
    times = {tile: times_of(problems, tile, models[tile], launch) for tile in TILES}
    loss = sorted(losses(problems, times))
    right = sum(one == 0 for one in loss)
    off = [abs(math.log(times[tile][n] / one["measured"]))
           for n, problem in enumerate(problems) for tile, one in problem.items()]
    only = {tile: sum(p[tile]["measured"] / min(p[t]["measured"] for t in TILES) for p in problems)
            / len(problems) - 1 for tile in TILES}
    print(f"{name}: {len(loss)} problems, right {right}, mean loss {100 * sum(loss) / len(loss):.2f}%, "
          f"worst {100 * loss[-1]:.1f}%, predictions off by {100 * sum(off) / len(off):.1f}%; "
          + ", ".join(f"{tile} alone {100 * one:.0f}%" for tile, one in only.items()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("times", type=pathlib.Path)
    options = parser.parse_args()
    document = json.loads(options.times.read_text(encoding="utf-8"))
    rows = document["rows"]

    def some(held_out: bool, causal: tuple = (False, True)) -> list[dict]:
        return [{tile: work(row, tile) for tile in TILES} for row in rows
                if row["held_out"] == held_out and row["causal"] in causal]

    cost, models, launch = min((search(some(False), seed) for seed in range(SEARCHES)),
                               key=lambda found: found[0])
    print(f"cost {cost:.5f}; launch {launch:.3f}")
    for tile, model in models.items():
        fields = [f"{field} {value:.3f}" for field, value in zip(FIELDS, model)
                  if field != "alone" or TILES[tile][2] > 1]
        print(f"{tile}: " + ", ".join(fields))
    for name, held_out in (("fit", False), ("held out", True)):
        report(f"{name}, causal", some(held_out, (True,)), models, launch)
        report(f"{name}, full", some(held_out, (False,)), models, launch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
