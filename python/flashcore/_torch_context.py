"""Carries out plans of context parallelism: the calls of attention, and what travels between them.

Everything takes dense tensors, [B, H, S, D], or packed ones, [total, H, D], and LSEs without D.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from ._attention import attention
from ._context import Call, ContextPlan, Piece, Step, rows_of
from ._gradients import attention_backward
from ._serving import merge
from ._torch_extras import Extras, by_head
from ._torch_group import Ranks

Tensors = tuple[torch.Tensor, ...]
Gradients = tuple[torch.Tensor, torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]


class Job(NamedTuple):
    """A call of `context_parallel_attention`, the same on all ranks but for its plan."""

    ranks: Ranks
    plan: ContextPlan
    options: dict[str, Any]  # of attention, but for the mask
    deterministic: bool
    return_lse: bool
    heads_kv: int  # of all ranks together, where they have different ones
    asked: tuple[str, ...] = ()  # extras whose gradients are needed


def rows_at(q: torch.Tensor) -> int:
    """Returns the dimension of the rows; heads are dimension 1."""
    return 2 if q.dim() == 4 else 0


@lru_cache(maxsize=1024)
def _keywords_of(call: Call, is_packed: bool, device: torch.device) -> dict[str, Any]:
    """Returns what `attention` and its gradients need for a call, besides tensors and options."""
    blocks, (left, right) = call.blocks, call.window
    has_diagonal = (left, right) != (-1, -1) or call.first_keys is not None
    found: dict[str, Any] = {"alignment": "given" if has_diagonal else "top_left"}
    if has_diagonal:
        found |= {"causal": right == 0, "window": (left, right if right > 0 else -1)}
    offsets = [block.offset for block in blocks]
    if not is_packed:
        if has_diagonal:
            (found["causal_offset"],) = offsets
        return found
    if has_diagonal:
        found["causal_offsets"] = _ints(offsets, device)
    for name, ends in (
        ("q", [(b.q_begin, b.q_end) for b in blocks]),
        ("kv", [(b.kv_begin, b.kv_end) for b in blocks]),
    ):
        first = ends[0][0]
        starts = [begin - first for begin, _ in ends] + [ends[-1][1] - first]
        lengths = [end - begin for begin, end in ends]
        slots = [b - a for a, b in itertools.pairwise(starts)]
        found[f"cu_seqlens_{name}"] = _ints(starts, device)
        found[f"max_seqlen_{name}"] = max(slots)
        if lengths != slots:
            found[f"seqlens_{name}"] = _ints(lengths, device)
    return found


def _ints(numbers: Sequence[int], device: torch.device) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32, device=device)


class _Local:
    """One call of the plan: its rows, and the keywords that `attention` needs for it."""

    def __init__(self, call: Call, q: torch.Tensor, extras: Extras):
        first, last = call.blocks[0], call.blocks[-1]
        self.dim = rows_at(q)
        self.q = (first.q_begin, last.q_end - first.q_begin)
        self.kv = (first.kv_begin, last.kv_end - first.kv_begin)
        self.keywords = _keywords_of(call, q.dim() == 3, q.device)
        self.first_key = None if call.first_keys is None else call.first_keys[0]
        arrays = extras.of_calls().items()
        self.extras: dict[str, Any] = {name: self.of_extra(x) for name, x in arrays}

    def of_q(self, x: torch.Tensor) -> torch.Tensor:
        return x.narrow(self.dim, *self.q)

    def of_kv(self, x: torch.Tensor) -> torch.Tensor:
        return x.narrow(self.dim, *self.kv)

    def of_extra(self, x: torch.Tensor) -> torch.Tensor:
        """Returns the part of a bias or mask; slopes stay as they are."""
        if x.dim() < 4:
            return x
        if x.shape[2] > 1:
            x = x.narrow(2, *self.q)
        if x.shape[3] > 1:
            assert self.first_key is not None
            x = x.narrow(3, self.first_key, self.kv[1])
        return x


class _Sum:
    """O and LSE over the keys so far."""

    def __init__(self, job: Job, extras: Extras, q: torch.Tensor, head_dim_v: int):
        self.job, self.extras, self.dtype = job, extras, q.dtype
        self.is_empty = not job.plan.initialise
        self.o = self.lse = None
        if job.plan.initialise or job.plan.calls == 0:
            shape = (*q.shape[:-1], head_dim_v)
            self.o = torch.zeros(shape, dtype=torch.float32, device=q.device)
            self.lse = torch.full(shape[:-1], -torch.inf, dtype=torch.float32, device=q.device)

    def add(self, call: Call, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        local = _Local(call, q, self.extras)
        o, lse = attention(
            local.of_q(q),
            local.of_kv(k),
            local.of_kv(v),
            **self.job.options,
            **local.keywords,
            **local.extras,
            return_lse=True,
        )
        if self.is_empty:
            self.o, self.lse, self.is_empty = o, lse, False
            return
        assert self.o is not None
        assert self.lse is not None
        self.o = self.o.float()  # sums are in fp32, and rounded once
        total_o, total_lse = local.of_q(self.o), local.of_q(self.lse)
        merge(total_o, total_lse, o.float(), lse, out=total_o, out_lse=total_lse)

    def result(self) -> tuple[torch.Tensor, torch.Tensor]:
        assert self.o is not None
        assert self.lse is not None
        if self.extras.sinks is not None:
            self.o, self.lse = self._with_sinks(self.o, self.lse, self.extras.sinks)
        return self.o.to(self.dtype), self.lse

    @staticmethod
    def _with_sinks(o: torch.Tensor, lse: torch.Tensor, sinks: torch.Tensor) -> Any:
        """Merges a part whose O is 0 and whose LSE is the sink."""
        nothing = o.new_zeros(o.shape[-1]).expand(o.shape)
        found = merge(o, lse, nothing, by_head(sinks, lse).expand(lse.shape))
        sees_nothing = (lse == -torch.inf).unsqueeze(-1)  # O is 0 even where the sink is NaN
        return found[0].masked_fill_(sees_nothing, 0), found[1]


class _Gradient:
    """What the backward pass of a call reads on this rank, and the sums of dQ and of the extras."""

    def __init__(self, job: Job, extras: Extras, saved: Sequence[Any], d_out: Any, d_lse: Any):
        self.job, self.extras = job, extras
        self.q, _, _, self.out, self.lse = saved
        self.d_out = d_out.contiguous()
        self.d_lse = None if d_lse is None else d_lse.contiguous()
        (self.dq,) = _zeros(self.q)
        arrays = extras.of_calls()
        self.sums = {name: _zeros(arrays[name])[0] for name in job.asked if name in arrays}

    def add(self, call: Call, k: torch.Tensor, v: torch.Tensor, dk: Any, dv: Any) -> None:
        """Adds to dQ, and to a dK and dV in fp32."""
        local = _Local(call, self.q, self.extras)
        asked: dict[str, Any] = {f"d_{name}": True for name in self.sums}
        found = attention_backward(
            local.of_q(self.d_out),
            local.of_q(self.q),
            local.of_kv(k),
            local.of_kv(v),
            local.of_q(self.out),
            local.of_q(self.lse),
            d_lse=None if self.d_lse is None else local.of_q(self.d_lse),
            **self.job.options,
            **local.keywords,
            **local.extras,
            **asked,
            deterministic=self.job.deterministic,
        )
        local.of_q(self.dq).add_(found.dq)
        local.of_kv(dk).add_(found.dk)
        local.of_kv(dv).add_(found.dv)
        for name, total in self.sums.items():
            local.of_extra(total).add_(getattr(found, f"d_{name}"))

    def of_extras(self) -> dict[str, torch.Tensor]:
        """Returns the gradients of the requested extras: this rank's share of the sums."""
        found = {name: x.to(getattr(self.extras, name).dtype) for name, x in self.sums.items()}
        if "sinks" in self.job.asked:
            found["sinks"] = self.extras.d_sinks(self.out, self.lse, self.d_out, self.d_lse)
        return found


