"""Ring and Ulysses in two levels: a mesh of two dimensions, (ring, heads).

The ranks of a ring have the rows of its layout. Those that share a place in the ring cut its rows
evenly. Before a call they exchange rows for heads, and after it heads for rows.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ._context import ALGORITHMS, LAYOUTS, Piece, What, make_context_plan
from ._errors import InvalidArgumentError, UnsupportedError
from ._torch_context import rows_at, to_heads, to_rows
from ._torch_context_arguments import agree
from ._torch_extras import Extras, described
from ._torch_group import Ranks, ranks_of

Pieces = tuple[tuple[Piece, ...], ...]


def levels_of(group: Any) -> tuple[Ranks, Ranks] | None:
    """Returns the ranks of the ring and of the heads; None: the group has one level."""
    if getattr(group, "ndim", 1) != 2 or not hasattr(group, "get_group"):
        return None
    return ranks_of(group.get_group(0)), ranks_of(group.get_group(1))


def pieces_of(ranks: Ranks, lengths: tuple[int, ...], layout: str) -> Pieces:
    """Returns the pieces of each rank of a group."""
    number, algorithm = LAYOUTS[layout], ALGORITHMS["all_gather"]
    return make_context_plan(What(ranks.world, number, algorithm, lengths, lengths), 0).pieces_q


def shares(levels: tuple[Ranks, Ranks], lengths: tuple[int, ...], layout: str) -> Pieces:
    """Returns the rows that the ranks of the heads have, of those of their place in the ring."""
    ring, heads = levels
    rows = sum(piece.rows for piece in pieces_of(ring, lengths, layout)[ring.rank])
    return pieces_of(heads, (rows,), "contiguous")


class _ToHeads(torch.autograd.Function):
    """All rows of a place in the ring, and some heads."""

    @staticmethod
    def forward(ctx: Any, ranks: Ranks, pieces: Sequence[Pieces], *arrays: Any) -> Any:
        ctx.of = ranks, pieces, [(x.shape[1], x.dtype) for x in arrays]
        return to_heads(ranks, rows_at(arrays[0]), [*zip(arrays, pieces, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ranks, pieces, arrays = ctx.of
        back = []
        for x, of, (heads, _) in zip(gradients, pieces, arrays, strict=True):
            is_shared = heads % ranks.world != 0  # what ranks share is added up, in fp32
            back.append((x.float() if is_shared else x, of, heads))
        found = to_rows(ranks, rows_at(gradients[0]), back)
        like = (x.to(dtype) for x, (_, dtype) in zip(found, arrays, strict=True))
        return None, None, *like


class _ToRows(torch.autograd.Function):
    """All heads of this rank's rows."""

    @staticmethod
    def forward(ctx: Any, ranks: Ranks, pieces: Pieces, heads: int, *arrays: Any) -> Any:
        ctx.of = ranks, pieces
        back = [(x, pieces, heads) for x in arrays]
        return tuple(to_rows(ranks, rows_at(arrays[0]), back))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        ranks, pieces = ctx.of
        named = [(x, pieces) for x in gradients]
        return None, None, None, *to_heads(ranks, rows_at(gradients[0]), named)


def _check(world: int, q: Any, k: Any, extras: Extras) -> None:
    heads, heads_kv = q.shape[1], k.shape[1]
    if heads % world != 0 or (heads_kv % world != 0 and world % heads_kv != 0):
        raise UnsupportedError(
            f"group: has {world} ranks for {heads} query heads and {heads_kv} KV heads, wanted a "
            "divisor of the query heads, and KV heads that are a multiple or a divisor of it"
        )
    if extras.bias is not None or extras.mask is not None:
        raise UnsupportedError(
            "group: is a mesh of two dimensions, wanted one with a bias or a mask, in which a rank "
            "has the queries that these have"
        )


def _needs_gradient(*arrays: Any) -> bool:
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in arrays)


def _agree(
    levels: tuple[Ranks, Ranks],
    tensors: dict[str, torch.Tensor],
    dim: int,
    settings: dict[str, Any],
    pieces: dict[str, Any],
) -> None:
    """Raises on all ranks: those of one place compare first, and then the ring hears of it."""
    ring, heads = levels
    found: InvalidArgumentError | None = None
    try:
        agree(heads, tensors, dim, settings, pieces)
    except InvalidArgumentError as problem:
        found = problem
    name = "ranks of one place in the ring"
    try:
        ring.agree({"call": [settings], name: str(found or "agree")}, {}, {})
    except InvalidArgumentError:
        if found is None:
            raise
    if found is not None:
        raise found


def two_levels(
    attend: Callable[..., Any],
    levels: tuple[Ranks, Ranks],
    arrays: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    extras: Extras,
    lengths: tuple[tuple[int, ...], tuple[int, ...]],
    layout: str,
    options: dict[str, Any],
) -> Any:
    """Calls attend for the ring; options are those of its call, lengths of queries and keys."""
    ring, heads = levels
    q, k, v = arrays
    if layout not in LAYOUTS:
        raise InvalidArgumentError(f"layout: is {layout!r}, wanted one of {', '.join(LAYOUTS)}")
    _check(heads.world, q, k, extras)
    dim = rows_at(q)
    of_q, of_kv = (shares(levels, of, layout) for of in lengths)
    settings: dict[str, Any] = {
        "layout": layout,
        "seqlens_q": lengths[0],
        "seqlens_kv": lengths[1],
    }
    settings |= {name: x for name, x in options.items() if "seqlen" not in name}
    settings |= {"requires_grad": _needs_gradient(*arrays, *extras), **described(extras)}
    _agree(levels, {"q": q, "k": k, "v": v}, dim, settings, {"q": of_q, "k": of_kv})
    heads.prepare(q.device)
    wide = _ToHeads.apply(heads, (of_q, of_kv, of_kv), q, k, v)
    share = q.shape[1] // heads.world
    mine = extras.of_heads(heads.rank * share, share)
    found = attend(
        *wide,
        ring.group,
        layout=layout,
        sinks=mine.sinks,
        alibi_slopes=mine.alibi_slopes,
        **options,
    )
    results = found if isinstance(found, tuple) else (found,)
    back = _ToRows.apply(heads, of_q, q.shape[1], *results)
    return back if isinstance(found, tuple) else back[0]
