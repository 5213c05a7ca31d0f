#!/usr/bin/env python3
"""Times forward_sm90_throughput's tiles at head dimension 64 on the same problems: data to fit its choice.

    sm90_tile_times.py OUT.json [--seconds 90]

Runs where python3 has PyTorch and the flashcore package with CUDA kernels, in a clone of the commit
that the package was built from. Every second problem has random sizes. flashcore_fit_tuning reads
the file (docs/tuning.md).
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import time

import peers_torch

PROTOCOL = {"graph_seconds": 1e-3, "warm_ups": 2, "samples": 7, "pause_seconds": 0.0}
TILES = ["192x128", "64x128", "64x64"]  # queries x keys


def grid():
    for heads in (4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024, 2048):
        for seqlen in (64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 4096):
            for causal in (False, True):
                yield heads, seqlen, seqlen, causal
    for heads in (8, 20, 64, 160):
        for queries in (256, 1024, 4096):
            for keys in (77, 128, 400):
                yield heads, queries, keys, False


def others():
    draw = random.Random(1)
    while True:
        heads = draw.choice((6, 12, 20, 40, 80, 160, 192, 320, 700, 1400))
        seqlen = draw.randint(40, 3000)
        keys = seqlen if draw.random() < 0.8 else draw.randint(40, 1000)
        yield heads, seqlen, keys, keys == seqlen and draw.random() < 0.5


def is_small(heads, queries, keys):
    return heads * queries * keys <= 64 * 2048 * 2048


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=90)
    options = parser.parse_args()
    import torch

    import flashcore
    begin = time.monotonic()
    regular = [one for one in grid() if is_small(*one[:3])]
    random.Random(0).shuffle(regular)
    by_chance = others()
    timer = peers_torch.CudaTimer(torch)
    rows = []
    for n in range(2 * len(regular)):
        if time.monotonic() - begin > options.seconds:
            break
        one = regular[n // 2] if n % 2 == 0 else next(by_chance)
        heads, queries, keys, causal = one
        if not is_small(heads, queries, keys):
            continue
        q = torch.randn(1, heads, queries, 64, dtype=torch.bfloat16, device="cuda")
        k, v = (torch.randn(1, heads, keys, 64, dtype=torch.bfloat16, device="cuda")
                for _ in range(2))
        out = torch.empty_like(q)
        us = {}
        for tile in TILES:
            seconds, _ = timer.samples(
                lambda: flashcore.attention(q, k, v, causal=causal, out=out,
                                            kernel=f"forward_sm90_throughput:{tile}"), PROTOCOL)
            us[tile] = round(statistics.median(seconds) * 1e6, 3)
        rows.append({"heads": heads, "queries": queries, "keys": keys, "causal": causal,
                     "us": us})
    properties = torch.cuda.get_device_properties(0)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=pathlib.Path(__file__).parent, check=True,
                            capture_output=True, text=True).stdout.strip()
    document = {"commit": commit, "device": properties.name, "multiprocessors": properties.multi_processor_count,
                "dtype": "bf16", "head_dim": 64, "rows": rows}
    text = json.dumps(document, separators=(",", ":")).replace('{"heads"', '\n{"heads"')
    options.out.write_text(text + "\n", encoding="utf-8")
    print(f"{len(rows)} problems of {2 * len(regular)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
