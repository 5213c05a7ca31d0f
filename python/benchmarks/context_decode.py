"""Decode over the GPUs of this machine, with a cache that is cut by its keys: checks, then times.

    torchrun --standalone --nproc-per-node 2 python/benchmarks/context_decode.py [--out FILE]

bf16, head_dim 128, 32 heads over 8, one query. A step is a CUDA graph, whose replays follow lengths
in memory. Every result is first compared with one GPU's; wrong ones are not timed. A time is the
slowest rank's. With --device cpu it runs small shapes over gloo, without graphs.
"""

import argparse
import json
import os
import statistics
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

import flashcore
import flashcore.distributed as fd

HEADS, HEADS_KV, HEAD_DIM = 32, 8, 128


class Step:
    """A decode step; `run` computes it with the lengths that are in memory now."""

    def __init__(self, call: Callable[[], torch.Tensor], is_graph: bool):
        self.call, self.graph = call, None
        if is_graph:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(2):
                    call()
            torch.cuda.current_stream().wait_stream(stream)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = call()

    def run(self) -> torch.Tensor:
        if self.graph is None:
            return self.call()
        self.graph.replay()
        return self.out


def microseconds(device: str, step: Step, runs: int = 200) -> float:
    """The median of the slowest rank's time over batches of 10 steps."""
    if device == "cpu":
        return 0.0
    times = []
    for _ in range(runs // 10 + 2):
        dist.barrier()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(10):
            step.run()
        end.record()
        torch.cuda.synchronize()
        spent = torch.tensor([begin.elapsed_time(end) * 100], device=device)
        dist.all_reduce(spent, dist.ReduceOp.MAX)
        times.append(float(spent))
    return statistics.median(times[2:])


def case(device: str, batch: int, keys: int) -> dict[str, Any]:
    rank, world = dist.get_rank(), dist.get_world_size()
    generator = torch.Generator(device).manual_seed(batch)
    shapes = [(batch, HEADS, 1, HEAD_DIM), *[(batch, HEADS_KV, keys, HEAD_DIM)] * 2]
    q, k, v = (
        torch.randn(shape, device=device, generator=generator, dtype=torch.bfloat16)
        for shape in shapes
    )
    lengths = torch.full((batch,), keys, dtype=torch.int32, device=device)
    rows = -(-keys // world)
    mine = [x[:, :, rank * rows : (rank + 1) * rows].contiguous() for x in (k, v)]
    is_graph = device == "cuda"

    def over_ranks() -> torch.Tensor:
        return fd.decode(q, *mine, **fd.cache_share(lengths, rows))

    whole = Step(lambda: flashcore.decode(q, k, v, seqlens_kv=lengths), is_graph)
    parts = Step(over_ranks, is_graph)
    error = 0.0
    for length in (keys, rows - 3, 1, rows + 7):  # some leave ranks without a key
        lengths.fill_(min(length, keys))
        found, wanted = parts.run().double(), whole.run().double()
        error = max(error, float((found - wanted).norm() / wanted.norm()))
    lengths.fill_(keys)
    assert error < 1e-2, error
    return {
        "batch": batch,
        "keys": keys,
        "error": error,
        "one us": microseconds(device, whole),
        "ranks us": microseconds(device, parts),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    device = arguments.device
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "ranks": dist.get_world_size(),
        "torch": torch.__version__,
        "flashcore": flashcore.build_info(),
        "cases": [],
    }
    cases = [(1, 32768), (1, 131072), (8, 131072)] if device == "cuda" else [(2, 100)]
    for batch, keys in cases:
        found["cases"].append(case(device, batch, keys))
        if dist.get_rank() == 0:
            print(json.dumps(found["cases"][-1]), flush=True)
    if dist.get_rank() == 0 and arguments.out:
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
