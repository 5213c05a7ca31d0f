"""Attention over several GPUs with PyTorch: context parallelism on a process group.

Each rank has a part of the rows of a sequence, and gets O of its queries over all keys. See
docs/distributed.md.
"""

import contextlib
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import torch

from ._attention import Window, attention
from ._context import ALGORITHMS, LAYOUTS, ContextPlan, What, make_context_plan, rows_of
from ._errors import ArgumentTypeError, InvalidArgumentError, UnsupportedError
from ._options import ALIGNMENTS, flag, integer, real, refuse_unknown, window_of
from ._torch_context import ContextAttention, Job, gather, rows_at, select
from ._torch_group import Ranks, ranks_of
from .torch import sdpa_replaced_by

__all__ = ["context_parallel_attention", "explain", "replace_sdpa", "shard", "unshard"]

_uncompiled: Callable[[Any], Any] = torch.compiler.disable
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_ALIGNMENTS = {name: number for name, number in ALIGNMENTS.items() if name != "given"}
# What `attention` has and this does not.
_NOT_HERE = set(inspect.signature(attention).parameters) - {"q", "k", "v", "unknown"}


def _refuse(function: Any, unknown: dict[str, Any]) -> NoReturn:
    for name in unknown:
        if name in _NOT_HERE:
            raise UnsupportedError(
                f"{name}: is given, wanted it left out: attention over several ranks does not "
                "have it"
            )
    refuse_unknown(function, unknown)


def _named(argument: str, value: Any, of: dict[str, int]) -> int:
    if not isinstance(value, str) or value not in of:
        raise InvalidArgumentError(f"{argument}: is {value!r}, wanted one of {', '.join(of)}")
    return of[value]


def _lengths(argument: str, starts: Any) -> tuple[int, ...]:
    """Returns the lengths of documents from their cu_seqlens."""
    if isinstance(starts, torch.Tensor):
        if starts.device.type != "cpu":
            raise InvalidArgumentError(
                f"{argument}: is on {starts.device}, wanted it on the CPU: plans are made there"
            )
        starts = starts.tolist()
    numbers = [integer(argument, x, 0, 2**40) for x in starts]
    if len(numbers) < 2 or numbers[0] != 0 or sorted(numbers) != numbers:
        raise InvalidArgumentError(
            f"{argument}: wanted at least two numbers, the first 0, none smaller than the one "
            "before it"
        )
    return tuple(b - a for a, b in itertools.pairwise(numbers))


def _check_tensors(q: Any, k: Any, v: Any) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, torch.Tensor) or hasattr(x, "placements"):
            raise ArgumentTypeError(
                f"{name}: is a {type(x).__name__}, wanted a torch.Tensor: this rank's rows"
            )
        if x.dtype not in _FLOATS:
            raise UnsupportedError(
                f"{name}: dtype is {x.dtype}, wanted float32, float16 or bfloat16"
            )
        if x.dim() != q.dim() or x.dim() not in (3, 4):
            raise InvalidArgumentError(
                f"{name}: has {x.dim()} dimensions, wanted 4, or 3 with cu_seqlens_q, as q"
            )
        if (x.dtype, x.device) != (q.dtype, q.device):
            raise InvalidArgumentError(
                f"{name}: is {x.dtype} on {x.device}, wanted q's {q.dtype} on {q.device}"
            )
    dim = rows_at(q)
    if k.shape[dim] != v.shape[dim] or k.shape[1] != v.shape[1]:
        raise InvalidArgumentError(
            f"v: shape is {[*v.shape]}, wanted the heads and rows of k's {[*k.shape]}"
        )
    if k.shape[-1] != q.shape[-1] or (dim == 2 and not q.shape[0] == k.shape[0] == v.shape[0]):
        raise InvalidArgumentError(
            f"k: shape is {[*k.shape]}, wanted the sequences and head_dim of q's {[*q.shape]}"
        )
    if k.shape[1] < 1 or q.shape[1] % k.shape[1] != 0:
        raise InvalidArgumentError(
            f"k: has {k.shape[1]} heads, wanted a divisor of q's {q.shape[1]}"
        )


def _agree(
    ranks: Ranks,
    tensors: dict[str, torch.Tensor],
    dim: int,
    options: dict[str, Any],
    pieces: dict[str, Any],
) -> None:
    """Raises on all ranks if options or tensors differ, or if rows are not the shares of pieces."""
    same = dict(options)
    for name, x in tensors.items():
        same[f"{name}.dtype"] = str(x.dtype).removeprefix("torch.")
        same[f"{name}.device"] = x.device.type
        same[f"{name}.shape"] = [-1 if i == dim else n for i, n in enumerate(x.shape)]
    rows = {name: tensors[name].shape[dim] for name in pieces}
    ranks.agree(same, rows, {name: [*map(rows_of, of)] for name, of in pieces.items()})