def _with_rows(
    x: torch.Tensor, dim: int, rows: int, dtype: torch.dtype | None = None
) -> torch.Tensor:
    shape = list(x.shape)
    shape[dim] = rows
    return x.new_empty(shape, dtype=dtype)


def _zeros(*like: torch.Tensor) -> Tensors:
    return tuple(
        torch.zeros_like(x, dtype=torch.float32, memory_format=torch.contiguous_format)
        for x in like
    )


def _add(sums: Tensors, others: Tensors) -> None:
    for total, other in zip(sums, others, strict=True):
        total.add_(other)


# Ring


def _next_kv(job: Job, number: int, held: Tensors | None, own: Tensors) -> tuple[Any, Any]:
    """Starts to send K and V, and to receive the next step's. Returns the transfer and these."""
    step = job.plan.steps[number]
    sends = [(step.send_to, held), (step.send_own_to, own)]
    received = None
    if step.receive_from is not None:
        owner = job.plan.steps[number + 1].owner
        assert owner is not None
        rows = rows_of(job.plan.pieces_kv[owner])
        received = tuple(_with_rows(x, rows_at(x), rows) for x in own)
    transfer = job.ranks.exchange(
        [(rank, tensors) for rank, tensors in sends if rank is not None and tensors is not None],
        [] if received is None else [(step.receive_from, received)],  # type: ignore[list-item]
    )
    return transfer, received


