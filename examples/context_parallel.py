"""One long sequence over several ranks: a training step of attention, compared with one process.

    python examples/context_parallel.py                 # starts two ranks on the CPU
    torchrun --standalone --nproc-per-node 4 examples/context_parallel.py      # one rank per GPU

Every rank has its part of the tokens, computes O of its queries over all keys, and the gradients of
its rows. Prints what each algorithm is predicted to take, and the largest difference.
"""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing

import flashcore
import flashcore.distributed as fd


def step(q, k, v, attend):
    """Returns O, and the gradients of a loss."""
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    out = attend(*leaves)
    out.float().square().sum().backward()
    return [out.detach(), *(x.grad for x in leaves)]


def run(arguments):
    rank, world = dist.get_rank(), dist.get_world_size()
    on_gpu = dist.get_backend() == "nccl"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    dtype = torch.bfloat16 if on_gpu else torch.float32
    torch.manual_seed(0)  # the same tokens on all ranks
    heads, heads_kv, head_dim = 8, 2, 64
    q, k, v = (
        torch.randn(1, n, arguments.tokens, head_dim).to(device, dtype)
        for n in (heads, heads_kv, heads_kv)
    )
    if rank == 0:
        shape = {"heads_q": heads, "heads_kv": heads_kv, "head_dim": head_dim}
        for one in fd.explain(world, arguments.tokens, **shape, dtype=dtype, causal=True):
            print(f"{one['algorithm']:10}  {one['seconds']:.1e} s  {one['refusal']}")

    shards = [fd.shard(x) for x in (q, k, v)]
    found = step(
        *shards,
        lambda *x: fd.context_parallel_attention(*x, causal=True, seqlen_q=arguments.tokens),
    )
    wanted = step(q, k, v, lambda *x: flashcore.attention(*x, causal=True))
    for name, mine, exact in zip(("O", "dQ", "dK", "dV"), found, wanted, strict=True):
        difference = (fd.unshard(mine, seqlen=arguments.tokens) - exact).abs().max()
        if rank == 0:
            print(f"{name}: largest difference {float(difference):.1e}")


def on_the_cpu(rank, store, arguments):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=arguments.ranks
    )
    run(arguments)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1001)
    parser.add_argument("--ranks", type=int, default=2, help="without torchrun")
    arguments = parser.parse_args()
    if "LOCAL_RANK" not in os.environ:
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(
                on_the_cpu, (f"{folder}/store", arguments), nprocs=arguments.ranks
            )
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    run(arguments)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
