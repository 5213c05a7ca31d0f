#!/usr/bin/env python3
"""What a packed batch costs beside the dense batch with the same work, on a GPU.

    packed_times.py [OUT.json] [--heads 32] [--dtype bf16] [--head-dims 64,128] [--rounds 3]

Runs where python3 has PyTorch and the flashcore package with CUDA kernels. Two batches, each full and
causal: 256 entries of 128 rows beside the dense batch of that shape; and one entry of 16,384 rows among
255 of 64, first, in the middle or last, beside the long entry alone. Each packed batch runs with
max_seqlen and without. Each entry's rows must be those of the entry alone before anything is timed.
All run in turns; times are the medians of the rounds, and `rate` is the dense time over the packed one.
"""
import argparse
import json
import pathlib
import statistics

import peers_torch

PROTOCOL = {"graph_seconds": 5e-3, "warm_ups": 5, "samples": 9, "pause_seconds": 0.0}
DTYPES = {"f16": "float16", "bf16": "bfloat16"}
LONG, SHORT, ENTRIES = 16384, 64, 256


def batches():
    """Name, lengths, and the lengths of the dense batch beside it."""
    yield "256 x 128", [128] * ENTRIES, [128] * ENTRIES
    for name, place in (("first", 0), ("middle", ENTRIES // 2), ("last", ENTRIES - 1)):
        lengths = [SHORT] * ENTRIES
        lengths[place] = LONG
        yield f"16384 {name} of 255 x 64", lengths, [LONG]


class Setting:
    def __init__(self, torch, attention, heads, dtype):
        self.torch, self.attention, self.heads, self.dtype = torch, attention, heads, dtype

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
                raise SystemExit(f"entry {entry} of {len(lengths)} is off by {worst}")
        return call

    def dense(self, lengths, head_dim, causal):
        torch = self.torch
        shape = (len(lengths), lengths[0], self.heads, head_dim)
        q, k, v = (torch.randn(shape, dtype=self.dtype, device="cuda").transpose(1, 2)
                   for _ in range(3))
        out = torch.empty_like(q)
        return lambda: self.attention(q, k, v, causal=causal, out=out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, nargs="?")
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--head-dims", default="64,128")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    import torch

    import flashcore
    setting = Setting(torch, flashcore.attention, options.heads, getattr(torch, DTYPES[options.dtype]))
    timer = peers_torch.CudaTimer(torch)
    rows = []
    for head_dim in (int(text) for text in options.head_dims.split(",")):
        for name, lengths, beside in batches():
            for causal in (False, True):
                calls = {"dense": setting.dense(beside, head_dim, causal),
                         "with max_seqlen": setting.packed(lengths, head_dim, causal, max(lengths)),
                         "without": setting.packed(lengths, head_dim, causal, 0)}
                times = {form: [] for form in calls}
                for _ in range(options.rounds):
                    for form, call in calls.items():
                        times[form] += timer.samples(call, PROTOCOL)[0]
                us = {form: statistics.median(one) * 1e6 for form, one in times.items()}
                rows.append({"batch": name, "head_dim": head_dim, "causal": causal, "us": us})
                rates = ", ".join(f"{form} {us[form]:.1f} us, rate {us['dense'] / us[form]:.3f}"
                                  for form in us if form != "dense")
                print(f"{name}, D {head_dim}{', causal' if causal else ''}: "
                      f"dense {us['dense']:.1f} us, {rates}", flush=True)
                del calls
                torch.cuda.empty_cache()
    if options.out:
        device = torch.cuda.get_device_name()
        options.out.write_text(json.dumps({"device": device, "heads": options.heads,
                                           "dtype": options.dtype, "rows": rows}, indent=1) + "\n",
                               encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