def _ring(job: Job, extras: Extras, q: Any, k: Any, v: Any) -> tuple[Any, Any, Tensors]:
    own: Tensors = (k.contiguous(), v.contiguous())
    held: Tensors | None = own
    total = _Sum(job, extras, q, v.shape[-1])
    for number, step in enumerate(job.plan.steps):
        transfer, received = _next_kv(job, number, held, own)
        for call in step.calls:
            assert held is not None
            total.add(call, q, *held)
        transfer.wait()
        held = received
    out, lse = total.result()
    return out, lse, (q, k, v, out, lse)


def _ring_backward(job: Job, extras: Extras, saved: Any, d_out: Any, d_lse: Any) -> Gradients:
    q, k, v, *_ = saved
    own: Tensors = (k.contiguous(), v.contiguous())
    held: Tensors | None = own
    gradient = _Gradient(job, extras, saved, d_out, d_lse)
    mine = _zeros(*own)
    homes: list[Tensors] = []
    arriving: tuple[Any, Tensors | None] = (None, None)  # the sum that comes with the block
    for number, step in enumerate(job.plan.steps):
        transfer, received = _next_kv(job, number, held, own)
        sums: Tensors = mine
        if held is not None:
            sums = mine if number == 0 else _zeros(*held)
            for call in step.calls:
                gradient.add(call, *held, *sums)
        if arriving[0] is not None:
            arriving[0].wait()
            if arriving[1] is not None:
                _add(sums, arriving[1])
        arriving, home = _next_sums(job, step, number, sums, own)
        if home is not None:
            homes.append(home)
        transfer.wait()
        held = received
    if arriving[0] is not None:
        arriving[0].wait()
    for home in homes:
        _add(mine, home)
    dk, dv = (x.to(k.dtype) for x in mine)
    return gradient.dq.to(q.dtype), dk, dv, gradient.of_extras()


def _next_sums(
    job: Job, step: Step, number: int, sums: Tensors, own: Tensors
) -> tuple[tuple[Any, Tensors | None], Tensors | None]:
    """Starts to send the sum of dK and dV at hand, and to receive the next one and the own one."""
    receives, received, home = [], None, None
    if step.gradient_from is not None:
        owner = job.plan.steps[number + 1].owner
        assert owner is not None
        rows = rows_of(job.plan.pieces_kv[owner])
        received = tuple(_with_rows(x, rows_at(x), rows, torch.float32) for x in own)
        receives.append((step.gradient_from, received))
    if step.gradient_home_from is not None:
        home = tuple(torch.empty_like(x, dtype=torch.float32) for x in own)
        receives.append((step.gradient_home_from, home))
    sends = [] if step.gradient_to is None else [(step.gradient_to, sums)]
    return (job.ranks.exchange(sends, receives), received), home


# All rows of all ranks


def select(x: torch.Tensor, dim: int, pieces: Sequence[Piece]) -> torch.Tensor:
    """Returns a rank's rows of a whole tensor."""
    parts = [x.narrow(dim, piece.begin, piece.rows) for piece in pieces]
    return torch.cat(parts, dim) if parts else x.narrow(dim, 0, 0)


def _whole(
    shards: Sequence[torch.Tensor], dim: int, pieces: Sequence[Sequence[Piece]]
) -> torch.Tensor:
    whole = _with_rows(shards[0], dim, sum(map(rows_of, pieces)))
    for shard, of_rank in zip(shards, pieces, strict=True):
        for piece in of_rank:
            target = whole.narrow(dim, piece.begin, piece.rows)
            target.copy_(shard.narrow(dim, piece.place, piece.rows))
    return whole


