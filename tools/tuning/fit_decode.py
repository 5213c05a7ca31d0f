#!/usr/bin/env python3
"""Fits the constants for few queries to recorded times, and prints them beside those in use.

    fit_decode.py [FOLDER]    default src/tuning/gpus/h200: its few_queries.json and constants.json

The recordings are of `flashcore tune --cases bench/cases/fit_decode.json --evidence FILE`. What is fitted:

    decode_sm90      begin + max(bytes of keys and values / bandwidth, granules of a tile on each SM)
                     as sm90_decode_us in src/plan/forward_choice.cpp
    a key again      forward_sm90_throughput's time over the first read, per further head of a group, where reading is
                     the limit: one query, SMs that are full, 85 MB and more; kReadAgain in src/tuning/cost_model.hpp
"""
import json
import math
import pathlib
import random
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FITTED = ("decode_begin_us", "decode_tiles_us", "decode_granule_us", "decode_narrow_us", "decode_end_granules")
TILE_ROWS, GRANULE_KEYS, NARROW = 16, 128, 64
STEPS, SEED = 20000, 1
LEAST_READ_US = 20  # 85 MB


def tiles(row: dict) -> int:
    return math.ceil(row["heads_q"] // row["heads_kv"] * row["queries"] / TILE_ROWS)


def read_us(row: dict, gpu: dict) -> float:
    elements = row["batch"] * row["heads_kv"] * row["keys"] * 2 * row["head_dim"]
    return 2 * elements / (1e3 * gpu["memory_gb_s"])


def decode_us(constants: list[float], row: dict, gpu: dict) -> float:
    begin, begin_of_more, granule, narrow, end = constants
    granules = (math.ceil(row["keys"] / GRANULE_KEYS) + end) * tiles(row)
    each = narrow if row["head_dim"] <= NARROW else granule
    compute = each * granules * row["batch"] * row["heads_kv"] / gpu["multiprocessors"]
    return (begin if tiles(row) == 1 else begin_of_more) + max(read_us(row, gpu), compute)


def error(constants: list[float], rows: list[dict], gpu: dict) -> float:
    """The root of the mean squared error of the times' logarithms."""
    squares = (math.log(decode_us(constants, row, gpu) / row["us"]["decode_sm90"]) ** 2 for row in rows)
    return math.sqrt(statistics.fmean(squares))


def fit(start: list[float], rows: list[dict], gpu: dict) -> list[float]:
    source, best, least = random.Random(SEED), start, error(start, rows, gpu)
    for _ in range(STEPS):
        tried = [x * math.exp(source.gauss(0, 0.05)) if source.random() < 0.5 else x for x in best]
        if (found := error(tried, rows, gpu)) < least:
            best, least = tried, found
    return best


def reads_again(rows: list[dict], gpu: dict) -> list[float]:
    return [(row["us"]["forward_sm90_throughput"] / read_us(row, gpu) - 1) / (group - 1) for row in rows
            if (group := row["heads_q"] // row["heads_kv"]) > 1 and row["queries"] == 1 and row["head_dim"] <= 128
            and row["batch"] * row["heads_q"] > 2 * gpu["multiprocessors"] and read_us(row, gpu) > LEAST_READ_US]


def main() -> int:
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "src/tuning/gpus/h200"
    constants = json.loads((folder / "constants.json").read_text(encoding="utf-8"))
    gpu, in_use = constants["gpu"], [float(constants["rules"][name]) for name in FITTED]
    all_rows = json.loads((folder / "few_queries.json").read_text(encoding="utf-8"))["rows"]
    rows = [row for row in all_rows if "decode_sm90" in row["us"]]
    fitted = fit(in_use, rows, gpu)
    for name, used, found in zip(FITTED, in_use, fitted, strict=True):
        print(f"{name:20}  in use {used:6.2f}  fitted {found:6.2f}")
    print(f"error of {len(rows)} times: in use {error(in_use, rows, gpu):.1%}, fitted {error(fitted, rows, gpu):.1%}")
    again = reads_again(all_rows, gpu)
    print(f"a key again: {statistics.median(again):.2f} of the first read, {min(again):.2f} to {max(again):.2f}, "
          f"{len(again)} shapes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
