#!/usr/bin/env python3
"""Writes lists of shapes for the regret of the automatic choice, each from a fixed seed:

    off_grid.json          40 shapes of all kinds
    off_grid_decode.json   60 shapes of few queries: decode, speculation, short chunks
    fit_decode.json        100 more, to fit the constants for few queries to

None of the first two is in the recordings that src/tuning was fitted to, nor in a suite: lengths,
heads and head dimensions are drawn, and shapes that occur there are skipped.

In another folder than bench/cases, also lists of what the constants of src/tuning/gpus are fitted to (docs/tuning.md):

    small_grid.json        68 shapes of one sequence, in fp16 and bf16
    small_eager.json       6 of them
    sm90_tiles.json        shapes for the tiles of forward_sm90_throughput at head dimension 64, half of them random

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


def fitted(suite: str, dtype: str, heads: int, queries: int, keys: int, head_dim: int, causal: bool) -> dict:
    name = f"{dtype} {heads},{queries}/{keys},{head_dim}{'/causal' if causal else ''}"
    return {"name": name, "suite": suite, "dtype": dtype, "batch": 1, "heads_q": heads, "heads_kv": heads,
            "seqlen_q": queries, "seqlen_kv": keys, "head_dim": head_dim, "causal": causal}


def small(suite: str, sizes: list[tuple[int, int, int]]) -> list[dict]:
    """Both types of a shape one after the other."""
    return [fitted(suite, dtype, heads, seqlen, seqlen, head_dim, causal)
            for heads, seqlen, head_dim in sizes for causal in (False, True) for dtype in ("f16", "bf16")]


def small_grid() -> list[dict]:
    """The most important shape comes first, so that a run that is cut short has it."""
    sizes = [(heads, seqlen) for seqlen in (512, 256, 1024, 128) for heads in (8, 16, 32)]
    sizes += [(1, 512), (2, 1024), (4, 2048), (64, 128), (64, 256)]
    return small("small_grid", [(*size, head_dim) for size in sizes for head_dim in (64, 128)])


def small_eager() -> list[dict]:
    return [case for case in small("small_eager", [(8, 512, 64), (8, 128, 64), (8, 512, 128)])
            if case["dtype"] == "f16"]


def sm90_tiles() -> list[dict]:
    """A grid in random order, and as many random shapes."""
    grid = [(heads, seqlen, seqlen, causal)
            for heads in (4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 2048)
            for seqlen in (64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 4096) for causal in (False, True)]
    grid += [(heads, queries, keys, False)
             for heads in (8, 20, 64, 160) for queries in (256, 1024, 4096) for keys in (77, 128, 400)]
    random.Random(0).shuffle(grid)
    source = random.Random(1)
    shapes: dict[tuple, None] = {}
    for regular in grid:
        heads = source.choice((6, 12, 20, 40, 80, 160, 192, 320, 700, 1400))
        seqlen = source.randint(40, 3000)
        keys = seqlen if source.random() < 0.8 else source.randint(40, 1000)
        for shape in (regular, (heads, seqlen, keys, keys == seqlen and source.random() < 0.5)):
            if shape[0] * shape[1] * shape[2] <= 64 * 2048 * 2048:
                shapes[shape] = None
    return [fitted("sm90_tiles", "bf16", *shape[:3], 64, shape[3]) for shape in shapes]


LISTS = {"off_grid.json": (SEED, 40, draw_any),
         "off_grid_decode.json": (63, 60, draw_decode), "fit_decode.json": (62, 100, draw_decode)}


def main() -> int:
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "bench/cases"
    lists = {name: cases(*how) for name, how in LISTS.items()}
    if len(sys.argv) > 1:
        lists |= {"small_grid.json": small_grid(), "small_eager.json": small_eager(), "sm90_tiles.json": sm90_tiles()}
    for name, all_cases in lists.items():
        rows = ",\n  ".join(map(json.dumps, all_cases))
        (folder / name).write_text('{"schema": "flashcore-cases", "version": 1, "cases": [\n  ' + rows + "\n]}\n",
                                   encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
