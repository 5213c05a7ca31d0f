"""Attention over several GPUs with PyTorch: context parallelism on a process group.

Each rank has a part of the rows of a sequence, and gets O of its queries over all keys. See
docs/distributed.md.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import torch

from ._attention import Window
from ._context import ALGORITHMS, LAYOUTS, ContextPlan, What, make_context_plan
from ._context_positions import make_positioned_plan
from ._errors import InvalidArgumentError, UnsupportedError
from ._options import flag, integer, real, window_of
from ._torch_context import ContextAttention, Job, gather, rows_at, select
from ._torch_context_arguments import (
    NAMED_ALIGNMENTS,
    agree,
    check_tensors,
    lengths_of,
    named,
    refuse,
    whole_lengths,
)
from ._torch_decode import cache_share, decode
from ._torch_extras import Extras, check_extras, described
from ._torch_group import Ranks, ranks_of
from ._torch_levels import levels_of, pieces_of, shares, two_levels
from .torch import of_mask, sdpa_replaced_by

__all__ = [
    "cache_share",
    "context_parallel_attention",
    "decode",
    "explain",
    "replace_sdpa",
    "shard",
    "unshard",
]

_uncompiled: Callable[[Any], Any] = torch.compiler.disable


@_uncompiled
def context_parallel_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    group: Any = None,
    *,
    causal: bool = False,
    softmax_scale: float | None = None,
    softcap: float = 0.0,
    bias: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
    window: Window | None = (-1, -1),
    alignment: str = "bottom_right",
    layout: str = "zigzag",
    algorithm: str = "automatic",
    seqlen_q: int | None = None,
    seqlen_kv: int | None = None,
    cu_seqlens_q: Any = None,
    cu_seqlens_kv: Any = None,
    return_lse: bool = False,
    deterministic: bool = True,
    link_bytes_per_second: float | None = None,
    flops_per_second: float | None = None,
    **unknown: NoReturn,
) -> Any:
    """Attention of this rank's queries over the keys of all ranks of a group.

    All ranks make the same calls in the same order, and the same backward passes. The result is
    that of `flashcore.attention` with the whole tensors, but for rounding. It has gradients.

    Arguments
        q: [B, Hq, rows, Dqk], or packed [rows, Hq, Dqk] with cu_seqlens_q: this rank's rows, as
            `shard` cuts them; float32, float16 or bfloat16.
        k, v: [B, Hkv, rows, D], or packed [rows, Hkv, D]; Hkv divides Hq.
        group: a process group, a DeviceMesh of one dimension, or None: all ranks. A DeviceMesh of
            two dimensions, (ring, heads), has two levels: the ranks along the second one exchange
            rows for heads, as in Ulysses, and those along the first one are a ring.
        causal, softmax_scale, softcap, window: as in `attention`.
        bias, mask: [B|1, Hq|1, rows|1, all keys|1]: this rank's queries, as `shard` cuts them, and
            all keys in the order of the whole tensor. Not with packed tensors, nor "ulysses".
        alibi_slopes, sinks: [Hq] (slopes also [B|1, Hq]), the same on all ranks. Gradients of these
            and of a bias are this rank's share, as those of a model's weights: their sum over the
            ranks is the whole gradient.
        alignment: "bottom_right" or "top_left", of each whole document.
        layout: "zigzag" (a rank has the pieces r and 2 * world - 1 - r of each document, so that
            causal work is equal), or "contiguous".
        algorithm: "ring", "all_gather", "ulysses", or "automatic": the lowest predicted time; see
            `explain`.
        seqlen_q, seqlen_kv: the whole lengths of a dense batch, where ranks have different numbers
            of rows. Default: `world` times this rank's rows; seqlen_kv: seqlen_q, if this rank has
            as many keys as queries.
        cu_seqlens_q, cu_seqlens_kv: the starts of whole documents and their end, as in `attention`,
            on the CPU or as a list; equal on all ranks. cu_seqlens_kv is cu_seqlens_q by default.
        return_lse: also return the LSE of the rank's queries.
        deterministic: the same bits in every run of as many ranks; False allows atomic sums in the
            gradients.
        link_bytes_per_second, flops_per_second: what "automatic" reckons with: bytes that a rank
            sends while it receives as many, and operations of a rank.

    Returns
        O of the rank's queries, with the shape of q but for Dv; with return_lse also their LSE,
        float32.

    Raises what `attention` raises, and on every rank
        InvalidArgumentError if ranks disagree about shapes, dtypes or options: it names the rank.
        DeviceError if a rank stopped, or did not answer within the timeout of the group.
    """
    if unknown:
        refuse(context_parallel_attention, unknown)
    check_tensors(q, k, v)
    dim = rows_at(q)
    if (cu_seqlens_q is not None) != (q.dim() == 3) or (cu_seqlens_kv is not None and dim == 2):
        raise InvalidArgumentError(
            "cu_seqlens_q: wanted it with packed tensors of 3 dimensions, and only then"
        )
    if cu_seqlens_kv is None:
        cu_seqlens_kv = cu_seqlens_q
    if seqlen_kv is None and k.shape[dim] == q.shape[dim]:
        seqlen_kv = seqlen_q
    levels = levels_of(group)
    world = ranks_of(group).world if levels is None else levels[0].world * levels[1].world
    seqlens_q = whole_lengths("seqlen_q", world, q.shape[dim], seqlen_q, cu_seqlens_q)
    seqlens_kv = whole_lengths("seqlen_kv", world, k.shape[dim], seqlen_kv, cu_seqlens_kv)
    extras = Extras(sinks, alibi_slopes, bias, mask)
    check_extras(extras, q, sum(seqlens_kv), is_packed=dim == 0)
    if levels is not None:
        sizes: dict[str, Any] = {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_kv": cu_seqlens_kv}
        if dim == 2:
            sizes = {"seqlen_q": seqlens_q[0], "seqlen_kv": seqlens_kv[0]}
        return two_levels(
            context_parallel_attention,
            levels,
            (q, k, v),
            extras,
            (seqlens_q, seqlens_kv),
            layout,
            {
                "causal": causal,
                "softmax_scale": softmax_scale,
                "softcap": softcap,
                "window": window,
                "alignment": alignment,
                "algorithm": algorithm,
                "return_lse": return_lse,
                "deterministic": deterministic,
                "link_bytes_per_second": link_bytes_per_second,
                "flops_per_second": flops_per_second,
                **sizes,
            },
        )
    ranks = ranks_of(group)
    left, right = window_of(window)
    options = {
        "softmax_scale": None if softmax_scale is None else real("softmax_scale", softmax_scale),
        "softcap": real("softcap", softcap),
    }
    rates = {"link_bytes_per_second": link_bytes_per_second, "flops_per_second": flops_per_second}
    settings: dict[str, Any] = {
        "causal": flag("causal", causal),
        "window": [left, right],
        "alignment": named("alignment", alignment, NAMED_ALIGNMENTS),
        "layout": layout,
        "algorithm": algorithm,
        "seqlens_q": seqlens_q,
        "seqlens_kv": seqlens_kv,
        "return_lse": flag("return_lse", return_lse),
        "deterministic": flag("deterministic", deterministic),
        "requires_grad": torch.is_grad_enabled()
        and any(x is not None and x.requires_grad for x in (q, k, v, *extras)),
        **described(extras),
        **options,
        **{name: None if x is None else real(name, x) for name, x in rates.items()},
    }
    layout_number = named("layout", layout, LAYOUTS)
    algorithm_number = named("algorithm", algorithm, ALGORITHMS)
    what = What(
        world=ranks.world,
        layout=layout_number,
        algorithm=algorithm_number,
        seqlens_q=seqlens_q,
        seqlens_kv=seqlens_kv,
        causal=settings["causal"],
        alignment=settings["alignment"],
        window_left=left,
        window_right=right,
        batch=q.shape[0] if dim == 2 else 1,
        heads_q=q.shape[1],
        heads_kv=k.shape[1],
        head_dim_qk=q.shape[-1],
        head_dim_v=v.shape[-1],
        element_bytes=q.element_size(),
        **rates,
    )
    plan = _plan_of(what, ranks.rank, extras)
    pieces = {"q": plan.pieces_q, "k": plan.pieces_kv}
    agree(ranks, {"q": q, "k": k, "v": v}, dim, settings, pieces)
    ranks.prepare(q.device)
    job = Job(ranks, plan, options, settings["deterministic"], settings["return_lse"], k.shape[1])
    out, lse = ContextAttention.apply(job, q, k, v, *extras)
    return (out, lse) if return_lse else out


def _plan_of(what: What, rank: int, extras: Extras) -> ContextPlan:
    if not extras.need_positions:
        return make_context_plan(what, rank)
    if extras.bias is not None or extras.mask is not None:
        if what.algorithm == ALGORITHMS["ulysses"]:
            raise UnsupportedError(
                "algorithm: is ulysses with a bias or a mask, wanted ring or all_gather, in which "
                "a rank has the queries that these have"
            )
        if what.algorithm == ALGORITHMS["automatic"]:
            seconds = make_context_plan(what, rank).seconds
            best = min(("ring", "all_gather"), key=lambda name: seconds[name])
            what = what._replace(algorithm=ALGORITHMS[best])
    return make_positioned_plan(what, rank)


@contextlib.contextmanager
def replace_sdpa(
    group: Any = None,
    *,
    layout: str = "zigzag",
    algorithm: str = "automatic",
    seqlen: int | None = None,
) -> Iterator[None]:
    """In this context, torch.nn.functional.scaled_dot_product_attention is over all ranks.

    Models run on this rank's rows, which `shard` cuts, positions included. seqlen is the whole
    length, as in `context_parallel_attention`. attn_mask has this rank's queries, or one row, and
    all keys. dropout_p is refused. The name is process-wide, as in `flashcore.torch.replace_sdpa`.
    """

    def attend(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        if dropout_p != 0:
            refuse(context_parallel_attention, {"dropout_p": dropout_p})
        if query.dim() != 4 or (key.shape[1] != query.shape[1] and not enable_gqa):
            raise InvalidArgumentError(
                f"query: shape is {[*query.shape]} and key's {[*key.shape]}, wanted 4 dimensions, "
                "and equal heads, or enable_gqa=True"
            )
        return context_parallel_attention(
            query,
            key,
            value,
            group,
            causal=is_causal,
            alignment="top_left",
            softmax_scale=scale,
            layout=layout,
            algorithm=algorithm,
            seqlen_q=seqlen,
            **of_mask(attn_mask),
        )

    with sdpa_replaced_by(lambda _: attend):
        yield


def explain(
    world: int,
    seqlens_q: int | Sequence[int],
    seqlens_kv: int | Sequence[int] | None = None,
    *,
    heads_q: int,
    heads_kv: int,
    head_dim: int,
    head_dim_v: int | None = None,
    batch: int = 1,
    dtype: torch.dtype = torch.bfloat16,
    causal: bool = False,
    window: Window | None = (-1, -1),
    alignment: str = "bottom_right",
    layout: str = "zigzag",
    algorithm: str = "automatic",
    link_bytes_per_second: float | None = None,
    flops_per_second: float | None = None,
) -> list[dict[str, Any]]:
    """What `context_parallel_attention` would do on `world` ranks. Needs no process group.

    Arguments
        seqlens_q, seqlens_kv: the whole length, or the lengths of whole documents.
        The others are those of `context_parallel_attention`, and the shapes of its tensors.

    Returns
        A dict for each algorithm: algorithm; seconds, predicted for the slowest rank in a forward
        pass (infinite: it is not possible); refusal (why it is not possible, or ""); steps, the
        most that a rank has; chosen.
    """
    lengths, lengths_kv = (
        (x,) if isinstance(x, int) else tuple(x)
        for x in (seqlens_q, seqlens_q if seqlens_kv is None else seqlens_kv)
    )
    left, right = window_of(window)
    what = What(
        world=integer("world", world, 1, 4096),
        layout=named("layout", layout, LAYOUTS),
        algorithm=named("algorithm", algorithm, ALGORITHMS),
        seqlens_q=lengths,
        seqlens_kv=lengths_kv,
        causal=flag("causal", causal),
        alignment=named("alignment", alignment, NAMED_ALIGNMENTS),
        window_left=left,
        window_right=right,
        batch=batch,
        heads_q=heads_q,
        heads_kv=heads_kv,
        head_dim_qk=head_dim,
        head_dim_v=head_dim if head_dim_v is None else head_dim_v,
        element_bytes=dtype.itemsize,
        link_bytes_per_second=link_bytes_per_second,
        flops_per_second=flops_per_second,
    )
    chosen = make_context_plan(what, 0)
    found = []
    for name, seconds in chosen.seconds.items():
        refusal, steps = "", 0
        try:
            steps = len(make_context_plan(what._replace(algorithm=ALGORITHMS[name]), 0).steps)
        except UnsupportedError as problem:
            refusal = str(problem)
        found.append(
            {
                "algorithm": name,
                "seconds": seconds,
                "refusal": refusal,
                "steps": steps,
                "chosen": name == chosen.algorithm,
            }
        )
    return found


def shard(
    x: torch.Tensor,
    group: Any = None,
    *,
    dim: int = 2,
    layout: str = "zigzag",
    cu_seqlens: Any = None,
) -> torch.Tensor:
    """This rank's rows of a whole tensor, which every rank has: a copy, with a gradient.

    Arguments
        dim: the dimension of the rows, such as 2 for [B, H, S, D], 1 for tokens [B, S], and 0 for
            packed tensors and positions.
        layout, cu_seqlens: as in `context_parallel_attention`.
    """
    lengths: tuple[int, ...] = (x.shape[dim],)
    if cu_seqlens is not None:
        lengths = lengths_of("cu_seqlens", cu_seqlens)
        if sum(lengths) != x.shape[dim]:
            raise InvalidArgumentError(
                f"cu_seqlens: ends at {sum(lengths)}, wanted the {x.shape[dim]} rows of x"
            )
    levels = levels_of(group)
    ranks = ranks_of(group) if levels is None else levels[0]
    x = select(x, dim, _pieces(ranks, lengths, layout)[ranks.rank])
    if levels is None:
        return x
    return select(x, dim, shares(levels, lengths, layout)[levels[1].rank])


def unshard(
    x: torch.Tensor,
    group: Any = None,
    *,
    dim: int = 2,
    layout: str = "zigzag",
    seqlen: int | None = None,
    cu_seqlens: Any = None,
) -> torch.Tensor:
    """The whole tensor, on every rank, of each rank's rows; the inverse of `shard`.

    seqlen is the whole length, by default `world` times this rank's rows. It has no gradient: x
    must not require one, so take x.detach().
    """
    if x.requires_grad and torch.is_grad_enabled():
        raise UnsupportedError("x: requires a gradient, wanted x.detach(): unshard has none")
    levels = levels_of(group)
    ranks = ranks_of(group) if levels is None else levels[0]
    world = ranks.world if levels is None else ranks.world * levels[1].world
    dim = dim % x.dim()
    lengths = whole_lengths("seqlen", world, x.shape[dim], seqlen, cu_seqlens)
    pieces = _pieces(ranks, lengths, layout)
    if levels is not None:
        x = _gathered(levels[1], x, dim, shares(levels, lengths, layout), layout)
    return _gathered(ranks, x, dim, pieces, layout)


def _gathered(ranks: Ranks, x: torch.Tensor, dim: int, pieces: Any, layout: str) -> torch.Tensor:
    rows = [[piece.begin for piece in of] for of in pieces]
    agree(ranks, {"x": x}, dim, {"unshard": dim, "layout": layout, "rows": rows}, {"x": pieces})
    ranks.prepare(x.device)
    return gather(ranks, (x,), dim, pieces)[0]


def _pieces(ranks: Ranks, lengths: tuple[int, ...], layout: str) -> Any:
    named("layout", layout, LAYOUTS)
    return pieces_of(ranks, lengths, layout)
