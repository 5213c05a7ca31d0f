"""The cost of an eager call through PyTorch, compared with PyTorch's own: host cost and loop time.

    python python/benchmarks/call_overhead.py [--device cpu] [--out FILE]

Each contestant runs loops of calls with one synchronisation at the end; contestants alternate, and
the median counts. The first case is so small that the GPU never falls behind: it shows the host's
cost. Results are first compared with PyTorch's float64: wrong ones are not timed.
"""

import argparse
import pathlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import flashcore
import flashcore.torch
from flashcore._attention import DEFAULTS
from flashcore._backend import run_plan
from flashcore._call import Call
from flashcore._plan import FOUR_POINTERS_SIZE, Plan, pack_four_pointers
from flashcore._torch_operator import backend

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests"))
import evidence

CASES = [((1, 1, 16, 64), False), ((1, 8, 512, 64), False), ((1, 8, 512, 64), True)]
PROTOCOL = (
    "{rounds} rounds in turns of {calls} eager calls with one synchronisation, a call's share"
)


def contestants(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool
) -> dict[str, Callable[[], torch.Tensor]]:
    return {
        "torch sdpa": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
        "flashcore.attention": lambda: flashcore.attention(q, k, v, causal=causal),
        "flashcore.torch sdpa": lambda: flashcore.torch.scaled_dot_product_attention(
            q, k, v, is_causal=causal
        ),
    }


def synchronize() -> None:
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def microseconds(call: Callable[[], Any], calls: int) -> float:
    synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    synchronize()
    return (time.perf_counter() - begin) / calls * 1e6


def chosen_kernel(q: torch.Tensor, causal: bool) -> str:
    verdicts = flashcore.explain(q, q, q, causal=causal)
    return next(verdict["kernel"] for verdict in verdicts if verdict["chosen"])


def measure(
    shape: tuple[int, ...], causal: bool, device: str, calls: int, number: int
) -> dict[str, Any]:
    # Separate tensors, as the gates need: a query that is its own key sees little else.
    q, k, v = (torch.randn(shape, device=device, dtype=torch.float16) for _ in range(3))
    calls_of = contestants(q, k, v, causal)
    with sdpa_kernel(SDPBackend.MATH):
        exact = F.scaled_dot_product_attention(*(x.double() for x in (q, k, v)), is_causal=causal)
    for name, call in calls_of.items():
        error = ((call().double() - exact).abs() / exact.abs().clamp(min=1)).max().item()
        if not error <= 1e-3:
            raise SystemExit(f"{name}: is off by {error}, so it has no time")
        microseconds(call, calls)
    rounds: dict[str, list[float]] = {name: [] for name in calls_of}
    for _ in range(number):
        for name, call in calls_of.items():
            rounds[name].append(microseconds(call, calls))
    rows = [
        {
            "implementation": name,
            "p50_us": round(statistics.median(times), 3),
            "p90_us": round(sorted(times)[int(0.9 * (len(times) - 1))], 3),
            "samples": len(times),
            "calls_per_sample": calls,
        }
        for name, times in rounds.items()
    ]
    title = f"({','.join(map(str, shape))})" + ("/causal" if causal else "")
    return {"case": title, "kernel": chosen_kernel(q, causal), "rows": rows}


def parts_of(q: torch.Tensor, calls: int, number: int) -> list[dict[str, Any]]:
    """The parts of a call of the smallest case; the rest is the package's own Python."""
    plan = Plan(backend.request(Call(q, q, q, None, DEFAULTS)))
    out = torch.empty_like(q)
    arguments = pack_four_pointers(FOUR_POINTERS_SIZE, *[q.data_ptr()] * 3, out.data_ptr())
    stream = torch.cuda.current_stream().cuda_stream if q.is_cuda else 0
    parts: dict[str, Callable[[], Any]] = {
        "whole call": lambda: flashcore.attention(q, q, q),
        "library's run, with the launch": lambda: run_plan(plan.handle, arguments, None, 0, stream),
        "output's allocation": lambda: torch.empty_like(q),
        "an empty loop": lambda: q,
    }
    if plan.workspace_bytes:
        del parts["library's run, with the launch"]
    return [
        {
            "part": name,
            "us": round(statistics.median(microseconds(f, calls) for _ in range(number)), 3),
        }
        for name, f in parts.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", help="where to write the evidence")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--calls", type=int, default=500, help="calls per round")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("--device: is cuda, but PyTorch sees no GPU, wanted --device cpu")
    torch.manual_seed(0)
    cases = []
    with torch.no_grad():
        for shape, causal in CASES:
            cases.append(measure(shape, causal, options.device, options.calls, options.rounds))
            for row in cases[-1]["rows"]:
                name, value = row["implementation"], row["p50_us"]
                print(f"{cases[-1]['case']:20} {name:22} {value:8.2f} us per call")
            print(f"{cases[-1]['case']:20} {cases[-1]['kernel']}")
        q = torch.randn(CASES[0][0], device=options.device, dtype=torch.float16)
        parts = parts_of(q, options.calls, options.rounds)
    for part in parts:
        print(f"{CASES[0][0]!s:20} {part['part']:32} {part['us']:8.2f} us")
    if options.out:
        protocol = PROTOCOL.format(rounds=options.rounds, calls=options.calls)
        found = evidence.frame("python_call", True) | {
            "protocol": protocol,
            "cases": cases,
            "parts": parts,
        }
        evidence.write(options.out, found)


if __name__ == "__main__":
    main()
