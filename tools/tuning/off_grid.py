#!/usr/bin/env python3
"""Writes bench/cases/off_grid.json: 40 shapes for the regret of the automatic choice, from a fixed seed.

None is in the recordings that src/tuning was fitted to, nor in a suite: lengths, heads and head
dimensions are drawn, and shapes that occur there are skipped.

usage: off_grid.py [FILE]
"""
import json
import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SEED = 21
MOST_WORK = 4e12  # operations of a forward pass


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
    name = "({batch},{heads_q}/{heads_kv},{seqlen_q}/{seqlen_kv},{head_dim})".format(**case)
    return {"name": name + ("/causal" if case["causal"] else ""), "suite": "off_grid", **case}


def cases() -> list[dict]:
    source = random.Random(SEED)
    found: dict[str, dict] = {}
    while len(found) < 40:
        case = draw(source, len(found) >= 32)
        is_power = all((case[name] & (case[name] - 1)) == 0 for name in ("seqlen_q", "seqlen_kv"))
        if work(case) <= MOST_WORK and not is_power:
            found.setdefault(case["name"], case)
    return list(found.values())


def main() -> int:
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "bench/cases/off_grid.json"
    rows = ",\n  ".join(json.dumps(case) for case in cases())
    path.write_text('{"schema": "flashcore-cases", "version": 1, "cases": [\n  ' + rows + "\n]}\n",
                    encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