def _all_to_all(ranks: Ranks, parts: Sequence[Tensors], found: Sequence[Tensors]) -> list[Tensors]:
    """Sends each rank its part, and returns what each rank sent, written to `found`."""
    others = [rank for rank in range(ranks.world) if rank != ranks.rank]
    sends = [(rank, [x.contiguous() for x in parts[rank]]) for rank in others]
    ranks.exchange(sends, [(rank, found[rank]) for rank in others]).wait()
    return [parts[r] if r == ranks.rank else found[r] for r in range(ranks.world)]


def gather(ranks: Ranks, tensors: Tensors, dim: int, pieces: Sequence[Sequence[Piece]]) -> Tensors:
    """Returns the whole tensors, from every rank's shards."""
    found = [tuple(_with_rows(x, dim, rows_of(one)) for x in tensors) for one in pieces]
    shards = _all_to_all(ranks, [tensors] * ranks.world, found)
    return tuple(_whole([one[i] for one in shards], dim, pieces) for i in range(len(tensors)))


def _all_gather(job: Job, extras: Extras, q: Any, k: Any, v: Any) -> tuple[Any, Any, Tensors]:
    whole = gather(job.ranks, (k, v), rows_at(q), job.plan.pieces_kv)
    total = _Sum(job, extras, q, v.shape[-1])
    for call in job.plan.steps[0].calls:
        total.add(call, q, *whole)
    out, lse = total.result()
    return out, lse, (q, k, v, out, lse)


def _all_gather_backward(job: Job, extras: Extras, saved: Any, d_out: Any, d_lse: Any) -> Gradients:
    q, k, v, *_ = saved
    ranks, dim, pieces = job.ranks, rows_at(q), job.plan.pieces_kv
    whole = gather(ranks, (k, v), dim, pieces)
    gradient = _Gradient(job, extras, saved, d_out, d_lse)
    sums = _zeros(*whole)
    for call in job.plan.steps[0].calls:
        gradient.add(call, *whole, *sums)
    parts = [tuple(select(x, dim, one) for x in sums) for one in pieces]
    found = [tuple(map(torch.empty_like, parts[ranks.rank])) for _ in pieces]
    mine = _zeros(k, v)
    for part in _all_to_all(ranks, parts, found):  # always in the order of the ranks
        _add(mine, part)
    dk, dv = (x.to(k.dtype) for x in mine)
    return gradient.dq.to(q.dtype), dk, dv, gradient.of_extras()


# Ulysses: all rows of some heads


def _heads_of(rank: int, world: int, heads: int) -> tuple[int, int]:
    """Returns a rank's first head and their number: ranks share one where there are fewer."""
    return rank * heads // world, max(heads // world, 1)


def to_heads(ranks: Ranks, dim: int, named: Sequence[tuple[torch.Tensor, Any]]) -> Tensors:
    """Returns all rows of this rank's heads; the tensors come with the pieces of their rows."""
    world = ranks.world
    parts = [
        tuple(x.narrow(1, *_heads_of(rank, world, x.shape[1])) for x, _ in named)
        for rank in range(world)
    ]
    own = parts[ranks.rank]
    found = [
        tuple(
            _with_rows(x, dim, rows_of(pieces[rank]))
            for x, (_, pieces) in zip(own, named, strict=True)
        )
        for rank in range(world)
    ]
    shards = _all_to_all(ranks, parts, found)
    return tuple(
        _whole([one[i] for one in shards], dim, pieces) for i, (_, pieces) in enumerate(named)
    )


def to_rows(
    ranks: Ranks, dim: int, named: Sequence[tuple[torch.Tensor, Any, int]]
) -> list[torch.Tensor]:
    """The other direction, with the number of heads in all. What ranks share is added up."""
    world = ranks.world
    parts = [tuple(select(x, dim, pieces[rank]) for x, pieces, _ in named) for rank in range(world)]
    found = [tuple(map(torch.empty_like, parts[ranks.rank])) for _ in range(world)]
    shards = _all_to_all(ranks, parts, found)
    results = []
    for i, (x, _, heads) in enumerate(named):
        if heads % world == 0:
            results.append(torch.cat([one[i] for one in shards], 1))
            continue
        shape = list(shards[0][i].shape)
        shape[1] = heads
        total = x.new_zeros(shape)
        for rank, one in enumerate(shards):
            total.narrow(1, *_heads_of(rank, world, heads)).add_(one[i])
        results.append(total)
    return results


