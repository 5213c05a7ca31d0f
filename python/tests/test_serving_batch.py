"""flashcore.serving: steps of prompts and single tokens together, checked by request."""

import gates
import numpy as np
import pytest
from definition import attention as definition

import flashcore
from flashcore.serving import Batch, pages

torch = pytest.importorskip("torch")

HEADS, HEADS_KV, WIDTH, PAGE = 8, 2, 64, 16


class Requests:
    """Requests in pages of one layer; `step` adds rows to them and makes the batch."""

    def __init__(self, device, *, layout="HND", cache=None, page=PAGE, rows=160, count=6, seed=0):
        self.device, self.page = device, page
        self.dtype = torch.float32 if device == "cpu" else torch.float16
        self.random = torch.Generator().manual_seed(seed)
        self.count, columns = count, -(-rows // page)
        number = count * columns + 3
        shape = (number * page, HEADS_KV, WIDTH)
        if layout == "HND":
            shape = (number, HEADS_KV, page, WIDTH)
        empty = torch.full(shape, float("nan"), device=device).to(cache or self.dtype)
        self.buffers = empty, empty.clone()
        self.cache = [pages(x, page) if layout == "NHD" else x for x in self.buffers]
        table = torch.randperm(number, generator=self.random)[: count * columns]
        self.table = table.view(count, columns).to(device, torch.int32)
        self.lengths = [0] * count

    def normal(self, *shape):
        return torch.randn(*shape, generator=self.random).to(self.device, self.dtype)

    def integers(self, values):
        return torch.tensor(values, dtype=torch.int32, device=self.device)

    def step(self, counts, **options):
        """Returns the batch, and new rows of q, k and v."""
        self.lengths = [a + b for a, b in zip(self.lengths, counts, strict=True)]
        starts = np.cumsum([0, *counts]).tolist()
        batch = Batch(
            self.table,
            self.integers(self.lengths),
            self.integers(starts),
            max_seqlen_q=max(counts),
            **options,
        )
        return batch, [
            self.normal(starts[-1], heads, WIDTH) for heads in (HEADS, HEADS_KV, HEADS_KV)
        ]

    def rows(self, b, scales=(1.0, 1.0)):
        """Keys and values of a request, [1, Hkv, rows, D], as they are in the cache."""
        found = []
        for x, scale in zip(self.cache, scales, strict=True):
            rows = x[self.table[b].long()].float().transpose(0, 1).flatten(1, 2)
            found.append((rows[:, : self.lengths[b]] * scale)[None].cpu().numpy())
        return found

    def check(self, out, lse, q, counts, scales=(1.0, 1.0), **options):
        """Compares each request with the definition."""
        dtype = str(self.dtype).removeprefix("torch.")
        start = 0
        for b, count in enumerate(counts):
            own = slice(start, start + count)
            start += count
            if count == 0:
                continue
            queries = q[own].transpose(0, 1)[None].float().cpu().numpy()
            want, want_lse = definition(queries, *self.rows(b, scales), causal=True, **options)
            gates.check(out[own].transpose(0, 1)[None].float().cpu(), want, dtype)
            gates.check_lse(lse[own].transpose(0, 1)[None].cpu(), want_lse, dtype)


def on(device, options):
    return {
        name: torch.tensor(value, device=device) if isinstance(value, np.ndarray) else value
        for name, value in options.items()
    }


FIRST, SECOND, THIRD = [40, 17, 1, 0, 90, 5], [1, 30, 1, 3, 33, 1], [1, 1, 1, 1, 1, 1]
OPTIONS = {
    "plain": {},
    "window": {"window": (20, -1)},
    "sinks": {"sinks": np.linspace(-2, 3, HEADS, dtype=np.float32)},
    "softcap": {"softcap": 4.0},
    "alibi": {"alibi_slopes": np.linspace(0.01, 0.5, HEADS, dtype=np.float32)},
    "all": {
        "window": (50, -1),
        "softcap": 10.0,
        "sinks": np.zeros(HEADS, np.float32),
        "alibi_slopes": np.full(HEADS, 0.1, np.float32),
        "softmax_scale": 0.2,
    },
}


@pytest.mark.parametrize("page", [16, 48])
@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("name", OPTIONS)
def test_prompts_and_tokens_in_one_step(torch_device, name, layout, page):
    requests = Requests(torch_device, layout=layout, page=page)
    given = on(torch_device, OPTIONS[name])
    for counts in (FIRST, SECOND, THIRD):
        before = [x.clone() for x in requests.buffers]
        batch, (q, k, v) = requests.step(counts)
        batch.append(k, v, *requests.cache)
        assert (before[0] != requests.buffers[0]).any()  # a view: nothing was copied
        out = torch.empty_like(q)
        same, lse = batch.attend(q, *requests.cache, return_lse=True, out=out, **given)
        assert same is out
        requests.check(out, lse, q, counts, **OPTIONS[name])
        start = 0
        for b, count in enumerate(counts):  # the rows are where they belong, to the bit
            for new, found in zip((k, v), requests.rows(b), strict=True):
                want = new[start : start + count].transpose(0, 1)[None].float().cpu().numpy()
                np.testing.assert_array_equal(found[:, :, requests.lengths[b] - count :], want)
            start += count


@pytest.mark.parametrize("cache", ["float8_e4m3fn", "float8_e5m2"])
def test_scales_of_an_fp8_cache(torch_device, cache):
    requests = Requests(torch_device, cache=getattr(torch, cache))
    numbers = 0.25, 0.5
    scales = {
        name: torch.full((1, 1, 1), number, device=torch_device)
        for name, number in zip(("k_scale", "v_scale"), numbers, strict=True)
    }
    for counts in (FIRST, SECOND, THIRD):
        batch, (q, k, v) = requests.step(counts)
        batch.append(k, v, *requests.cache, **scales)
        out, lse = batch.attend(q, *requests.cache, return_lse=True, **scales)
        requests.check(out, lse, q, counts, numbers)


@pytest.mark.parametrize("rows", [0, 5, 32])
@pytest.mark.parametrize("name", ["plain", "sinks", "softcap", "window", "alibi"])
def test_shared_rows(torch_device, name, rows):
    """Pages of a prefix that all requests share; a window and ALiBi count positions."""
    requests = Requests(torch_device)
    batch, (_, k, v) = requests.step([40, 0, 0, 0, 0, 0])
    batch.append(k, v, *requests.cache)
    requests.table[1:, :2] = requests.table[:1, :2]
    for x in requests.cache:  # the rest of the 40 rows, in a page of each request's own
        x[requests.table[1:, 2].long()] = x[requests.table[:1, 2].long()]
    requests.lengths = [40] * 6
    counts = [1, 20, 1, 1, 7, 1]
    shared = requests.integers([rows] * 6)
    batch, (q, k, v) = requests.step(counts, shared=shared)
    batch.append(k, v, *requests.cache)
    given = on(torch_device, OPTIONS[name])
    out, lse = batch.attend(q, *requests.cache, return_lse=True, **given)
    requests.check(out, lse, q, counts, **OPTIONS[name])
    again = batch.attend(q, *requests.cache, **given)
    assert torch.equal(out, again)


def test_shared_rows_are_read_once(calls_of):
    """The keys of the prefix are left to one call for all."""
    requests = Requests("cpu")
    batch, (q, k, v) = requests.step([40, 0, 0, 0, 0, 0], shared=requests.integers([0] * 6))
    batch.append(k, v, *requests.cache)
    calls = calls_of(flashcore.serving, "decode")
    batch.attend(q, *requests.cache)
    assert [call[0][0].shape for call in calls] == [(40, HEADS, WIDTH), (1, HEADS, 40, WIDTH)]
    del calls[:]
    batch.attend(q, *requests.cache, batch_invariant=True)
    assert len(calls) == 1


def test_batch_invariant(torch_device):
    """A request alone has the bits that it has among others."""
    requests = Requests(torch_device)
    for counts in (FIRST, SECOND, THIRD):
        batch, (q, k, v) = requests.step(counts)
        batch.append(k, v, *requests.cache)
        out, lse = batch.attend(q, *requests.cache, batch_invariant=True, return_lse=True)
        start = 0
        for b, count in enumerate(counts):
            own = slice(start, start + count)
            start += count
            alone = Batch(
                requests.table[b : b + 1],
                requests.integers([requests.lengths[b]]),
                requests.integers([0, count]),
                max_seqlen_q=count,
            )
            if count:
                one, one_lse = alone.attend(
                    q[own], *requests.cache, batch_invariant=True, return_lse=True
                )
                assert torch.equal(one, out[own])
                assert torch.equal(one_lse, lse[own])


@pytest.mark.gpu
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("name", OPTIONS)
def test_a_captured_step(name, shared):
    """One graph for all steps that fit: other lengths, other counts, fewer tokens and requests."""
    if not (torch.cuda.is_available() and flashcore.build_info()["cuda"]):
        pytest.skip("needs a GPU")
    requests = Requests("cuda")
    given = on("cuda", OPTIONS[name])
    tokens = sum(FIRST)
    q, k, v = (requests.normal(tokens, heads, WIDTH) for heads in (HEADS, HEADS_KV, HEADS_KV))
    out, lse = torch.empty_like(q), torch.empty(tokens, HEADS, device="cuda")
    lengths, before, prefix = (requests.integers([0] * 6) for _ in range(3))
    starts = requests.integers([0] * 7)
    batch = Batch(
        requests.table,
        lengths,
        starts,
        max_seqlen_q=max(FIRST),
        seqlens_before=before,
        shared=prefix if shared else None,
    )

    def call():
        batch.append(k, v, *requests.cache)
        batch.attend(q, *requests.cache, return_lse=True, out=out, out_lse=lse, **given)

    call()  # plans
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    torch.cuda.set_sync_debug_mode("default")
    for counts in (FIRST, SECOND, THIRD, [0, 0, 1, 0, 0, 1]):
        step, new = requests.step(counts)
        count = sum(counts)
        for x, rows in zip((q, k, v), new, strict=True):
            x[:count] = rows
        for array, values in (
            (lengths, step.seqlens_kv),
            (before, step.seqlens_before),
            (starts, step.cu_seqlens_q),
        ):
            array.copy_(values)
        out.fill_(float("nan"))
        graph.replay()
        requests.check(out, lse, q, counts, **OPTIONS[name])
        # Eagerly, with arrays of this step's own size.
        eager = step.attend(q[:count], *requests.cache, return_lse=True, **given)
        requests.check(*eager, q, counts, **OPTIONS[name])
