"""A backward pass on a GPU has the same bits in every run, even if other work runs."""

import pytest
from torch_cases import cuda, draw, torch

import flashcore

pytestmark = pytest.mark.usefixtures("torch_seeded")


def repeated(options):
    """A call of `attention_backward` on the GPU with its inputs."""
    d, dtype = options.pop("dim", 128), options.pop("dtype", torch.bfloat16)
    place = {"device": "cuda", "dtype": dtype}
    if "cu_seqlens_q" in options:
        rows = int(options["cu_seqlens_q"][-1])
        q, k, v = draw(rows, 8, d, **place), draw(rows, 2, d, **place), draw(rows, 2, d, **place)
    else:
        q, k, v = (
            draw(2, 8, 700, d, **place),
            draw(2, 2, 900, d, **place),
            draw(2, 2, 900, d, **place),
        )
    forward = {name: x for name, x in options.items() if not name.startswith("d_")}
    out, lse = flashcore.attention(q, k, v, return_lse=True, **forward)
    d_out = torch.randn_like(out)
    return lambda: flashcore.attention_backward(d_out, q, k, v, out, lse, **options)


@cuda
@pytest.mark.parametrize("what", ["gqa", "window", "packed", "bias and sinks", "float32"])
def test_a_thousand_runs_beside_other_work_have_the_same_bits(what):
    lengths = torch.tensor([0, 300, 301, 1100, 1500], dtype=torch.int32, device="cuda")
    call = repeated(
        {
            "gqa": {"causal": True},
            "window": {"causal": True, "window": (100, 0), "dim": 64},
            "packed": {"cu_seqlens_q": lengths, "cu_seqlens_kv": lengths, "max_seqlen_q": 800}
            | {"max_seqlen_kv": 800, "causal": True},
            "bias and sinks": {"bias": draw(1, 8, 700, 900, device="cuda"), "d_bias": True}
            | {"sinks": draw(8, device="cuda"), "d_sinks": True},
            "float32": {"dtype": torch.float32, "dim": 64},
        }[what]
    )
    first = [x for x in call() if x is not None]
    other = torch.cuda.Stream()
    a = draw(2048, 2048, device="cuda")
    differences = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(1000):
        with torch.cuda.stream(other):
            a @ a
        for x, y in zip((x for x in call() if x is not None), first, strict=True):
            differences += (x != y).any()
    assert differences == 0
