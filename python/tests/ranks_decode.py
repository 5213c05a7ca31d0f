"""What the ranks of test_distributed_decode.py do: decode over a cache that is cut over a group."""

import torch
from ranks import HEAD_DIMS, HEADS, said

import flashcore
import flashcore.distributed as fd

ROWS, PAGE = 12, 4


def _case(queries, world, dtype):
    """Queries, whole keys and values, and the lengths of the sequences."""
    torch.manual_seed(queries + 7 * world)
    lengths = torch.tensor([ROWS * world, queries, ROWS + 2, 2 * ROWS - 1]).clamp(max=ROWS * world)
    shapes = (
        (4, HEADS[0], queries, HEAD_DIMS[0]),
        (4, HEADS[1], ROWS * world, HEAD_DIMS[0]),
        (4, HEADS[1], ROWS * world, HEAD_DIMS[1]),
    )
    arrays = [torch.randn(shape).to(getattr(torch, dtype)) for shape in shapes]
    return *arrays, lengths.int()


def _options(names, queries):
    options = {
        "window": {"window": (9, 0)},
        "slopes": {"alibi_slopes": torch.linspace(0.01, 0.2, HEADS[0])},
        "sinks": {"sinks": torch.linspace(-1, 1, HEADS[0])},
        "softcap": {"softcap": 3.0, "softmax_scale": 0.3},
    }
    found = {}
    for name in names:
        found |= options[name]
    return found


def _pages(x):
    """Returns a cache in pages, shuffled, and its table."""
    batch, heads, rows, width = x.shape
    pages = (
        x.unflatten(2, (rows // PAGE, PAGE)).permute(0, 2, 1, 3, 4).reshape(-1, heads, PAGE, width)
    )
    order = torch.randperm(len(pages), generator=torch.Generator().manual_seed(1))
    table = torch.argsort(order).reshape(batch, rows // PAGE).int()
    return pages[order].contiguous(), table


def compare(group, queries, names, dtype, in_pages):
    """Keys cut over the ranks, against one process; returns the bits."""
    rank, world = group.rank(), group.size()
    q, k, v, lengths = _case(queries, world, dtype)
    options = _options(names, queries)
    wanted = flashcore.decode(q, k, v, seqlens_kv=lengths, return_lse=True, **options)
    k, v = (x[:, :, rank * ROWS : (rank + 1) * ROWS].clone() for x in (k, v))
    share = fd.cache_share(lengths, ROWS, group, queries=queries)
    in_use = [min(max(n - rank * ROWS, 0), ROWS) for n in lengths.tolist()]
    assert share["seqlens_kv"].tolist() == in_use
    for b, length in enumerate(share["seqlens_kv"].tolist()):  # what is not in use may be anything
        for x in (k, v):
            x[b, :, length:] = torch.nan
    if in_pages:
        k, share["page_table"] = _pages(k)
        v, _ = _pages(v)
    found = fd.decode(q, k, v, group, return_lse=True, **share, **options)
    tolerance = {"float32": 2e-5, "bfloat16": 1.5e-2}[dtype]
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)
    assert torch.equal(found[0], fd.decode(q, k, v, group, **share, **options))
    return [x.float().numpy().tobytes() for x in found]


def append(group):
    """A cache that grows over the ranks, one key at a time."""
    rank, world = group.rank(), group.size()
    _, k, v, _ = _case(1, world, "float32")
    mine = [torch.full_like(x[:, :, :ROWS], torch.nan) for x in (k, v)]
    before = torch.tensor([0, 3, ROWS - 1, ROWS], dtype=torch.int32)
    own = fd.cache_share(before, ROWS, group)["seqlens_kv"]
    for x, whole in zip(mine, (k, v), strict=True):
        for b, length in enumerate(own.tolist()):
            x[b, :, :length] = whole[b, :, rank * ROWS :][:, :length]
    for _ in range(ROWS):
        share = fd.cache_share(before + 1, ROWS, group)
        own = fd.cache_share(before, ROWS, group)["seqlens_kv"]
        new = [
            torch.stack([x[b, :, n : n + 1] for b, n in enumerate(before.tolist())]) for x in (k, v)
        ]
        flashcore.append(*new, *mine, seqlens_kv=own, seqlens_new=share["seqlens_kv"] - own)
        before = before + 1
        q = torch.randn(4, HEADS[0], 1, HEAD_DIMS[0], generator=torch.Generator().manual_seed(3))
        found = fd.decode(q, *mine, group, **share)
        torch.testing.assert_close(
            found, flashcore.decode(q, k, v, seqlens_kv=before), atol=2e-5, rtol=2e-5
        )


def sequences(group, batch):
    """Sequences cut over the ranks, of which there may be fewer than ranks."""
    rank, world = group.rank(), group.size()
    q, k, v, lengths = (x[:batch] for x in _case(3, world, "float32"))
    sinks = torch.linspace(-1, 1, HEADS[0])
    options = {"window": (9, 0), "sinks": sinks, "return_lse": True}
    wanted = flashcore.decode(q, k, v, seqlens_kv=lengths, **options)
    share = -(-batch // world)
    k, v, lengths = (x[rank * share : (rank + 1) * share] for x in (k, v, lengths))
    found = fd.decode(q, k, v, group, cut="sequences", seqlens_kv=lengths, **options)
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other)  # each sequence is one rank's


def wrong(group, options):
    """Returns the error of a call that is wrong on all ranks, or where ranks disagree."""
    options = dict(options)
    queries = options.pop("queries", 1)
    q, k, v, lengths = _case(queries, 2, "float32")
    if options.pop("spoil", "") == "rank" and group.rank() == 1:
        options["softcap"] = 2.0
    if options.pop("array", ""):
        options["k_new"] = torch.zeros(1)
    return said(flashcore.Error, fd.decode, q, k, v, group, seqlens_kv=lengths, **options)
