#!/usr/bin/env python3
"""Times merge, append and quantize on a GPU, compared with a copy of the same number of bytes.

    call_times.py [OUT.json] [--build BUILD] [--rounds 3]

Tensors are larger than the GPU's caches, except for the decode step. Before it is timed, a call's output
is compared with the CPU's, bit for bit unless it contains an exponential or a sine. Bytes are what a call
must read and write once. tools/gpu_times.py says where it runs.
"""
import gpu_times
from reporting import calls
from reporting.evidence import Failure


def merged(torch, flashcore, device):
    """Merges 32 heads of 16k rows, and both LSEs."""
    shape = (1, 32, 16384, 128)
    torch.manual_seed(0)
    o = [torch.randn(shape, dtype=torch.bfloat16).to(device) for _ in range(2)]
    lse = [torch.randn(shape[:-1]).to(device) for _ in range(2)]
    out, out_lse = torch.empty_like(o[0]), torch.empty_like(lse[0])
    return (lambda: flashcore.merge(o[0], lse[0], o[1], lse[1], out=out, out_lse=out_lse),
            [out], 3 * (out.nbytes + out_lse.nbytes))


def appended(torch, flashcore, device, batch, rows, page, fp8=False, rope=False):
    """Appends new rows of 8 heads after 1024 in the cache, in shuffled pages unless `page` is 0."""
    heads, dim, before = 8, 128, 1024
    torch.manual_seed(0)
    new = [torch.randn((batch, heads, rows, dim), dtype=torch.bfloat16).to(device) for _ in range(2)]
    dtype = torch.float8_e4m3fn if fp8 else torch.bfloat16
    capacity = before + rows
    options = {"seqlens_kv": torch.full((batch,), before, dtype=torch.int32, device=device)}
    if page:
        pages = -(-capacity // page)
        shape = (batch * pages, heads, page, dim)
        table = torch.randperm(batch * pages, dtype=torch.int32).reshape(batch, pages)
        options["page_table"] = table.to(device)
    else:
        shape = (batch, heads, capacity, dim)
    cache = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(2)]
    if fp8:
        options |= {name: torch.full((1, 1, 1), 0.01, device=device) for name in ("k_scale", "v_scale")}
    if rope:
        options |= {"rope_base": 10000.0}
    written = sum(x.nbytes for x in new) // (2 if fp8 else 1)
    return (lambda: flashcore.append(*new, *cache, **options), cache, sum(x.nbytes for x in new) + written)


def quantized(torch, flashcore, device, **options):
    """Quantises 32 heads of 16k rows to e4m3."""
    shape = (1, 32, 16384, 128)
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=torch.bfloat16).to(device)
    kept = []

    def call():
        kept[:] = [flashcore.quantize(x, **options)]

    call()
    return call, kept, x.nbytes * 3 // 2


def cases():
    yield "merge", "merge", "32 heads, 16k rows, bf16", merged, {}
    for batch, rows, page in ((256, 1, 16), (8, 4096, 0), (8, 4096, 64), (8, 4096, 16)):
        for options, name in (({}, "bf16"), ({"rope": True}, "bf16, RoPE"), ({"fp8": True}, "bf16 to e4m3")):
            where = f"pages of {page}" if page else "contiguous"
            yield ("append", "append", f"{batch} x {rows} rows, {where}, {name}", appended,
                   options | {"batch": batch, "rows": rows, "page": page})
    for name, options in (("a tensor", {"scales": "tensor"}), ("a head", {}),
                          ("128 rows", {"block": 128}), ("a token", {"block": 1}),
                          ("a head, mean subtracted", {"smooth": True})):
        yield "quantize", "quantize_sm80", f"32 heads, 16k rows, bf16 to e4m3, a scale for {name}", quantized, options


def tensors_of(torch, results):
    """Returns the bits of a call's outputs."""
    for one in results:
        for part in ([one] if isinstance(one, torch.Tensor) else [x for x in one if x is not None]):
            yield part.contiguous().cpu()


def check(torch, flashcore, call, make, options, results) -> None:
    call()
    torch.cuda.synchronize()
    host_call, expected, _ = make(torch, flashcore, "cpu", **options)
    host_call()
    for one, other in zip(tensors_of(torch, results), tensors_of(torch, expected), strict=True):
        if make is merged or options.get("rope"):
            # Exponentials and sines differ from the host library's in the last bits.
            same = torch.allclose(one.float(), other.float(), rtol=2**-7, atol=2**-7 if options else 1e-6)
        else:
            same = torch.equal(one.view(torch.uint8), other.view(torch.uint8))
        if not same:
            raise Failure(f"{make.__name__} {options}: is not what the CPU writes, so it has no time")


def copy_of(torch, bytes_moved):
    x = torch.empty(max(1, bytes_moved // 2), dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    return lambda: y.copy_(x)


def measure(torch, flashcore, timer, fingerprint_of, rounds):
    """Yields the evidence's rows one by one; fingerprint_of: takes a call."""
    for call_name, kernel, case, make, options in cases():
        call, results, moved = make(torch, flashcore, "cuda", **options)
        check(torch, flashcore, call, make, options, results)
        times = gpu_times.in_turns(timer, {"call": call, "copy": copy_of(torch, moved)}, rounds)
        yield {"call": call_name, "case": case, "kernel": kernel, "fingerprint": fingerprint_of(call),
               "bytes": moved, **gpu_times.timing(times["call"]), "copy_us": gpu_times.timing(times["copy"])["p50_us"]}


def document(frame: dict, rounds: int, rows: list[dict]) -> dict:
    return gpu_times.document(frame, " with the copy", rounds, rows)


def main() -> int:
    options = gpu_times.options_of(__doc__).parse_args()
    return gpu_times.main("call_times", lambda: gpu_times.run(
        options, "calls", len(list(cases())), lambda *what: measure(*what, options.rounds), calls.line,
        lambda frame, rows: document(frame, options.rounds, rows)))


if __name__ == "__main__":
    raise SystemExit(main())
