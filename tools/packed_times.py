#!/usr/bin/env python3
"""Times packed batches on a GPU, compared with the dense batch that has the same work.

    packed_times.py [OUT.json] [--build BUILD] [--heads 32] [--dtype bf16] [--head-dims 64,128] [--rounds 3]

Runs where python3 has PyTorch, with the library of a build with CUDA kernels. Two batches, each
full and causal: 256 entries of 128 rows, compared with the dense batch of that shape; and one entry
of 16,384 rows among 255 of 64, first, in the middle or last, compared with the long entry only.
Each packed batch runs with and without max_seqlen. Before timing, each entry's rows are compared
with those of the entry alone. All are timed in turns, and a time is the median of all samples.
OUT.json is an evidence file (docs/evidence/schema.json), from which tools/report.py makes a table.
"""
import argparse
import os
import pathlib
import statistics
import sys

import peers_torch
from launched import fingerprint, functions, measured_build
from reporting import packed
from reporting.evidence import Failure, check_evidence, write

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROTOCOL = {"graph_seconds": 5e-3, "warm_ups": 5, "samples": 9, "pause_seconds": 0.0}
DTYPES = {"f16": "float16", "bf16": "bfloat16"}
LONG, SHORT, ENTRIES = 16384, 64, 256


def batches():
    """Yields name, lengths, and the lengths of the dense batch to compare with."""
    yield "256 x 128", [128] * ENTRIES, [128] * ENTRIES
    for name, place in (("first", 0), ("in the middle", ENTRIES // 2), ("last", ENTRIES - 1)):
        lengths = [SHORT] * ENTRIES
        lengths[place] = LONG
        yield f"1 x 16k among 255 x 64, {name}", lengths, [LONG]


class Setting:
    """The calls to time, each with the name of the kernel that runs."""

    def __init__(self, torch, flashcore, heads, dtype):
        self.torch, self.heads, self.dtype = torch, heads, dtype
        self.attention, self.explain = flashcore.attention, flashcore.explain

    def kernel(self, *tensors, **options):
        return next(one["kernel"] for one in self.explain(*tensors, **options) if one["chosen"])

    def packed(self, lengths, head_dim, causal, longest):
        torch = self.torch
        torch.manual_seed(0)
        rows = (sum(lengths), self.heads, head_dim)
        q, k, v = (torch.randn(rows, dtype=self.dtype, device="cuda") for _ in range(3))
        starts = [0]
        for length in lengths:
            starts.append(starts[-1] + length)
        cu = torch.tensor(starts, dtype=torch.int32, device="cuda")
        out = torch.empty_like(q)
        call = lambda: self.attention(  # noqa: E731
            q, k, v, causal=causal, cu_seqlens_q=cu, cu_seqlens_kv=cu, max_seqlen_q=longest,
            max_seqlen_kv=longest, out=out)
        call()
        for entry in {0, 1, len(lengths) // 2, len(lengths) - 1}:
            place = slice(starts[entry], starts[entry + 1])
            one = [x[place].transpose(0, 1)[None] for x in (q, k, v)]
            alone = self.attention(*one, causal=causal)
            worst = (alone[0].transpose(0, 1).float() - out[place].float()).abs().max().item()
            if not worst < 0.01:
                raise Failure(f"entry {entry} of {len(lengths)} is off by {worst}")
        return call, self.kernel(q, k, v, causal=causal, cu_seqlens_q=cu, cu_seqlens_kv=cu,
                                 max_seqlen_q=longest, max_seqlen_kv=longest)

    def dense(self, lengths, head_dim, causal):
        torch = self.torch
        shape = (len(lengths), lengths[0], self.heads, head_dim)
        q, k, v = (torch.randn(shape, dtype=self.dtype, device="cuda").transpose(1, 2)
                   for _ in range(3))
        out = torch.empty_like(q)
        return (lambda: self.attention(q, k, v, causal=causal, out=out),
                self.kernel(q, k, v, causal=causal))


def measure(setting, timer, fingerprint_of, head_dims, rounds):
    """Yields the evidence's rows one by one; fingerprint_of: takes a call."""
    for head_dim in head_dims:
        for name, lengths, beside in batches():
            for causal in (False, True):
                calls = {"dense": setting.dense(beside, head_dim, causal),
                         "max_seqlen": setting.packed(lengths, head_dim, causal, max(lengths)),
                         "no max_seqlen": setting.packed(lengths, head_dim, causal, 0)}
                times = {form: [] for form in calls}
                for _ in range(rounds):
                    for form, (call, _) in calls.items():
                        times[form] += timer.samples(call, PROTOCOL)[0]
                yield {"batch": name, "head_dim": head_dim, "causal": causal,
                       "lengths": [{"entries": lengths.count(length), "seqlen": length}
                                   for length in sorted(set(lengths))],
                       "dense": [{"entries": len(beside), "seqlen": beside[0]}],
                       "points": [{"form": form, "kernel": kernel, "fingerprint": fingerprint_of(call),
                                   "p50_us": statistics.median(times[form]) * 1e6,
                                   "p90_us": statistics.quantiles(times[form], n=10)[8] * 1e6,
                                   "samples": len(times[form])}
                                  for form, (call, kernel) in calls.items()]}


def document(frame: dict, heads: int, dtype: str, rounds: int, rows: list[dict]) -> dict:
    protocol = (f"device time, graphs of about {PROTOCOL['graph_seconds'] * 1e3:g} ms of calls in turns, "
                f"{rounds} rounds of {PROTOCOL['samples']} after {PROTOCOL['warm_ups']} warm-up replays")
    evidence = frame | {"protocol": protocol, "heads": heads, "dtype": dtype, "rows": rows}
    check_evidence(evidence)
    return evidence


def run(options) -> None:
    code, library = measured_build(options.build)
    os.environ["FLASHCORE_LIBRARY"] = str(library)  # so that the times belong to that machine code
    sys.path[:0] = [str(ROOT / "python"), str(ROOT / "python/tests")]
    import evidence as python_evidence
    import flashcore
    import torch
    major, minor = torch.cuda.get_device_capability()
    setting = Setting(torch, flashcore, options.heads, getattr(torch, DTYPES[options.dtype]))
    head_dims = [int(text) for text in options.head_dims.split(",")]
    rows = []
    for row in measure(setting, peers_torch.CudaTimer(torch),
                       lambda call: fingerprint(code, functions(torch, call), 10 * major + minor),
                       head_dims, options.rounds):
        rows.append(row)
        print(packed.line(row), flush=True)
        torch.cuda.empty_cache()
        if options.out:  # after each row, so that an interrupted run keeps its rows
            complete = len(rows) == len(head_dims) * 2 * len(list(batches()))
            write(options.out, document(python_evidence.frame("packed", complete), options.heads,
                                        options.dtype, options.rounds, rows))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, nargs="?")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--head-dims", default="64,128")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    try:
        run(options)
    except Failure as failure:
        print(f"packed_times: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
