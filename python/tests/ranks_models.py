"""What ranks do with models: test_distributed_models.py and test_transformers_families.py."""

import functools

import torch
import torch.distributed as dist
from ranks import mesh_of
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

import flashcore
import flashcore.distributed as fd

BATCH, ROWS, WIDTH, HEADS, HEAD_DIM = 2, 26, 32, 4, 16


def _model(attend):
    """Two blocks of attention with sinks and a linear layer; `attend` takes q, k, v and sinks."""

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(WIDTH, 3 * HEADS * HEAD_DIM)
            self.back = nn.Linear(HEADS * HEAD_DIM, WIDTH)
            self.sinks = nn.Parameter(torch.randn(HEADS))

        def forward(self, x):
            parts = self.qkv(x).unflatten(-1, (3, HEADS, HEAD_DIM)).permute(2, 0, 3, 1, 4)
            out = attend(*(part.contiguous() for part in parts), self.sinks)
            return x + self.back(out.transpose(1, 2).flatten(-2))

    torch.manual_seed(11)
    return nn.Sequential(Block(), Block())


def _tokens():
    return torch.randn(BATCH, ROWS, WIDTH, generator=torch.Generator().manual_seed(12))


def _loss(model, x):
    return model(x).square().sum()


def _wanted():
    """The gradients of one process."""
    model = _model(lambda q, k, v, sinks: flashcore.attention(q, k, v, causal=True, sinks=sinks))
    _loss(model, _tokens()).backward()
    return {name: p.grad for name, p in model.named_parameters()}


def _over(group, algorithm):
    return lambda q, k, v, sinks: fd.context_parallel_attention(
        q, k, v, group, causal=True, sinks=sinks, algorithm=algorithm, seqlen_q=ROWS
    )


def _check(found, wanted):
    for name, one in found.items():
        torch.testing.assert_close(one, wanted[name], atol=2e-4, rtol=1e-4, msg=name)


def fsdp(group, algorithm, recomputes):
    """Weights are sharded over all four ranks, the batch over two, and the rows over two."""
    mesh = mesh_of((2, 2), ("data", "context"))
    rows = mesh["context"]
    model = _model(_over(rows, algorithm))
    flat = init_device_mesh("cpu", (4,))
    for block in model:
        fully_shard(block, mesh=flat)
    fully_shard(model, mesh=flat)
    mine = _tokens()[mesh["data"].get_local_rank() :: 2]
    x = fd.shard(mine, rows, dim=1)
    run = functools.partial(checkpoint, model, use_reentrant=False) if recomputes else model
    _loss(run, x).backward()
    # FSDP takes the mean over four ranks; the loss is a sum.
    found = {name: 4 * p.grad.full_tensor() for name, p in model.named_parameters()}
    _check(found, _wanted())
    assert group.size() == 4
    assert torch.isfinite(found["0.sinks"]).all()


def compiled(group, algorithm):
    """The call is a break in the graph: the rest is compiled, and the gradients are the same."""
    model = _model(_over(group, algorithm))
    x = fd.shard(_tokens(), group, dim=1)
    wanted = _wanted()
    seen = []

    def backend(graph, inputs):
        seen.append(graph)
        return graph

    torch._dynamo.reset()
    _loss(torch.compile(model, backend=backend), x).backward()
    assert len(seen) >= 2
    found = {name: p.grad for name, p in model.named_parameters()}
    for one in found.values():
        dist.all_reduce(one, group=group)
    _check(found, wanted)


def checkpointed(group, algorithm, reentrant):
    """Activations are computed again in the backward pass: the same bits."""
    x = fd.shard(_tokens(), group, dim=1).requires_grad_()
    results = []
    for recomputes in (False, True):
        model = _model(_over(group, algorithm))
        run = functools.partial(checkpoint, model, use_reentrant=reentrant)
        _loss(run if recomputes else model, x).backward()
        results.append([x.grad, *(p.grad for p in model.parameters())])
        x.grad = None
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def trained(group, make, attention):
    """Losses of three steps of a model of transformers, sharded, with a part of the batch each."""
    from transformers_models import build, padded

    import flashcore.transformers

    flashcore.transformers.register()
    torch.manual_seed(3)
    model = build(make, "cpu", torch.float32, attention).train()
    tokens, mask = padded((40, 30, 40, 30), "right", "cpu")
    model.gradient_checkpointing_enable({"use_reentrant": False})
    if group.size() > 1:
        mesh = DeviceMesh.from_group(group, "cpu")
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    rows = 4 // group.size()
    part = slice(rows * group.rank(), rows * (group.rank() + 1))
    labels = tokens.masked_fill(mask == 0, -100)[part]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(tokens[part], attention_mask=mask[part], labels=labels).loss
        loss.backward()
        optimizer.step()
        mean = loss.detach() / group.size()
        dist.all_reduce(mean, group=group)
        losses.append(mean.item())
    return losses
