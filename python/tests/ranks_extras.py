"""What the ranks of test_distributed_extras.py do: sinks, ALiBi, biases and masks over a group."""

import functools

import torch
import torch.distributed as dist
import torch.nn.functional as F
from ranks import attend, mesh_of, small

import flashcore
import flashcore.distributed as fd

MASKS = {
    "full": {},
    "causal": {"causal": True, "softcap": 4.0},
    "window": {"window": (9, 5), "alignment": "top_left"},
}


def sinks_at_the_edges(group, value):
    """Rows that see no key, with a sink that is not finite: as one process has it."""
    torch.manual_seed(4)
    q, k, v = (torch.randn(1, n, 12, 32) for n in (2, 1, 1))
    mask = torch.ones(1, 1, 12, 12, dtype=torch.bool)
    mask[0, 0, ::3] = False

    def results(call, *arrays, **options):
        sinks = torch.tensor([0.5, value], requires_grad=True)
        out, lse = call(*arrays, sinks=sinks, return_lse=True, **options)
        out.sum().backward()
        return out.detach(), lse.detach(), sinks.grad

    *wanted, d_sinks = results(flashcore.attention, q, k, v, mask=mask)
    mine = [fd.shard(x, group) for x in (q, k, v, mask)]
    ring = functools.partial(fd.context_parallel_attention, group=group, algorithm="ring")
    *found, gradient = results(ring, *mine[:3], mask=mine[3])
    near = {"atol": 1e-5, "rtol": 1e-5, "equal_nan": True}
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(fd.unshard(one, group), other, **near)
    dist.all_reduce(gradient, group=group)
    if value == -torch.inf:  # it is no sink; others make every gradient NaN
        torch.testing.assert_close(gradient, d_sinks, **near)


def wrong(group, which, rows=8):
    """Returns the error of a call with an extra that is wrong on all ranks."""
    keys = torch.ones(1, 1, 1, 2 * rows, dtype=torch.bool)
    spoiled = {
        "sinks of three": {"sinks": torch.zeros(3)},
        "half sinks": {"sinks": torch.zeros(4, dtype=torch.float16)},
        "no tensor": {"alibi_slopes": [0.1] * 4},
        "few keys": {"bias": torch.zeros(1, 1, rows, rows)},
        "all rows": {"mask": torch.ones(1, 1, 2 * rows, 2 * rows, dtype=torch.bool)},
        "ulysses": {"mask": keys, "algorithm": "ulysses"},
        "one rank": {"sinks": torch.zeros(4)} if group.rank() == 1 else {},
    }
    return attend(group, small(rows), **spoiled[which])


def masked_sdpa(group):
    """scaled_dot_product_attention with masks and biases, over the ranks and in one process."""
    torch.manual_seed(2)
    q, k, v = (torch.randn(1, 4, 21, 32) for _ in range(3))
    mask = torch.rand(21, 21) > 0.3
    for whole in (mask, mask[None, None], mask.float() * 2, mask[:1]):
        dim = whole.dim() - 2
        mine = fd.shard(whole, group, dim=dim) if whole.shape[dim] > 1 else whole
        with fd.replace_sdpa(group, seqlen=21):
            out = F.scaled_dot_product_attention(
                *(fd.shard(x, group) for x in (q, k, v)), attn_mask=mine
            )
        wanted = F.scaled_dot_product_attention(q, k, v, attn_mask=whole)
        torch.testing.assert_close(fd.unshard(out, group, seqlen=21), wanted, atol=2e-5, rtol=0)


def wrong_levels(group, which):
    """Returns the error of a call in two levels that is wrong on all ranks."""
    arrays = small()
    options = {}
    if which == "heads":
        arrays = {name: x[:, : 2 if name == "q" else 1] for name, x in arrays.items()}
    elif which == "mask":
        options["mask"] = torch.ones(1, 1, 1, 32, dtype=torch.bool)
    else:
        options["layout"] = "striped"
    return attend(mesh_of((1, 4) if which == "heads" else (2, 2)), arrays, **options)


def levels_disagree(group, name, value):
    """The last rank has another option; returns the errors. Then the mesh works again."""
    rows = 4 + len(name) + len(str(value))  # new to all ranks
    mesh, arrays = mesh_of((2, 2)), small(rows)
    options = {"causal": True} | ({name: value} if group.rank() == 3 else {})
    found = attend(mesh, arrays, flashcore.InvalidArgumentError, **options)
    fd.context_parallel_attention(**arrays, group=mesh, causal=True)
    return found
