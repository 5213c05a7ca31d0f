"""Processes that are the ranks of a gloo group, kept over many tests, and what they do there."""

import datetime
import functools
import multiprocessing
import os
import pathlib
import tempfile
import time
import traceback

import gates
import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.utils.checkpoint import checkpoint

import flashcore
import flashcore.distributed as fd

HEADS, HEAD_DIMS = (4, 2), (32, 48)


def _serve(rank, world, store, timeout, pipe):
    torch.set_num_threads(1)
    limit = datetime.timedelta(seconds=timeout)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=world,
    )
    groups = {size: dist.new_group(range(size), timeout=limit) for size in range(1, world + 1)}
    while True:
        try:
            function, size, arguments = pipe.recv()
        except EOFError:
            os._exit(0)
        try:
            answer = function(groups[size], *arguments) if rank < size else None
            pipe.send((True, answer))
        except Exception as problem:
            pipe.send((False, f"{type(problem).__name__}: {problem}\n{traceback.format_exc()}"))


class Ranks:
    """`world` processes. `run` calls a function on the first ones, each with their group."""

    def __init__(self, world, timeout=20):
        self.world, self.timeout = world, timeout
        self._start()

    def _start(self):
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch", "flashcore.distributed", "ranks"])
        self.folder = tempfile.TemporaryDirectory()
        store = pathlib.Path(self.folder.name) / "store"
        self.pipes, self.processes = [], []
        for rank in range(self.world):
            here, there = context.Pipe()
            arguments = (rank, self.world, str(store), self.timeout, there)
            process = context.Process(target=_serve, args=arguments, daemon=True)
            process.start()
            there.close()
            self.pipes.append(here)
            self.processes.append(process)

    def answers(self, function, *arguments, world):
        """Returns (whether it succeeded, result or error) of each rank."""
        for pipe in self.pipes[:world]:
            pipe.send((function, world, arguments))
        found = []
        for pipe in self.pipes[:world]:
            try:
                found.append(pipe.recv() if pipe.poll(40) else (False, "no answer"))
            except EOFError:
                found.append((False, "ended"))
        return found

    def run(self, function, *arguments, world):
        found = self.answers(function, *arguments, world=world)
        if not all(
            is_good for is_good, _ in found
        ):  # others may still wait for the one that failed
            self.close()
            self._start()
        for rank, (is_good, answer) in enumerate(found):
            assert is_good, f"rank {rank}: {answer}"
        return [answer for _, answer in found]

    def close(self):
        for process in self.processes:
            process.kill()
        for pipe in self.pipes:
            pipe.close()
        self.folder.cleanup()


@functools.lru_cache(maxsize=8)
def _whole(lengths, lengths_kv, is_packed, dtype):
    """Whole q, k, v, dO and dLSE, the same on all ranks."""
    torch.manual_seed(sum(lengths) + sum(lengths_kv))
    (heads_q, heads_kv), (dim_qk, dim_v) = HEADS, HEAD_DIMS
    found = []
    for heads, dim, rows in (
        (heads_q, dim_qk, sum(lengths)),
        (heads_kv, dim_qk, sum(lengths_kv)),
        (heads_kv, dim_v, sum(lengths_kv)),
        (heads_q, dim_v, sum(lengths)),
        (heads_q, None, sum(lengths)),
    ):
        shape = (rows, heads) if is_packed else (2, heads, rows)
        x = torch.randn(*shape, *([] if dim is None else [dim]))
        found.append(x if dim is None else x.to(dtype))
    return found


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
def _extra(which, rows, keys):
    name, ones = EXTRAS[which]
    torch.manual_seed(len(which) + rows)
    heads = HEADS[0]
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


def _has_rows(name, x):
    return name in ("bias", "mask") and x.shape[2] > 1


@functools.lru_cache(maxsize=8)
def mesh_of(shape, names=None):
    found = init_device_mesh("cpu", shape, mesh_dim_names=names)
    assert dist.get_world_size() == found.size()
    return found


