#!/usr/bin/env python3
"""Times packed batches on a GPU, compared with the dense batch that has the same work.

    packed_times.py [OUT.json] [--build BUILD] [--heads 32] [--dtype bf16] [--head-dims 64,128] [--rounds 3]

Two batches, each full and causal: 256 entries of 128 rows, compared with the dense batch of that
shape; and one entry of 16,384 rows among 255 of 64, first, in the middle or last, compared with the
long entry only.
Each packed batch runs with and without max_seqlen. Before timing, each entry's rows are compared
with those of the entry alone. All are timed in turns, and a time is the median of all samples.
tools/gpu_times.py says where it runs.
"""
import gpu_times
from reporting import packed
from reporting.evidence import Failure

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
                times = gpu_times.in_turns(timer, {form: call for form, (call, _) in calls.items()}, rounds)
                yield {"batch": name, "head_dim": head_dim, "causal": causal,
                       "lengths": [{"entries": lengths.count(length), "seqlen": length}
                                   for length in sorted(set(lengths))],
                       "dense": [{"entries": len(beside), "seqlen": beside[0]}],
                       "points": [{"form": form, "kernel": kernel, "fingerprint": fingerprint_of(call),
                                   **gpu_times.timing(times[form])}
                                  for form, (call, kernel) in calls.items()]}


def document(frame: dict, heads: int, dtype: str, rounds: int, rows: list[dict]) -> dict:
    return gpu_times.document(frame, "", rounds, rows, heads=heads, dtype=dtype)


def main() -> int:
    parser = gpu_times.options_of(__doc__)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--head-dims", default="64,128")
    options = parser.parse_args()
    head_dims = [int(text) for text in options.head_dims.split(",")]

    def rows_of(torch, flashcore, timer, fingerprint_of):
        setting = Setting(torch, flashcore, options.heads, getattr(torch, DTYPES[options.dtype]))
        return measure(setting, timer, fingerprint_of, head_dims, options.rounds)

    return gpu_times.main("packed_times", lambda: gpu_times.run(
        options, "packed", len(head_dims) * 2 * len(list(batches())), rows_of, packed.line,
        lambda frame, rows: document(frame, options.heads, options.dtype, options.rounds, rows)))


if __name__ == "__main__":
    raise SystemExit(main())
