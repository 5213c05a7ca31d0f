"""Attention over the GPUs of this machine: correctness, then times, beside PyTorch's own.

    torchrun --standalone --nproc-per-node 2 python/benchmarks/context_parallel.py [--out FILE]

bf16, causal, head_dim 128, 32 heads over 8. Every result is first compared with one GPU's, and two
runs with each other, bit for bit: wrong ones are not timed. A time is the slowest rank's. With
--device cpu it runs small shapes over gloo.
"""

import argparse
import contextlib
import functools
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import set_rotate_method
from torch.nn.attention import SDPBackend, sdpa_kernel

import flashcore
import flashcore.distributed as fd

HEADS, HEADS_KV, HEAD_DIM = 32, 8, 128
ALGORITHMS = ("ring", "all_gather", "ulysses")


def inputs(device: str, rows: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """q, k, v and dO, the same on all ranks."""
    generator = torch.Generator(device).manual_seed(rows)
    heads = (HEADS, HEADS_KV, HEADS_KV, HEADS)
    return [
        torch.randn(1, n, rows, HEAD_DIM, device=device, generator=generator, dtype=dtype)
        for n in heads
    ]


def forward_backward(
    call: Callable[..., torch.Tensor], q: Any, k: Any, v: Any, d_out: Any
) -> tuple[torch.Tensor, ...]:
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    out = call(*leaves)
    return out.detach(), *torch.autograd.grad(out, leaves, d_out)


def flashcore_call(algorithm: str, **options: Any) -> Callable[..., torch.Tensor]:
    return lambda q, k, v: fd.context_parallel_attention(
        q, k, v, causal=True, algorithm=algorithm, **options
    )


def one_device(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **extras: torch.Tensor
) -> torch.Tensor:
    return flashcore.attention(q, k, v, causal=True, **extras)


def check(device: str, rows: int, dtype: torch.dtype) -> list[dict[str, Any]]:
    whole = inputs(device, rows, dtype)
    wanted = forward_backward(one_device, *whole)
    found = []
    for layout in ("zigzag", "contiguous"):
        mine = [fd.shard(x, layout=layout) for x in whole]
        for algorithm in ALGORITHMS:
            call = flashcore_call(algorithm, layout=layout)
            first, second = forward_backward(call, *mine), forward_backward(call, *mine)
            errors = {}
            for name, x, exact in zip(("o", "dq", "dk", "dv"), first, wanted, strict=True):
                x = fd.unshard(x, layout=layout).double()
                errors[name] = float((x - exact.double()).norm() / exact.double().norm())
            is_same = all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
            is_right = max(errors.values()) < 1.5e-2
            found.append(
                {"layout": layout, "algorithm": algorithm, "errors": errors, "same bits": is_same}
            )
            assert is_same, found[-1]
            assert is_right, found[-1]
    return found


def extras_of(device: str, rows: int) -> dict[str, dict[str, torch.Tensor]]:
    """Optional arrays, whole, by the name of their case."""
    generator = torch.Generator(device).manual_seed(3)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=device, generator=generator)

    return {
        "sinks": {"sinks": draw(HEADS)},
        "slopes": {"alibi_slopes": draw(HEADS).abs() / 50},
        "bias": {"bias": draw(1, HEADS, 1, rows)},
        "mask": {"mask": draw(1, 1, rows, rows) > -1},
    }


def check_options(device: str, rows: int, dtype: torch.dtype) -> list[dict[str, Any]]:
    """Optional arrays in a ring, and both levels, against one device."""
    whole, world = inputs(device, rows, dtype), dist.get_world_size()
    cases: list[tuple[str, Any, dict[str, torch.Tensor]]] = [
        (name, None, extras) for name, extras in extras_of(device, rows).items()
    ]
    meshes = [init_device_mesh(device, shape) for shape in ((1, world), (world, 1))]
    cases += [(f"levels {[*mesh.shape]}", mesh, {}) for mesh in meshes]
    found = []
    for name, mesh, extras in cases:
        options = {
            one: fd.shard(x) if x.dim() == 4 and x.shape[2] > 1 else x for one, x in extras.items()
        }
        call = flashcore_call("ring", group=mesh, **options)
        results = forward_backward(call, *(fd.shard(x, mesh) for x in whole))
        wanted = forward_backward(functools.partial(one_device, **extras), *whole)
        errors = {}
        for one, x, exact in zip(("o", "dq", "dk", "dv"), results, wanted, strict=True):
            x = fd.unshard(x, mesh).double()
            errors[one] = float((x - exact.double()).norm() / exact.double().norm())
        found.append({"case": name, "errors": errors})
        assert max(errors.values()) < 1.5e-2, found[-1]
    return found


