"""Decode over several ranks: a cache that is cut by its keys or by its sequences."""

import inspect
import math
from typing import Any, NamedTuple

import torch

from ._errors import ArgumentTypeError, InvalidArgumentError, UnsupportedError
from ._options import integer
from ._serving import decode as decode_here
from ._serving import merge
from ._torch_group import Ranks, ranks_of

_ARGUMENTS = set(inspect.signature(decode_here).parameters) - {"q", "k_cache", "v_cache", "unknown"}
# A rank has a part of O, so none of these can be what the caller means by it.
_NOT_HERE = {"out", "out_lse", "return_amax", "out_dtype", "o_scale", "q_scale"}
_NEW_ROWS = {"k_new", "v_new", "seqlens_new", "rope_cos", "rope_sin", "rope_base", "rope_scale"}
_NEW_ROWS |= {"rotary_dim", "interleaved"}


class _Part(NamedTuple):
    """The memory of a rank's O and LSE, which travel together."""

    shape: tuple[int, ...]  # of O
    dtype: torch.dtype

    def empty(self, device: torch.device) -> torch.Tensor:
        rows = math.prod(self.shape[:-1])
        size = _aligned(rows * self.shape[-1] * self.dtype.itemsize) + _aligned(4 * rows)
        return torch.empty(size, dtype=torch.uint8, device=device)

    def views(self, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns O and LSE in the memory; more dimensions of it come first."""
        lead, rows = memory.shape[:-1], math.prod(self.shape[:-1])
        size = rows * self.shape[-1] * self.dtype.itemsize
        o = memory[..., :size].view(self.dtype).view(*lead, *self.shape)
        lse = memory[..., _aligned(size) :][..., : 4 * rows].view(torch.float32)
        return o, lse.view(*lead, *self.shape[:-1])


def _aligned(size: int) -> int:
    return -(-size // 16) * 16


def _check(q: Any, group_cut: str, options: dict[str, Any]) -> None:
    for name in options:
        if name in _NEW_ROWS:
            raise UnsupportedError(
                f"{name}: is given, wanted flashcore.append on the rank that has the new rows, "
                "before this call"
            )
        if name in _NOT_HERE:
            raise UnsupportedError(f"{name}: is given, wanted it left out over several ranks")
        if name not in _ARGUMENTS:
            raise ArgumentTypeError(f"{name}: is no argument of decode")
    if not isinstance(q, torch.Tensor) or hasattr(q, "placements"):
        raise ArgumentTypeError(f"q: is a {type(q).__name__}, wanted a torch.Tensor")
    if group_cut not in ("keys", "sequences"):
        raise InvalidArgumentError(f"cut: is {group_cut!r}, wanted one of keys, sequences")
    if group_cut == "sequences":
        if q.dim() != 4:
            raise UnsupportedError(
                f"q: has {q.dim()} dimensions, wanted 4 where the cache is cut by its sequences"
            )
        return
    is_one = q.dim() == 4 and q.shape[2] == 1
    sees_all = options.get("causal", True) is False or is_one
    window = options.get("window")
    counts = options.get("alibi_slopes") is not None or tuple(window or (-1, -1)) != (-1, -1)
    if (counts or not sees_all) and options.get("alignment") != "given":
        raise InvalidArgumentError(
            "alignment: is not 'given', wanted it so, with causal_offsets, where the cache is cut "
            "by its keys and their positions count: see cache_share"
        )


def _described(q: torch.Tensor, v_cache: Any, cut: str, options: dict[str, Any]) -> dict[str, Any]:
    """Returns what ranks must agree on; sizes of their caches may differ."""
    same: dict[str, Any] = {"cut": cut, "q.shape": [*q.shape], "q.dtype": str(q.dtype)}
    same |= {"q.device": q.device.type, "v_cache.head_dim": v_cache.shape[-1]}
    for name in sorted(_ARGUMENTS):
        value = options.get(name)
        same[name] = "an array" if isinstance(value, torch.Tensor) else repr(value)
    return same


def decode(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    group: Any = None,
    *,
    cut: str = "keys",
    return_lse: bool = False,
    **options: Any,
) -> Any:
    """`flashcore.decode` over a cache that is cut over the ranks of a group.

    Each rank attends to its part of the cache. O and LSE of all parts travel in one all-gather.
    The result is the same on every rank, to the bit. It has no gradient, and can be captured in a
    CUDA graph after one call with the same shapes.

    Arguments
        q: the queries of all sequences, the same on all ranks, as for `flashcore.decode`.
        k_cache, v_cache: this rank's part, in one piece or in pages.
        cut: "keys": a rank has some keys of each sequence, and the parts are merged. "sequences": a
            rank has all keys of its sequences, of which there are B / world, rounded up, on all
            ranks but the last ones; their O is put together.
        options: those of `flashcore.decode`, about this rank's part: seqlens_kv, page_table and
            the others count its own rows. Where the keys are cut, and positions count (several
            causal queries, a window, ALiBi), this also holds for causal_offsets, which
            `cache_share` makes. Sinks are the same on all ranks.

    Returns
        O [B, Hq, Sq, Dv], or packed; with return_lse also the LSE.

    Raises what `flashcore.decode` raises, and on every rank the errors of
    `context_parallel_attention` where ranks disagree or stop.
    """
    options = {name: value for name, value in options.items() if value is not None}
    _check(q, cut, options)
    ranks = ranks_of(group)
    ranks.agree(_described(q, v_cache, cut, options), {}, {})
    ranks.prepare(q.device)
    with torch.no_grad():
        compute = _over_keys if cut == "keys" else _over_sequences
        out, lse = compute(ranks, q, k_cache, v_cache, options)
    return (out, lse) if return_lse else out


def _head_dim_v(v_cache: torch.Tensor, options: dict[str, Any]) -> int:
    return v_cache.shape[-2 if options.get("v_transposed") else -1]


def _over_keys(ranks: Ranks, q: Any, k_cache: Any, v_cache: Any, options: dict[str, Any]) -> Any:
    if ranks.rank != 0:  # one part has the sinks
        options.pop("sinks", None)
    part = _Part((*q.shape[:-1], _head_dim_v(v_cache, options)), q.dtype)
    memory = part.empty(q.device)
    o, lse = part.views(memory)
    decode_here(q, k_cache, v_cache, **options, return_lse=True, out=o, out_lse=lse)
    if ranks.world == 1:
        return o, lse
    every_o, every_lse = part.views(ranks.all_gather(memory))
    if ranks.world > 2:
        every_o = every_o.float()  # the sum is in fp32, and rounded once
    o, lse = merge(every_o[0], every_lse[0], every_o[1], every_lse[1])
    for rank in range(2, ranks.world):
        merge(o, lse, every_o[rank], every_lse[rank], out=o, out_lse=lse)
    return o.to(q.dtype), lse


def _over_sequences(
    ranks: Ranks, q: Any, k_cache: Any, v_cache: Any, options: dict[str, Any]
) -> Any:
    batch = q.shape[0]
    share = -(-batch // ranks.world)
    begin = min(ranks.rank * share, batch)
    count = min(share, batch - begin)
    part = _Part((share, *q.shape[1:-1], _head_dim_v(v_cache, options)), q.dtype)
    memory = part.empty(q.device)
    o, lse = part.views(memory)
    if count > 0:
        mine = q.narrow(0, begin, count)
        decode_here(
            mine, k_cache, v_cache, **options, return_lse=True, out=o[:count], out_lse=lse[:count]
        )
    every_o, every_lse = part.views(ranks.all_gather(memory))
    return every_o.flatten(0, 1)[:batch], every_lse.flatten(0, 1)[:batch]


def cache_share(
    seqlens_kv: torch.Tensor, rows: int, group: Any = None, *, queries: int = 1
) -> dict[str, Any]:
    """This rank's arguments of `decode`, where rank r has keys [r * rows, (r + 1) * rows).

    Arguments
        seqlens_kv: [B], int32: keys of each whole sequence, those of the queries included.
        rows: the keys of each sequence that a rank has room for.
        queries: the number of queries of each sequence, which are aligned with its last keys.

    Returns
        A dict of seqlens_kv, alignment and causal_offsets. They are computed on the tensor's
        device, so a captured CUDA graph can follow the lengths. A key that joins the sequences is
        appended with seqlens_new = seqlens_kv after it - seqlens_kv before it.
    """
    begin = ranks_of(group).rank * integer("rows", rows, 1, 2**31 - 1)
    return {
        "seqlens_kv": (seqlens_kv - begin).clamp(0, rows),
        "alignment": "given",
        "causal_offsets": seqlens_kv - (queries + begin),
    }
