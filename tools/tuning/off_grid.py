#!/usr/bin/env python3
"""Writes lists of shapes for the regret of the automatic choice, each from a fixed seed:

    off_grid.json          40 shapes of all kinds
    off_grid_decode.json   60 shapes of few queries: decode, speculation, short chunks
    fit_decode.json        100 more, to fit the constants for few queries to

None of the first two is in the recordings that src/tuning was fitted to, nor in a suite: lengths,
heads and head dimensions are drawn, and shapes that occur there are skipped.

usage: off_grid.py [FOLDER]    default bench/cases
"""
import json
import pathlib
import random
import sys
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parents[2]
SEED = 21
MOST_WORK = 4e12  # operations of a forward pass
MOST_BYTES = 6e9  # of keys and values


def work(case: dict) -> float:
    pairs = case["seqlen_q"] * case["seqlen_kv"] / (2 if case["causal"] else 1)
    return 4 * case["batch"] * case["heads_q"] * pairs * case["head_dim"]


def draw(source: random.Random, few_queries: bool) -> dict:
    group = source.choice([1, 1, 2, 4, 5, 8])
    heads_kv = source.choice([1, 2, 3, 5, 6, 8, 12])
    seqlen_kv = round(2 ** source.uniform(10, 15.5) if few_queries else 2 ** source.uniform(6.5, 13))
    seqlen_q = source.randint(1, 16) if few_queries else seqlen_kv
    if not few_queries and source.random() < 0.25:
        seqlen_q = max(17, round(seqlen_kv * source.uniform(0.1, 0.9)))
    case = {"dtype": source.choice(["f16", "bf16"]), "batch": source.choice([1, 1, 2, 3, 5, 7, 12]),
            "heads_q": group * heads_kv, "heads_kv": heads_kv, "seqlen_q": seqlen_q,
            "seqlen_kv": seqlen_kv, "head_dim": source.choice([32, 64, 64, 80, 96, 128, 128, 192, 256]),
            "causal": source.random() < 0.5}
    return {"suite": "off_grid", **case}


def draw_decode(source: random.Random, _: int) -> dict:
    """Half of the problems have one query; most of the others at most 64 rows for each KV head."""
    heads_kv = source.choice([1, 2, 3, 4, 8, 8, 10, 16, 32])
    group = source.choice([1, 2, 4, 4, 5, 7, 8]) if heads_kv < 16 else source.choice([1, 2])
    case = {"dtype": "bf16", "batch": source.choice([1, 1, 1, 2, 3, 6, 13, 25, 48, 90, 200]),
            "heads_q": group * heads_kv, "heads_kv": heads_kv,
            "seqlen_q": 1 if source.random() < 0.5 else source.randint(2, max(2, 80 // group)),
            "seqlen_kv": round(2 ** source.uniform(8, 15.3)),
            "head_dim": source.choice([64, 64, 96, 128, 128, 128, 128, 256]),
            "causal": source.random() < 0.7}
    return case | {"suite": "off_grid_decode"}


def draw_any(source: random.Random, count: int) -> dict:
    return draw(source, count >= 32)


def cases(seed: int, count: int, draw_one: Callable[[random.Random, int], dict]) -> list[dict]:
    source = random.Random(seed)
    found: dict[str, dict] = {}
    while len(found) < count:
        case = draw_one(source, len(found))
        name = "({batch},{heads_q}/{heads_kv},{seqlen_q}/{seqlen_kv},{head_dim})".format(**case)
        case = {"name": name + ("/causal" if case["causal"] else ""), **case}
        is_power = all((case[name] & (case[name] - 1)) == 0 for name in ("seqlen_q", "seqlen_kv"))
        read = 4 * case["batch"] * case["heads_kv"] * case["seqlen_kv"] * case["head_dim"]
        if work(case) <= MOST_WORK and read <= MOST_BYTES and not is_power:
            found.setdefault(case["name"], case)
    return list(found.values())


LISTS = {"off_grid.json": (SEED, 40, draw_any),
         "off_grid_decode.json": (61, 60, draw_decode), "fit_decode.json": (62, 100, draw_decode)}


def main() -> int:
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "bench/cases"
    for name, how in LISTS.items():
        rows = ",\n  ".join(json.dumps(case) for case in cases(*how))
        (folder / name).write_text('{"schema": "flashcore-cases", "version": 1, "cases": [\n  ' + rows + "\n]}\n",
                                   encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
