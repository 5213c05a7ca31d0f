"""What the ranks of test_distributed_extras.py do: sinks, ALiBi, biases and masks over a group."""

import functools

import gates
import ranks

# Name of the array, and the dimensions that are 1.
EXTRAS = {
    "sinks": ("sinks", ()),
    "slopes": ("alibi_slopes", ()),
    "bias": ("bias", ()),
    "bias of heads": ("bias", (0,)),
    "bias of keys": ("bias", (0, 2)),
    "bias of rows": ("bias", (1, 3)),
    "mask": ("mask", (1,)),
    "mask of keys": ("mask", (1, 2)),
}


@functools.lru_cache(maxsize=32)
def _whole(which, rows, keys):
    import torch

    name, ones = EXTRAS[which]
    torch.manual_seed(len(which) + rows)
    heads = ranks.HEADS[0]
    if name == "sinks":
        return name, torch.randn(heads)
    if name == "alibi_slopes":
        return name, torch.rand(heads) * 0.1
    shape = [1 if i in ones else n for i, n in enumerate((2, heads, rows, keys))]
    x = torch.randn(shape)
    if name == "mask":
        x = x > -0.5
        x[..., : min(2, x.shape[2]), :] = False  # the first rows see nothing
    return name, x


def _mine(fd, name, x, group, layout):
    if name in ("bias", "mask") and x.shape[2] > 1:
        return fd.shard(x, group, layout=layout)
    return x


@functools.lru_cache(maxsize=8)
def _mesh(*shape):
    import torch
    from torch.distributed.device_mesh import init_device_mesh

    found = init_device_mesh("cpu", shape)
    assert torch.distributed.get_world_size() == found.size()
    return found


def compare(group, lengths, lengths_kv, is_packed, layout, algorithm, options, which, mesh=None):
    """Computes O, LSE and gradients with extras over the group, and compares with fp64.

    With the shape of a mesh: in two levels.
    """
    import torch
    import torch.distributed as dist

    import flashcore
    import flashcore.distributed as fd

    everybody, group = group, group if mesh is None else _mesh(*mesh)
    whole = ranks._whole(lengths, lengths_kv, is_packed, torch.float32)
    rows, keys = sum(lengths), sum(lengths_kv)
    extras = dict(_whole(one, rows, keys) for one in which)
    dim = 0 if is_packed else 2
    starts, starts_kv = (ranks._starts(x) if is_packed else None for x in (lengths, lengths_kv))
    cuts = (starts, starts_kv, starts_kv, starts, starts)
    shards = [
        fd.shard(x, group, cu_seqlens=s, layout=layout, dim=dim)
        for x, s in zip(whole, cuts, strict=True)
    ]
    leaves = [x.clone().requires_grad_() for x in shards[:3]]
    mine = {name: _mine(fd, name, x, group, layout).clone() for name, x in extras.items()}
    learned = [name for name in mine if name != "mask"]
    for name in learned:
        mine[name].requires_grad_()
    packed = {"cu_seqlens_q": starts, "cu_seqlens_kv": starts_kv} if is_packed else {}
    sizes = {} if is_packed else {"seqlen_q": rows, "seqlen_kv": keys}
    out, lse = fd.context_parallel_attention(
        *leaves, group, layout=layout, algorithm=algorithm, return_lse=True,
        **packed, **sizes, **options, **mine,
    )  # fmt: skip
    torch.autograd.backward([out, lse], shards[3:])
    results = [out.detach(), lse.detach(), *(x.grad for x in leaves)]
    found = [
        fd.unshard(x, group, cu_seqlens=s, seqlen=None if is_packed else n, layout=layout, dim=dim)
        for x, s, n in zip(
            results,
            (starts, starts, starts, starts_kv, starts_kv),
            (rows, rows, rows, keys, keys),
            strict=True,
        )
    ]
    shares = []
    for name in learned:
        gradient = mine[name].grad
        if mine[name] is not extras[name] and name == "bias" and extras[name].shape[2] > 1:
            gradient = fd.unshard(gradient, group, seqlen=rows, layout=layout)
        else:
            dist.all_reduce(gradient, group=everybody)
        shares.append(gradient)
    if everybody.rank() != 0:
        return
    packed = {n: torch.tensor(x, dtype=torch.int32) for n, x in packed.items()}
    same = {**packed, **options, **extras, "kernel": "reference"}
    exact, exact_lse = flashcore.attention(
        *whole[:3], return_lse=True, out_dtype=torch.float64, **same
    )
    asked = {f"d_{name}": True for name in learned}
    wanted = flashcore.attention_backward(
        whole[3].double(), *whole[:3], exact, exact_lse, d_lse=whole[4], grad_dtype=torch.float64,
        **asked, **same,
    )  # fmt: skip
    gates.check(found[0].double(), exact, "float32")
    gates.check_lse(found[1], exact_lse, "float32")
    for one, other in zip(found[2:], wanted[:3], strict=True):
        gates.check_gradient(one.double(), other, "float32")
    for name, one in zip(learned, shares, strict=True):
        gates.check_gradient(one.double(), getattr(wanted, f"d_{name}"), "float32")


