#!/usr/bin/env python3
"""Times other implementations on the shapes of flashcore_small_grid, with its protocol.

    small_peers.py GRID.json OUT.json [--backends flash,cudnn] [--seconds S]

Reads a recorded grid and writes it again with a cell per peer in each row; runs where python3 has
PyTorch, right after the grid on the same machine. tools/peers_backends.py has the peers,
tools/peers_torch.py their timer. Prints the speedup of the best kernel over the best peer.
"""
import argparse
import math
import pathlib
import statistics
import sys
import time

import peers_backends
import peers_torch
from reporting.evidence import read, write

PROTOCOL = {"graph_seconds": 1e-3, "warm_ups": 2, "samples": 9, "pause_seconds": 0.0}
DTYPES = {"f16": "float16", "bf16": "bfloat16"}


def measure(torch, timer, backend, row):
    shape = (1, row["heads"], row["seqlen"], row["head_dim"])
    dtype = getattr(torch, DTYPES[row["dtype"]])
    q, k, v = (torch.randn(shape, dtype=dtype, device="cuda") for _ in range(3))
    cell = {"kernel": f"PyTorch {backend.name}"}
    try:
        with torch.no_grad(), backend.context():
            call = backend.make(q, k, v, row["causal"])
            if not bool(torch.isfinite(call()).all().item()):
                raise RuntimeError("the output is not finite")
            seconds, _ = timer.samples(call, PROTOCOL)
        cell["us"] = statistics.median(seconds) * 1e6
    except Exception as error:  # a refusal, in any form that a package raises
        cell["error"] = peers_backends.first_line(error)
    return cell


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("grid", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--backends", default="flash,cudnn")
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    start = time.monotonic()
    import torch
    grid = read(options.grid)
    found, _ = peers_backends.backends(torch, "cuda:0", options.backends)
    timer = peers_torch.CudaTimer(torch)
    measured, ratios = 0, []
    for row in grid["rows"]:
        if time.monotonic() - start > options.seconds:
            break
        peers = [measure(torch, timer, backend, row) for backend in found]
        best = min((cell["us"] for cell in row["kernels"] if "us" in cell), default=math.nan)
        ratios += [min(cell["us"] for cell in peers if "us" in cell) / best]
        row["kernels"] += peers
        measured += 1
    grid["peers"] = {f"PyTorch {backend.name}": backend.version for backend in found}
    grid["complete"] = grid["complete"] and measured == len(grid["rows"])
    write(options.out, grid)
    mean = statistics.geometric_mean(ratios)
    print(f"{measured} of {len(grid['rows'])} shapes, {time.monotonic() - start:.1f} s; best kernel "
          f"{mean:.2f} times as fast as the best peer in the geometric mean, {min(ratios):.2f} at worst")
    return 0


if __name__ == "__main__":
    sys.exit(main())
