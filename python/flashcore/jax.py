"""Attention over several devices with JAX: context parallelism inside `jax.shard_map`.

Each device has a part of the rows of a sequence, and gets O of its queries over all keys. See
docs/distributed.md.
"""

import functools
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ._attention import DEFAULTS, Window, attention
from ._errors import InvalidArgumentError, UnsupportedError
from ._jax_ffi import gradients
from ._options import flag, real, window_of

__all__ = ["context_parallel_attention", "shard_order", "unshard_order"]

_LAYOUTS = ("contiguous", "zigzag")
_ALGORITHMS = ("ring", "all_gather", "ulysses")


class _Setting(NamedTuple):
    """Everything that is known when a call is traced, the same on all devices."""

    axis: str
    world: int
    rows_q: int  # of a device
    rows_kv: int
    pieces: int  # of a device: 2 for a zigzag whose positions count
    causal: bool
    left: int
    right: int
    offset: int  # of the diagonal of the whole sequence
    has_positions: bool
    softmax_scale: float | None
    softcap: float
    deterministic: bool

    def number(self, rank: Any, piece: int) -> Any:
        """Returns the number of a device's piece among all, in their order."""
        return rank if piece == 0 else 2 * self.world - 1 - rank

    def begin(self, rank: Any, piece: int, rows: int) -> Any:
        return self.number(rank, piece) * (rows // self.pieces)

    def diagonal(self, rank: Any, owner: Any, q: int, kv: int) -> Any:
        begin = self.begin(rank, q, self.rows_q) - self.begin(owner, kv, self.rows_kv)
        return begin + self.offset

    def sees(self, rank: int, owner: int, q: int, kv: int) -> bool:
        diagonal = self.diagonal(rank, owner, q, kv)
        rows, keys = self.rows_q // self.pieces, self.rows_kv // self.pieces
        below = self.left < 0 or diagonal - self.left < keys
        return below and (self.right < 0 or rows - 1 + diagonal + self.right >= 0)

    @functools.lru_cache(maxsize=512)  # noqa: B019, a named tuple
    def pairs(self, distance: int) -> tuple[tuple[int, int], ...]:
        """Returns the pieces of queries and keys of which some device has pairs in this step."""
        found = itertools.product(range(self.pieces), repeat=2)
        return tuple(
            (q, kv)
            for q, kv in found
            if any(self.sees(r, (r - distance) % self.world, q, kv) for r in range(self.world))
        )

    def distances(self) -> list[int]:
        """Returns the steps of the ring: a block is that far from its owner."""
        return [d for d in range(self.world) if d == 0 or self.pairs(d)]


class _Extras(NamedTuple):
    bias: Any = None
    mask: Any = None
    alibi_slopes: Any = None


class _Part(NamedTuple):
    """A piece of queries and one of keys: where they lie, and what `attention` takes for them."""

    q: int
    kv: int
    keys: dict[str, Any]  # named arrays, without q, k and v
    first_key: Any

    def of_q(self, setting: _Setting, x: Any) -> Any:
        rows = setting.rows_q // setting.pieces
        return jax.lax.slice_in_dim(x, self.q * rows, (self.q + 1) * rows, axis=2)

    def of_kv(self, setting: _Setting, x: Any) -> Any:
        rows = setting.rows_kv // setting.pieces
        return jax.lax.slice_in_dim(x, self.kv * rows, (self.kv + 1) * rows, axis=2)


def _part(setting: _Setting, extras: _Extras, batch: int, owner: Any, q: int, kv: int) -> _Part:
    rank = jax.lax.axis_index(setting.axis)
    keys: dict[str, Any] = {}
    first_key = setting.begin(owner, kv, setting.rows_kv)
    if setting.has_positions:
        diagonal = jnp.asarray(setting.diagonal(rank, owner, q, kv), jnp.int32)
        keys["causal_offsets"] = jnp.broadcast_to(diagonal, (batch,))
    part = _Part(q, kv, keys, first_key)
    for name, x in extras._asdict().items():
        if x is not None:
            keys[name] = x if name == "alibi_slopes" else _cut(setting, part, x)
    return part


def _cut(setting: _Setting, part: _Part, x: Any) -> Any:
    """Returns the part of a bias or mask."""
    if x.shape[2] > 1:
        x = part.of_q(setting, x)
    if x.shape[3] > 1:
        rows = setting.rows_kv // setting.pieces
        x = jax.lax.dynamic_slice_in_dim(x, part.first_key, rows, axis=3)
    return x


def _add_to(setting: _Setting, part: _Part, total: Any, gradient: Any) -> Any:
    """Adds the gradient of the part that `_cut` returns."""
    start = [0, 0, 0, 0]
    if total.shape[2] > 1:
        start[2] = part.q * (setting.rows_q // setting.pieces)
    if total.shape[3] > 1:
        start[3] = part.first_key
    before = jax.lax.dynamic_slice(total, start, gradient.shape)
    return jax.lax.dynamic_update_slice(total, before + gradient, start)


def _options(setting: _Setting) -> dict[str, Any]:
    found = {
        "causal": setting.causal,
        "window": (setting.left, -1 if setting.causal else setting.right),
        "softmax_scale": setting.softmax_scale,
        "softcap": setting.softcap,
        "deterministic": setting.deterministic,
    }
    return found | {"alignment": "given"} if setting.has_positions else found


def _merge(one: tuple[Any, Any] | None, other: tuple[Any, Any]) -> tuple[Any, Any]:
    """Returns O, in fp32, and LSE over the keys of both; see docs/semantics.md."""
    if one is None:
        return other[0].astype(jnp.float32), other[1]
    total = jnp.logaddexp(one[1], other[1])
    found: Any = 0.0
    for o, lse in (one, other):
        is_nothing = jnp.isneginf(lse)
        weight = jnp.where(is_nothing, 0, jnp.exp(jnp.where(is_nothing, 0, lse - total)))
        found = found + weight[..., None] * o.astype(jnp.float32)
    return found, total


def _passed(setting: _Setting, x: Any, distance: int) -> Any:
    """Sends x to the device that is `distance` further."""
    world = setting.world
    return jax.lax.ppermute(x, setting.axis, [(r, (r + distance) % world) for r in range(world)])


def _steps(setting: _Setting, held: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yields K and V at hand, whose they are, and the next step's, or None in the last one."""
    rank = jax.lax.axis_index(setting.axis)
    distances = setting.distances()
    for distance, further in itertools.zip_longest(distances, distances[1:]):
        coming = None if further is None else _passed(setting, held, further - distance)
        yield held, distance, (rank - distance) % setting.world
        held = coming


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _ring(setting: _Setting, q: Any, k: Any, v: Any, extras: _Extras) -> tuple[Any, Any]:
    found: list[Any] = [None] * setting.pieces
    for (held_k, held_v), distance, owner in _steps(setting, (k, v)):
        for pair in setting.pairs(distance):
            part = _part(setting, extras, q.shape[0], owner, *pair)
            result = attention(
                part.of_q(setting, q),
                part.of_kv(setting, held_k),
                part.of_kv(setting, held_v),
                return_lse=True,
                **part.keys,
                **_options(setting),
            )
            found[part.q] = _merge(found[part.q], result)
    rows = setting.rows_q // setting.pieces
    shape = (*q.shape[:2], rows)
    for piece, one in enumerate(found):
        if one is None:
            found[piece] = jnp.zeros((*shape, v.shape[3])), jnp.full(shape, -jnp.inf)
    out, lse = (jnp.concatenate(x, axis=2) for x in zip(*found, strict=True))
    return out, lse


def _ring_forward(setting: _Setting, *arrays: Any) -> tuple[Any, Any]:
    out, lse = _ring(setting, *arrays)
    return (out, lse), (*arrays, out, lse)


def _ring_backward(setting: _Setting, saved: Any, cotangents: Any) -> tuple[Any, ...]:
    q, k, v, extras, out, lse = saved
    d_out, d_lse = cotangents
    rows = {"out": out.astype(q.dtype), "lse": lse, "d_out": d_out.astype(q.dtype), "d_lse": d_lse}
    asked = [f"d_{name}" for name in ("bias", "alibi_slopes") if getattr(extras, name) is not None]
    options = DEFAULTS._replace(**_options(setting))
    dq = jnp.zeros(q.shape, jnp.float32)
    of_extras = {name: jnp.zeros(getattr(extras, name[2:]).shape, jnp.float32) for name in asked}
    sums: Any = None  # of dK and dV; they travel with their block
    before = 0
    for (held_k, held_v), distance, owner in _steps(setting, (k, v)):
        mine = [jnp.zeros(x.shape, jnp.float32) for x in (held_k, held_v)]
        for pair in setting.pairs(distance):
            part = _part(setting, extras, q.shape[0], owner, *pair)
            given = {"q": part.of_q(setting, q)}
            given |= {"k": part.of_kv(setting, held_k), "v": part.of_kv(setting, held_v)}
            given |= part.keys | {name: part.of_q(setting, x) for name, x in rows.items()}
            found = gradients(given, options, asked)
            dq = _added(dq, found["q"], part.q, setting.pieces)
            mine = [
                _added(total, found[name], part.kv, setting.pieces)
                for total, name in zip(mine, "kv", strict=True)
            ]
            for name in asked:
                add = _add_to if name == "d_bias" else lambda *x: x[2] + x[3]
                of_extras[name] = add(setting, part, of_extras[name], found[name[2:]])
        if sums is not None:
            sums = _passed(setting, sums, distance - before)
            mine = [one + other for one, other in zip(mine, sums, strict=True)]
        sums, before = mine, distance
    if before > 0:
        sums = _passed(setting, sums, setting.world - before)
    dk, dv = (x.astype(of.dtype) for x, of in zip(sums, (k, v), strict=True))
    of_extras = {
        name[2:]: x.astype(getattr(extras, name[2:]).dtype) for name, x in of_extras.items()
    }
    return dq.astype(q.dtype), dk, dv, _Extras(**of_extras)


def _added(total: Any, gradient: Any, piece: int, pieces: int) -> Any:
    rows = total.shape[2] // pieces
    return total.at[:, :, piece * rows : (piece + 1) * rows].add(gradient.astype(total.dtype))


_ring.defvjp(_ring_forward, _ring_backward)


def _order(world: int, rows: int, layout: str) -> list[int]:
    """Returns, for each row in the order of the devices, its place in the whole sequence."""
    if layout == "contiguous":
        return [*range(rows)]
    if rows % (2 * world) != 0:
        raise UnsupportedError(
            f"x: has {rows} rows, wanted a multiple of {2 * world}, twice the devices: those of a "
            "zigzag have equal shares"
        )
    size = rows // (2 * world)
    numbers = [n for rank in range(world) for n in (rank, 2 * world - 1 - rank)]
    return [row for n in numbers for row in range(n * size, (n + 1) * size)]


def shard_order(x: Any, world: int, *, dim: int = 2, layout: str = "zigzag") -> Any:
    """The rows of a whole array in the order in which the devices have them, one after another.

    A sharding of `dim` over the devices then gives each its rows.
    """
    order = jnp.asarray(_order(world, x.shape[dim], _layout(layout)), jnp.int32)
    return jnp.take(x, order, axis=dim)


def unshard_order(x: Any, world: int, *, dim: int = 2, layout: str = "zigzag") -> Any:
    """The inverse of `shard_order`."""
    order = jnp.asarray(_order(world, x.shape[dim], _layout(layout)), jnp.int32)
    return jnp.take(x, jnp.argsort(order), axis=dim)


def _layout(layout: str) -> str:
    if layout not in _LAYOUTS:
        raise InvalidArgumentError(f"layout: is {layout!r}, wanted one of {', '.join(_LAYOUTS)}")
    return layout


def _gathered(setting: _Setting, x: Any) -> Any:
    """Returns all rows, in the order of the whole sequence."""
    whole = jax.lax.all_gather(x, setting.axis, axis=2, tiled=True)
    return whole if setting.pieces == 1 else unshard_order(whole, setting.world)


def _all_gather(setting: _Setting, q: Any, k: Any, v: Any, extras: _Extras) -> tuple[Any, Any]:
    k, v = _gathered(setting, k), _gathered(setting, v)
    rank = jax.lax.axis_index(setting.axis)
    rows = setting.rows_q // setting.pieces
    found = []
    for piece in range(setting.pieces):
        keys: dict[str, Any] = {}
        if setting.has_positions:
            begin = setting.begin(rank, piece, setting.rows_q)
            diagonal = jnp.asarray(begin + setting.offset, jnp.int32)
            keys["causal_offsets"] = jnp.broadcast_to(diagonal, (q.shape[0],))

        def mine(x: Any, piece: int = piece) -> Any:
            return x[:, :, piece * rows : (piece + 1) * rows]

        for name, x in extras._asdict().items():
            if x is not None:
                keys[name] = mine(x) if x.ndim == 4 and x.shape[2] > 1 else x
        found.append(attention(mine(q), k, v, return_lse=True, **keys, **_options(setting)))
    out, lse = (jnp.concatenate(x, axis=2) for x in zip(*found, strict=True))
    return out, lse


def _ulysses(setting: _Setting, q: Any, k: Any, v: Any, extras: _Extras, layout: str) -> Any:
    world, heads, heads_kv = setting.world, q.shape[1], k.shape[1]
    rank = jax.lax.axis_index(setting.axis)

    def to_heads(x: Any) -> Any:
        if x.shape[1] % world != 0:  # devices share a KV head
            x = jnp.repeat(x, world // x.shape[1], axis=1)
        x = jax.lax.all_to_all(x, setting.axis, split_axis=1, concat_axis=2, tiled=True)
        return unshard_order(x, world, layout=layout)

    if heads % world != 0 or (heads_kv % world != 0 and world % heads_kv != 0):
        raise UnsupportedError(
            f"algorithm: ulysses has {heads} query heads and {heads_kv} KV heads on {world} "
            "devices, wanted a multiple of the devices, and KV heads that are a multiple or a "
            "divisor of them"
        )
    if extras.bias is not None or extras.mask is not None:
        raise UnsupportedError(
            "algorithm: is ulysses with a bias or a mask, wanted ring or all_gather"
        )
    keys: dict[str, Any] = {}
    slopes = extras.alibi_slopes
    if slopes is not None:
        share = heads // world
        axis = slopes.ndim - 1
        keys["alibi_slopes"] = jax.lax.dynamic_slice_in_dim(slopes, rank * share, share, axis)
    options = _options(setting)
    if setting.has_positions:
        options |= {"causal_offset": setting.offset}
    out, lse = attention(to_heads(q), to_heads(k), to_heads(v), return_lse=True, **keys, **options)

    def to_rows(x: Any) -> Any:
        x = shard_order(x, world, layout=layout)
        return jax.lax.all_to_all(x, setting.axis, split_axis=2, concat_axis=1, tiled=True)

    return to_rows(out), to_rows(lse)


def _with_sinks(o: Any, lse: Any, sinks: Any) -> tuple[Any, Any]:
    """Merges a part whose O is 0 and whose LSE is the sink."""
    sink = jnp.broadcast_to(sinks[:, None], lse.shape)
    is_alone = jnp.isneginf(lse)  # the row sees no key
    keys = jnp.where(is_alone, 0, lse)
    total = jnp.logaddexp(keys, jnp.where(is_alone, 0, sink))
    total = jnp.where(jnp.isposinf(total), jnp.nan, total)
    weight = jnp.where(is_alone, 0, jnp.exp(keys - total))
    return o * weight[..., None], jnp.where(is_alone, sink, total)


def context_parallel_attention(
    q: Any,
    k: Any,
    v: Any,
    axis: str,
    *,
    causal: bool = False,
    softmax_scale: float | None = None,
    softcap: float = 0.0,
    bias: Any = None,
    mask: Any = None,
    alibi_slopes: Any = None,
    sinks: Any = None,
    window: Window | None = (-1, -1),
    alignment: str = "bottom_right",
    layout: str = "zigzag",
    algorithm: str = "ring",
    return_lse: bool = False,
    deterministic: bool = True,
) -> Any:
    """Attention of this device's queries over the keys of all devices of a mesh axis.

    Call it inside of `jax.shard_map(..., check_vma=False)`. It has gradients: K and V, and dK and
    dV, travel with `ppermute` in a ring, and no device has all of them.

    Arguments
        q: [B, Hq, rows, Dqk]: this device's rows, as `shard_order` has them; float32, float16 or
            bfloat16.
        k, v: [B, Hkv, rows, D]; Hkv divides Hq.
        axis: the name of the mesh axis.
        causal, softmax_scale, softcap, window: as in `flashcore.attention`.
        bias, mask: [B|1, Hq|1, rows|1, all keys|1]: this device's queries, and all keys in the
            order of the whole sequence. Not with "ulysses".
        alibi_slopes, sinks: [Hq], the same on all devices.
        alignment: "bottom_right" or "top_left", of the whole sequence.
        layout: "zigzag" (device r has the pieces r and 2 * devices - 1 - r, so that causal work is
            equal), or "contiguous".
        algorithm: "ring", "all_gather" or "ulysses".

    Returns
        O of the device's queries; with return_lse also their LSE, float32.
    """
    if algorithm not in _ALGORITHMS:
        raise InvalidArgumentError(
            f"algorithm: is {algorithm!r}, wanted one of {', '.join(_ALGORITHMS)}"
        )
    if alignment not in ("bottom_right", "top_left"):
        raise InvalidArgumentError(
            f"alignment: is {alignment!r}, wanted one of top_left, bottom_right"
        )
    if q.ndim != 4 or k.ndim != 4 or v.ndim != 4:
        raise InvalidArgumentError(
            f"q, k, v: have {q.ndim}, {k.ndim} and {v.ndim} dimensions, wanted 4"
        )
    world = jax.lax.axis_size(axis)
    left, right = window_of(window)
    extras = _Extras(bias, mask, alibi_slopes)
    has_positions = (
        flag("causal", causal) or (left, right) != (-1, -1) or any(x is not None for x in extras)
    )
    is_zigzag = _layout(layout) == "zigzag"
    rows_q, rows_kv = q.shape[2], k.shape[2]
    if is_zigzag and (rows_q % 2 != 0 or rows_kv % 2 != 0):
        raise UnsupportedError(
            f"q, k: have {rows_q} and {rows_kv} rows, wanted even numbers: a zigzag has two pieces"
        )
    setting = _Setting(
        axis=axis,
        world=world,
        rows_q=rows_q,
        rows_kv=rows_kv,
        pieces=2 if is_zigzag and has_positions else 1,
        causal=flag("causal", causal),
        left=left,
        right=0 if causal else right,
        offset=world * (rows_kv - rows_q) if alignment == "bottom_right" else 0,
        has_positions=has_positions,
        softmax_scale=None if softmax_scale is None else real("softmax_scale", softmax_scale),
        softcap=real("softcap", softcap),
        deterministic=flag("deterministic", deterministic),
    )
    if algorithm == "ring":
        out, lse = _ring(setting, q, k, v, extras)
    elif algorithm == "all_gather":
        out, lse = _all_gather(setting, q, k, v, extras)
    else:
        out, lse = _ulysses(setting, q, k, v, extras, layout)
    if sinks is not None:
        out, lse = _with_sinks(out, lse, sinks)
    out = out.astype(q.dtype)
    return (out, lse) if return_lse else out