def sinks_at_the_edges(group, value):
    """Rows that see no key, with a sink that is not finite: as one process has it."""
    import torch
    import torch.distributed as dist

    import flashcore
    import flashcore.distributed as fd

    torch.manual_seed(4)
    q, k, v = (torch.randn(1, n, 12, 32) for n in (2, 1, 1))
    mask = torch.ones(1, 1, 12, 12, dtype=torch.bool)
    mask[0, 0, ::3] = False

    def results(attend, *arrays, **options):
        sinks = torch.tensor([0.5, value], requires_grad=True)
        out, lse = attend(*arrays, sinks=sinks, return_lse=True, **options)
        out.sum().backward()
        return out.detach(), lse.detach(), sinks.grad

    *wanted, d_sinks = results(flashcore.attention, q, k, v, mask=mask)
    mine = [fd.shard(x, group) for x in (q, k, v, mask)]
    attend = functools.partial(fd.context_parallel_attention, group=group, algorithm="ring")
    *found, gradient = results(attend, *mine[:3], mask=mine[3])
    near = {"atol": 1e-5, "rtol": 1e-5, "equal_nan": True}
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(fd.unshard(one, group), other, **near)
    dist.all_reduce(gradient, group=group)
    if value == -torch.inf:  # it is no sink; others make every gradient NaN
        torch.testing.assert_close(gradient, d_sinks, **near)


def wrong(group, which, rows=8):
    """Returns the error of a call with an extra that is wrong on all ranks."""
    import torch

    import flashcore
    import flashcore.distributed as fd

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
    try:
        fd.context_parallel_attention(**ranks._small(rows), group=group, **spoiled[which])
    except flashcore.Error as problem:
        return str(problem)
    return ""


def masked_sdpa(group):
    """scaled_dot_product_attention with masks and biases, over the ranks and in one process."""
    import torch
    import torch.nn.functional as F

    import flashcore.distributed as fd

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
    import torch

    import flashcore
    import flashcore.distributed as fd

    arrays = ranks._small(8)
    options = {}
    if which == "heads":
        arrays = {name: x[:, : 2 if name == "q" else 1] for name, x in arrays.items()}
    elif which == "mask":
        options["mask"] = torch.ones(1, 1, 1, 32, dtype=torch.bool)
    else:
        options["layout"] = "striped"
    mesh = _mesh(*((1, 4) if which == "heads" else (2, 2)))
    try:
        fd.context_parallel_attention(**arrays, group=mesh, **options)
    except flashcore.Error as problem:
        return str(problem)
    return ""


def levels_disagree(group, name, value):
    """The last rank has another option; returns the errors. Then the mesh works again."""
    import flashcore
    import flashcore.distributed as fd

    rows = 4 + len(name) + len(str(value))  # new to all ranks
    mesh, arrays = _mesh(2, 2), ranks._small(rows)
    options = {"causal": True}
    if group.rank() == 3:
        options[name] = value
    found = ""
    try:
        fd.context_parallel_attention(**arrays, group=mesh, **options)
    except flashcore.InvalidArgumentError as problem:
        found = str(problem)
    fd.context_parallel_attention(**arrays, group=mesh, causal=True)
    return found