def _whole_lengths(
    argument: str, ranks: Ranks, rows: int, seqlen: Any, starts: Any
) -> tuple[int, ...]:
    """Returns the lengths of whole documents: one in a dense batch."""
    if starts is not None:
        if seqlen is not None:
            raise InvalidArgumentError(f"{argument}: is given with cu_seqlens, wanted one of them")
        return _lengths(f"cu_{argument}".replace("seqlen", "seqlens"), starts)
    if seqlen is None:
        return (ranks.world * rows,)
    return (integer(argument, seqlen, 0, 2**40),)


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
        group: a process group, a DeviceMesh of one dimension, or None: all ranks.
        causal, softmax_scale, softcap, window: as in `attention`.
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
        _refuse(context_parallel_attention, unknown)
    _check_tensors(q, k, v)
    dim = rows_at(q)
    if (cu_seqlens_q is not None) != (q.dim() == 3) or (cu_seqlens_kv is not None and dim == 2):
        raise InvalidArgumentError(
            "cu_seqlens_q: wanted it with packed tensors of 3 dimensions, and only then"
        )
    ranks = ranks_of(group)
    if cu_seqlens_kv is None:
        cu_seqlens_kv = cu_seqlens_q
    if seqlen_kv is None and k.shape[dim] == q.shape[dim]:
        seqlen_kv = seqlen_q
    seqlens_q = _whole_lengths("seqlen_q", ranks, q.shape[dim], seqlen_q, cu_seqlens_q)
    seqlens_kv = _whole_lengths("seqlen_kv", ranks, k.shape[dim], seqlen_kv, cu_seqlens_kv)
    left, right = window_of(window)
    options = {
        "softmax_scale": None if softmax_scale is None else real("softmax_scale", softmax_scale),
        "softcap": real("softcap", softcap),
    }
    rates = {"link_bytes_per_second": link_bytes_per_second, "flops_per_second": flops_per_second}
    settings: dict[str, Any] = {
        "causal": flag("causal", causal),
        "window": [left, right],
        "alignment": _named("alignment", alignment, _ALIGNMENTS),
        "layout": layout,
        "algorithm": algorithm,
        "seqlens_q": seqlens_q,
        "seqlens_kv": seqlens_kv,
        "return_lse": flag("return_lse", return_lse),
        "deterministic": flag("deterministic", deterministic),
        "requires_grad": torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v)),
        **options,
        **{name: None if x is None else real(name, x) for name, x in rates.items()},
    }
    layout_number = _named("layout", layout, LAYOUTS)
    algorithm_number = _named("algorithm", algorithm, ALGORITHMS)
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
    plan = make_context_plan(what, ranks.rank)
    pieces = {"q": plan.pieces_q, "k": plan.pieces_kv}
    _agree(ranks, {"q": q, "k": k, "v": v}, dim, settings, pieces)
    ranks.prepare(q.device)
    job = Job(ranks, plan, options, settings["deterministic"], settings["return_lse"], k.shape[1])
    out, lse = ContextAttention.apply(job, q, k, v)
    return (out, lse) if return_lse else out


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
    length, as in `context_parallel_attention`. attn_mask and dropout_p are refused. The name is
    process-wide, as in `flashcore.torch.replace_sdpa`.
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
        if attn_mask is not None or dropout_p != 0:
            raise UnsupportedError(
                "attn_mask, dropout_p: are given, wanted neither: attention over several ranks "
                "does not have them"
            )
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
        layout=_named("layout", layout, LAYOUTS),
        algorithm=_named("algorithm", algorithm, ALGORITHMS),
        seqlens_q=lengths,
        seqlens_kv=lengths_kv,
        causal=flag("causal", causal),
        alignment=_named("alignment", alignment, _ALIGNMENTS),
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
    ranks = ranks_of(group)
    lengths = _whole_lengths("seqlen", ranks, 0, x.shape[dim], None)
    if cu_seqlens is not None:
        lengths = _lengths("cu_seqlens", cu_seqlens)
        if sum(lengths) != x.shape[dim]:
            raise InvalidArgumentError(
                f"cu_seqlens: ends at {sum(lengths)}, wanted the {x.shape[dim]} rows of x"
            )
    return select(x, dim, _pieces(ranks, lengths, layout)[ranks.rank])


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
    ranks = ranks_of(group)
    dim = dim % x.dim()
    lengths = _whole_lengths("seqlen", ranks, x.shape[dim], seqlen, cu_seqlens)
    pieces = _pieces(ranks, lengths, layout)
    options = {"unshard": dim, "layout": layout, "seqlens": lengths}
    _agree(ranks, {"x": x}, dim, options, {"x": pieces})
    ranks.prepare(x.device)
    return gather(ranks, (x,), dim, pieces)[0]


def _pieces(ranks: Ranks, lengths: tuple[int, ...], layout: str) -> Any:
    number = _named("layout", layout, LAYOUTS)
    plan: ContextPlan = make_context_plan(
        What(ranks.world, number, ALGORITHMS["all_gather"], lengths, lengths), ranks.rank
    )
    return plan.pieces_q
