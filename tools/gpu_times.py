"""What packed_times.py and call_times.py have in common: calls of a build's library, timed in turns, as evidence.

They run where python3 has PyTorch, with the library of a build with CUDA kernels. The file, if one is named, is
evidence (docs/evidence/schema.json), from which tools/report.py makes a table.
"""
import argparse
import os
import pathlib
import statistics
import sys

import peers_torch
from launched import fingerprint, functions, measured_build
from reporting.evidence import Failure, check_evidence, write

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROTOCOL = {"graph_seconds": 5e-3, "warm_ups": 5, "samples": 9, "pause_seconds": 0.0}


def in_turns(timer, calls: dict, rounds: int) -> dict[str, list[float]]:
    """Seconds of each call, by name."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            times[name] += timer.samples(call, PROTOCOL)[0]
    return times


def timing(seconds: list[float]) -> dict:
    return {"p50_us": statistics.median(seconds) * 1e6, "p90_us": statistics.quantiles(seconds, n=10)[8] * 1e6,
            "samples": len(seconds)}


def document(frame: dict, turns: str, rounds: int, rows: list[dict], **more) -> dict:
    """`turns`: what the calls of a row take turns with."""
    protocol = (f"device time, graphs of about {PROTOCOL['graph_seconds'] * 1e3:g} ms of calls in turns{turns}, "
                f"{rounds} rounds of {PROTOCOL['samples']} after {PROTOCOL['warm_ups']} warm-up replays")
    evidence = frame | {"protocol": protocol, **more, "rows": rows}
    check_evidence(evidence)
    return evidence


def options_of(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, nargs="?")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--rounds", type=int, default=3)
    return parser


def run(options, kind: str, total: int, measure, line, document_of) -> None:
    """Prints and keeps each row of `measure(torch, flashcore, timer, fingerprint_of)`."""
    code, library = measured_build(options.build)
    os.environ["FLASHCORE_LIBRARY"] = str(library)  # so that the times belong to that machine code
    sys.path[:0] = [str(ROOT / "python"), str(ROOT / "python/tests")]
    import evidence as python_evidence
    import flashcore
    import torch
    major, minor = torch.cuda.get_device_capability()
    rows = []
    for row in measure(torch, flashcore, peers_torch.CudaTimer(torch),
                       lambda call: fingerprint(code, functions(torch, call), 10 * major + minor)):
        rows.append(row)
        print(line(row), flush=True)
        torch.cuda.empty_cache()
        if options.out:  # after each row, so that an interrupted run keeps its rows
            write(options.out, document_of(python_evidence.frame(kind, len(rows) == total), rows))


def main(name: str, start) -> int:
    try:
        start()
    except Failure as failure:
        print(f"{name}: {failure}", file=sys.stderr)
        return 1
    return 0
