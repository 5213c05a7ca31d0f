"""What one eager call costs through PyTorch, beside PyTorch's own: host cost and time of a loop.

    python python/benchmarks/call_overhead.py [--out FILE]

A loop of calls with one synchronisation at its end, alternating between the contestants; the
median of the rounds. "host" is the same for a problem so small that the GPU is never behind. The
results are compared with PyTorch's first: what is wrong has no time.
"""

import argparse
import json
import pathlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import flashcore
import flashcore.torch

MISSION = (1, 8, 512, 64)
TINY = (1, 1, 16, 64)


def contestants(q: torch.Tensor, causal: bool) -> dict[str, Callable[[], torch.Tensor]]:
    return {
        "torch sdpa": lambda: F.scaled_dot_product_attention(q, q, q, is_causal=causal),
        "flashcore.attention": lambda: flashcore.attention(q, q, q, causal=causal),
        "flashcore.torch sdpa": lambda: flashcore.torch.scaled_dot_product_attention(
            q, q, q, is_causal=causal
        ),
    }


def microseconds(call: Callable[[], Any], calls: int) -> float:
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / calls * 1e6


def measure(shape: tuple[int, ...], causal: bool, calls: int, number: int) -> dict[str, float]:
    q = torch.randn(shape, device="cuda", dtype=torch.float16)
    calls_of = contestants(q, causal)
    with sdpa_kernel(SDPBackend.MATH):
        exact = F.scaled_dot_product_attention(*[q.double()] * 3, is_causal=causal)
    for name, call in calls_of.items():
        error = ((call().double() - exact).abs() / exact.abs().clamp(min=1)).max().item()
        if not error <= 1e-3:
            raise SystemExit(f"{name}: is off by {error}, so it has no time")
        microseconds(call, 20)
    rounds: dict[str, list[float]] = {name: [] for name in calls_of}
    for _ in range(number):
        for name, call in calls_of.items():
            rounds[name].append(microseconds(call, calls))
    return {name: round(statistics.median(times), 2) for name, times in rounds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", help="where to write the figures, as JSON")
    parser.add_argument("--calls", type=int, default=500, help="calls a round")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("torch: there is no GPU, wanted one")
    torch.manual_seed(0)
    figures = {}
    with torch.no_grad():
        for title, shape, causal in [
            ("host", TINY, False),
            ("mission", MISSION, False),
            ("mission, causal", MISSION, True),
        ]:
            figures[title] = measure(shape, causal, options.calls, options.rounds)
            for name, value in figures[title].items():
                print(f"{title:16} {name:22} {value:8.2f} us a call")
    verdicts = flashcore.explain(*[torch.empty(MISSION, device="cuda", dtype=torch.float16)] * 3)
    chosen = next(v["kernel"] for v in verdicts if v["automatic"] and not v["refusal"])
    evidence = {
        "what": "microseconds a call, eager, loop with one synchronisation; medians",
        "protocol": {"calls": options.calls, "rounds": options.rounds, "dtype": "float16"},
        "shapes": {"host": TINY, "mission": MISSION},
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "kernel": chosen,
        "library": flashcore.build_info(),
        "figures": figures,
    }
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps(evidence, indent=1) + "\n")


if __name__ == "__main__":
    main()