def milliseconds(device: str, call: Callable[[], Any], runs: int) -> float:
    """The median over runs of the slowest rank's time; the first runs do not count."""
    times = []
    for run in range(runs + 2):
        dist.barrier()
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        spent = torch.tensor([time.perf_counter() - begin], device=device)
        dist.all_reduce(spent, dist.ReduceOp.MAX)
        if run >= 2:
            times.append(1e3 * float(spent))
    return statistics.median(times)


def both_times(device: str, call: Any, arrays: list[torch.Tensor], runs: int) -> dict[str, float]:
    with torch.no_grad():
        forward = milliseconds(device, lambda: call(*arrays[:3]), runs)
    both = milliseconds(device, lambda: forward_backward(call, *arrays), runs)
    return {"forward ms": forward, "forward and backward ms": both}


@contextlib.contextmanager
def in_torch(mesh: DeviceMesh, arrays: list[torch.Tensor], rotate: str) -> Iterator[None]:
    """PyTorch's context parallel: shards the arrays in place."""
    set_rotate_method(rotate)
    backends = [SDPBackend.FLASH_ATTENTION]
    with (
        sdpa_kernel(backends),
        context_parallel(mesh, buffers=arrays, buffer_seq_dims=[2] * len(arrays)),
    ):
        yield


def torch_times(
    mesh: DeviceMesh, device: str, whole: list[torch.Tensor], rotate: str, runs: int
) -> dict[str, Any]:
    def call(q: Any, k: Any, v: Any) -> torch.Tensor:
        grouped = k.shape[1] != q.shape[1]
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)

    problem = ""
    for expanded in (False, True):
        copies = [x.clone() for x in whole]
        if expanded:
            copies[1:3] = [x.repeat_interleave(HEADS // HEADS_KV, 1) for x in copies[1:3]]
        try:
            with in_torch(mesh, copies, rotate):
                times = both_times(device, call, copies, runs)
            return {**times, "KV heads": copies[1].shape[1]}
        except Exception as one:
            problem = f"{type(one).__name__}: {str(one).splitlines()[0]}"
    return {"error": problem}


def link_rate(device: str) -> float:
    """Bytes per second that a rank sends to the next one while it receives as many."""
    x = torch.zeros(2**26 if device == "cuda" else 2**20, dtype=torch.uint8, device=device)
    ranks = fd.ranks_of(None)
    ranks.prepare(x.device)
    right, left = (ranks.rank + 1) % ranks.world, (ranks.rank - 1) % ranks.world
    y = torch.empty_like(x)
    spent = milliseconds(device, lambda: ranks.exchange([(right, [x])], [(left, [y])]).wait(), 10)
    return x.numel() / (spent / 1e3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--out")
    parser.add_argument("--rows", type=int, nargs="+")
    parser.add_argument(
        "--options", action="store_true", help="also compare sinks, slopes, biases, masks, levels"
    )
    arguments = parser.parse_args()
    device = arguments.device
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    world, rank = dist.get_world_size(), dist.get_rank()
    mesh = init_device_mesh(device, (world,))
    dtype = torch.bfloat16
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "ranks": world,
        "torch": torch.__version__,
        "flashcore": flashcore.build_info(),
        "checks": check(device, 4096 if device == "cuda" else 256, dtype),
        "options": [],
        "times": [],
    }

    def report() -> None:
        if rank == 0 and arguments.out:
            with open(arguments.out, "w", encoding="utf-8") as file:
                json.dump(found, file, indent=1)

    if arguments.options:
        found["options"] = check_options(device, 2048 if device == "cuda" else 256, dtype)
    report()
    found["link bytes/s"] = link_rate(device)
    for rows in arguments.rows or ((8192, 32768, 131072) if device == "cuda" else (256,)):
        runs = 5 if rows > 50000 else 10
        whole = inputs(device, rows, dtype)
        mine = [fd.shard(x) for x in whole]
        row: dict[str, Any] = {"rows": rows, "one": both_times(device, one_device, whole, runs)}
        for algorithm in ALGORITHMS:
            row[algorithm] = both_times(device, flashcore_call(algorithm), mine, runs)
        for rotate in ("allgather", "alltoall"):
            row[f"torch {rotate}"] = torch_times(mesh, device, whole, rotate, runs)
        shape = {"heads_q": HEADS, "heads_kv": HEADS_KV, "head_dim": HEAD_DIM, "causal": True}
        row["predicted s"] = {
            x["algorithm"]: x["seconds"] for x in fd.explain(world, rows, **shape)
        }
        found["times"].append(row)
        if rank == 0:
            print(json.dumps(row), flush=True)
        report()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