def _starts(lengths):
    return [0, *np.cumsum(lengths).tolist()]


def compare(
    group, lengths, lengths_kv, is_packed, layout, algorithm, options,
    which=(), mesh=None, dtype="float32",
):  # fmt: skip
    """Computes O, LSE and gradients over the group, and compares with fp64 on one rank.

    `which`: arrays of EXTRAS. With the shape of a mesh: in two levels.
    """
    everybody, group = group, group if mesh is None else mesh_of(mesh)
    whole = _whole(lengths, lengths_kv, is_packed, getattr(torch, dtype))
    rows, keys = sum(lengths), sum(lengths_kv)
    extras = dict(_extra(one, rows, keys) for one in which)
    cut = {"layout": layout, "dim": 0 if is_packed else 2}
    starts, starts_kv = (_starts(x) if is_packed else None for x in (lengths, lengths_kv))
    shards = [
        fd.shard(x, group, cu_seqlens=s, **cut)
        for x, s in zip(whole, (starts, starts_kv, starts_kv, starts, starts), strict=True)
    ]
    leaves = [x.clone().requires_grad_() for x in shards[:3]]
    mine = {
        name: fd.shard(x, group, layout=layout) if _has_rows(name, x) else x.clone()
        for name, x in extras.items()
    }
    learned = {name: mine[name].requires_grad_() for name in mine if name != "mask"}
    packed = {"cu_seqlens_q": starts, "cu_seqlens_kv": starts_kv} if is_packed else {}
    sizes = {} if is_packed else {"seqlen_q": rows, "seqlen_kv": keys}
    out, lse = fd.context_parallel_attention(
        *leaves, group, layout=layout, algorithm=algorithm, return_lse=True,
        **packed, **sizes, **options, **mine,
    )  # fmt: skip
    torch.autograd.backward([out, lse], shards[3:])
    results = [out.detach(), lse.detach(), *(x.grad for x in leaves)]
    for result, like in zip(results[2:], leaves, strict=True):
        assert result.dtype == like.dtype
    found = [
        fd.unshard(x, group, cu_seqlens=s, seqlen=None if is_packed else n, **cut)
        for x, s, n in zip(
            results,
            (starts, starts, starts, starts_kv, starts_kv),
            (rows, rows, rows, keys, keys),
            strict=True,
        )
    ]
    shares = {}
    for name, x in learned.items():
        if _has_rows(name, extras[name]):
            shares[name] = fd.unshard(x.grad, group, seqlen=rows, layout=layout)
        else:
            shares[name] = x.grad
            dist.all_reduce(x.grad, group=everybody)
    if everybody.rank() != 0:
        return None
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
    gates.check(found[0].double(), exact, dtype)
    gates.check_lse(found[1], exact_lse, dtype)
    for one, other in zip(found[2:], wanted[:3], strict=True):
        gates.check_gradient(one.double(), other, dtype)
    for name, one in shares.items():
        gates.check_gradient(one.double(), getattr(wanted, f"d_{name}"), dtype)
    return [x.float().numpy().tobytes() for x in found]


def small(rows=8):
    return {name: torch.randn(1, 2 if name != "q" else 4, rows, 32) for name in "qkv"}


def said(kind, call, *arrays, **options):
    """Returns what the error of this kind says, or "" if there is none."""
    try:
        call(*arrays, **options)
    except kind as problem:
        return str(problem)
    return ""


def attend(group, arrays, kind=flashcore.Error, **options):
    """Returns what the error of a call says."""
    return said(kind, fd.context_parallel_attention, **arrays, group=group, **options)


def disagree(group, spoiled, rows, name, value):
    """Calls with other arguments on one rank; returns the error. Then the group works again."""
    arrays, options = small(rows), {"causal": True}
    if group.rank() == spoiled:
        if name == "dtype":
            arrays = {n: x.to(getattr(torch, value)) for n, x in arrays.items()}
        elif name == "rows":
            arrays = small(value)
        elif name == "heads":
            arrays["q"] = arrays["q"][:, :value]
        else:
            options[name] = value
    found = attend(group, arrays, flashcore.InvalidArgumentError, **options)
    fd.context_parallel_attention(**small(rows), group=group, causal=True)
    return found