def _ulysses(job: Job, extras: Extras, q: Any, k: Any, v: Any) -> tuple[Any, Any, Tensors]:
    dim, plan = rows_at(q), job.plan
    wide = to_heads(job.ranks, dim, [(q, plan.pieces_q), (k, plan.pieces_kv), (v, plan.pieces_kv)])
    of_heads = extras.of_heads(*_heads_of(job.ranks.rank, job.ranks.world, q.shape[1]))
    total = _Sum(job, of_heads, wide[0], v.shape[-1])
    for call in plan.steps[0].calls:
        total.add(call, *wide)
    found = total.result()
    back = [(x, plan.pieces_q, q.shape[1]) for x in found[: 2 if job.return_lse else 1]]
    out, *lse = to_rows(job.ranks, dim, back)
    return out, lse[0] if lse else q.new_empty(0, dtype=torch.float32), (*wide, *found)


def _ulysses_backward(job: Job, extras: Extras, saved: Any, d_out: Any, d_lse: Any) -> Gradients:
    q, k, v, *_ = saved
    dim, plan, world = rows_at(q), job.plan, job.ranks.world
    coming = [(d_out, plan.pieces_q)]
    if job.return_lse:  # on every rank, also where it is None
        zeros = d_out.new_zeros(d_out.shape[:-1], dtype=torch.float32)
        coming.append((zeros if d_lse is None else d_lse, plan.pieces_q))
    d_out, *rest = to_heads(job.ranks, dim, coming)
    heads_q, heads_kv = q.shape[1] * world, job.heads_kv
    heads = _heads_of(job.ranks.rank, world, heads_q)
    of_heads = extras.of_heads(*heads)
    gradient = _Gradient(job, of_heads, saved, d_out, rest[0] if rest else None)
    sums = _zeros(k, v)
    for call in plan.steps[0].calls:
        gradient.add(call, k, v, *sums)
    is_shared = heads_kv % world != 0
    dk, dv = (x if is_shared else x.to(k.dtype) for x in sums)
    back = [
        (gradient.dq.to(q.dtype), plan.pieces_q, heads_q),
        (dk, plan.pieces_kv, heads_kv),
        (dv, plan.pieces_kv, heads_kv),
    ]
    dq, dk, dv = to_rows(job.ranks, dim, back)
    spread = extras.spread(gradient.of_extras(), *heads)
    return dq, dk.to(k.dtype), dv.to(v.dtype), spread


_FORWARD = {"ring": _ring, "all_gather": _all_gather, "ulysses": _ulysses}
_BACKWARD = {
    "ring": _ring_backward,
    "all_gather": _all_gather_backward,
    "ulysses": _ulysses_backward,
}


_once_differentiable: Callable[[Any], Any] = torch.autograd.function.once_differentiable


class ContextAttention(torch.autograd.Function):
    """O and LSE of this rank's queries. The last arguments are the fields of Extras."""

    @staticmethod
    def forward(ctx: Any, job: Job, q: Any, k: Any, v: Any, *extras: Any) -> tuple[Any, Any]:
        asked = [
            name
            for name, is_needed in zip(Extras._fields, ctx.needs_input_grad[4:], strict=True)
            if is_needed
        ]
        ctx.job = job._replace(asked=tuple(asked))
        out, lse, saved = _FORWARD[job.plan.algorithm](job, Extras(*extras), q, k, v)
        ctx.save_for_backward(*saved, *extras)
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    @_once_differentiable
    def backward(ctx: Any, d_out: Any, d_lse: Any) -> tuple[Any, ...]:
        tensors = ctx.saved_tensors  # activation checkpointing lets it be read once
        saved, extras = tensors[:5], Extras(*tensors[5:])
        job: Job = ctx.job
        if d_out is None:
            d_out = torch.zeros_like(saved[3])
        algorithm = _BACKWARD[job.plan.algorithm]
        *gradients, of_extras = algorithm(job, extras, saved, d_out, d_lse)
        return None, *gradients, *(of_extras.get(name) for name in Extras._fields)