def share(group, rows, seqlen):
    """Returns the error of a call with equal rows on all ranks."""
    return attend(group, small(rows), flashcore.InvalidArgumentError, seqlen_q=seqlen)


def refused(group, options):
    """Returns the error of a call that is wrong on all ranks."""
    arrays = small()
    options = dict(options)
    spoil = options.pop("spoil", None)
    if spoil in ("heads", "kv"):
        arrays["q"] = arrays["q"][:, :3]
    if spoil == "heads":
        arrays |= {name: arrays[name][:, :1] for name in ("k", "v")}
    if spoil == "dtype":
        arrays["k"] = arrays["k"].half()
    if spoil == "rank":
        arrays["k"] = arrays["k"][0]
    if spoil == "double":
        arrays = {name: x.double() for name, x in arrays.items()}
    return attend(group, arrays, **options)


def helpers(group):
    """shard, unshard, a mesh, and activation checkpointing."""
    positions = torch.arange(32)
    mine = fd.shard(positions, group, dim=0)
    assert mine.tolist() == {0: [*range(6), *range(27, 32)]}.get(group.rank(), mine.tolist())
    assert fd.unshard(mine, group, dim=0, seqlen=32).tolist() == positions.tolist()
    whole = torch.randn(1, 4, 12, 8, requires_grad=True)
    fd.shard(whole, group).sum().backward()
    assert whole.grad.sum() == 4 * 4 * 8
    with pytest.raises(flashcore.UnsupportedError, match="wanted x.detach"):
        fd.unshard(whole, group)
    mesh = DeviceMesh.from_group(group, "cpu")
    arrays = [x.requires_grad_() for x in small().values()]
    out = fd.context_parallel_attention(*arrays, mesh, causal=True)
    wanted = torch.autograd.grad(out.sum(), arrays)
    again = checkpoint(
        lambda *x: fd.context_parallel_attention(*x, mesh, causal=True),
        *arrays,
        use_reentrant=False,
    )
    found = torch.autograd.grad(again.sum(), arrays)
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one, other)


def replaced(group):
    """A program's own calls of sdpa over the ranks, against the same calls in one process."""
    before = F.scaled_dot_product_attention
    torch.manual_seed(2)
    for options in ({"is_causal": True}, {"scale": 0.3}):
        for heads_kv in (4, 2):
            whole = [torch.randn(1, n, 21, 32) for n in (4, heads_kv, heads_kv)]
            options["enable_gqa"] = heads_kv == 2
            with fd.replace_sdpa(group, seqlen=21):
                out = F.scaled_dot_product_attention(
                    *(fd.shard(x, group) for x in whole), **options
                )
                with pytest.raises(flashcore.UnsupportedError, match="dropout_p"):
                    F.scaled_dot_product_attention(*whole, dropout_p=0.5)
            out = fd.unshard(out, group, seqlen=21)
            torch.testing.assert_close(out, before(*whole, **options), atol=2e-5, rtol=0)
    assert F.scaled_dot_product_attention is before


def go_apart(group, who):
    """One rank has a new shape where the others repeat theirs; returns the errors."""
    fd.context_parallel_attention(**small(), group=group, causal=True)
    arrays = small(9 if group.rank() == who else 8)
    return attend(group, arrays, flashcore.DeviceError, causal=True)


def stop(group, who):
    """One rank ends; returns the errors of the others."""
    fd.context_parallel_attention(**small(), group=group, causal=True)
    time.sleep(1.5)  # all hearts have been seen
    if group.rank() == who:
        os._exit(1)
    found = ""
    for _ in range(3):
        found = found or attend(group, small(), flashcore.DeviceError, causal=True)
    return found
