"""Traced JAX calls whose arrays are sharded: sequences and heads stay where they are.

Heads of a sequence are independent, so each device computes its own. Arrays that are sharded
otherwise (rows, channels, keys) are gathered, and gradients that sum over sequences or heads are
summed over the devices.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

from ._operands import OPERANDS


class _Array(NamedTuple):
    """An operand or a result: its shape, and the dimensions of sequences and heads."""

    name: str
    shape: tuple[int, ...]
    entries: int | None
    heads: int | None

    def spec(self, entries: Any, heads: Any) -> PartitionSpec:
        axes = [None] * len(self.shape)
        if self.entries is not None:
            axes[self.entries] = entries
        if self.heads is not None:
            axes[self.heads] = heads
        return PartitionSpec(*axes)


def _array(name: str, shape: Sequence[int], packed: bool) -> _Array:
    entries: int | None = None
    heads: int | None = None
    operand = OPERANDS[name]
    if operand.heads:
        heads = min(1, len(shape) - 1)  # a vector has one factor per head
    if operand.has_entries and heads != 0 and not (operand.heads and packed):
        entries = 0
    # A dimension of extent 1 is broadcast, so all devices have it.
    if entries is not None and shape[entries] == 1:
        entries = None
    if heads is not None and shape[heads] == 1:
        heads = None
    return _Array(name, tuple(shape), entries, heads)


class Call(NamedTuple):
    """The operands and results of a call; q is the first operand, k the second."""

    operands: tuple[_Array, ...]
    results: tuple[_Array, ...]

    @classmethod
    def of(cls, operands: dict[str, Sequence[int]], results: dict[str, Sequence[int]]) -> "Call":
        packed = "cu_seqlens_q" in operands

        def arrays(shapes: dict[str, Sequence[int]]) -> tuple[_Array, ...]:
            return tuple(_array(name, shape, packed) for name, shape in shapes.items())

        return cls(arrays(operands), arrays(results))

    def rule(self) -> tuple[str, dict[str, int]]:
        """Returns, for Shardy, which dimensions belong together, and the extent that splits one."""
        q, k = self.operands[:2]
        heads_kv = 1 if k.heads is None else k.shape[k.heads]
        group = (1 if q.heads is None else q.shape[q.heads]) // max(heads_kv, 1)
        split = heads_kv > 1 and group > 1
        # Mesh axes that do not divide the key heads would have to be split, which JAX cannot read.
        # Key heads then keep the sharding that they have.
        apart = split and heads_kv % jax.device_count() != 0

        def factors(place: str, array: _Array) -> str:
            names = [f"{place}_{d}" for d in range(len(array.shape))]
            if array.entries is not None:
                names[array.entries] = "b"
            if array.heads is not None:
                of_queries = "(h g)" if split and not apart else "h"
                of_keys = "k" if apart else "h"
                is_of_keys = OPERANDS[array.name].heads == "Hkv"
                names[array.heads] = of_keys if is_of_keys else of_queries
            return " ".join(names)

        sides = [
            ", ".join(factors(f"{side}{i}", array) for i, array in enumerate(arrays))
            for side, arrays in (("x", self.operands), ("y", self.results))
        ]
        return " -> ".join(sides), {"g": group} if split and not apart else {}

    def axes(self, mesh: Any, shardings: Sequence[Any]) -> tuple[Any, Any]:
        """Returns the mesh axes that shard sequences and heads of the operands, or None."""

        def of(what: str) -> Any:
            extents, found = [], None
            for array, sharding in zip(self.operands, shardings, strict=True):
                place = getattr(array, what)
                if place is None:
                    continue
                extents.append(array.shape[place])
                spec = sharding.spec if isinstance(sharding, NamedSharding) else ()
                if found is None and place < len(spec):
                    found = spec[place]
            count = math.prod(mesh.shape[name] for name in _names(found))
            return found if all(extent % count == 0 for extent in extents) else None

        entries, heads = of("entries"), of("heads")
        taken = {*_names(entries)} & {*_names(heads)}
        return entries, None if taken else heads

    def partition(
        self, compute: Callable[..., Any], mesh: Any, operands: Any, results: Any
    ) -> tuple[Any, ...]:
        """Returns, for JAX, one device's computation, and the shardings of operands and results."""
        shardings = [x.sharding for x in operands]
        if mesh.empty:  # the devices' order is unknown: replicate everything
            given = next(sharding for sharding in shardings if sharding is not None)
            whole = given.get_replicated(given._device_assignment)
            shapes = [array.shape for array in self.results]
            lie = (whole,) * len(self.results), (whole,) * len(self.operands)
            return mesh, functools.partial(compute, shapes), *lie
        entries, heads = self.axes(mesh, shardings)
        to_mesh = functools.partial(NamedSharding, mesh)
        of_results = tuple(to_mesh(array.spec(entries, heads)) for array in self.results)
        shapes = [
            sharding.shard_shape(array.shape)
            for sharding, array in zip(of_results, self.results, strict=True)
        ]

        def local(*arrays: Any) -> tuple[Any, ...]:
            found = []
            for array, value in zip(self.results, compute(shapes, *arrays), strict=True):
                missing = () if array.entries is not None else _names(entries)
                missing += () if array.heads is not None else _names(heads)
                found.append(jax.lax.psum(value, missing) if missing else value)
            return tuple(found)

        of_operands = tuple(to_mesh(array.spec(entries, heads)) for array in self.operands)
        return mesh, local, of_results, of_operands

    def inferred(self, mesh: Any, operands: Any, results: Any) -> tuple[Any, ...]:
        """Returns the shardings of the results, for JAX without Shardy."""
        found: tuple[Any, ...] = self.partition(lambda *_: (), mesh, operands, results)[2]
        return found


def _names(axes: Any) -> tuple[str, ...]:
    if axes is None:
        return ()
    return axes if isinstance(axes, tuple) else (axes,)


def in_shard_map() -> bool:
    """Returns whether the arrays are already a device's part."""
    mesh = getattr(jax.sharding, "get_abstract_mesh", lambda: None)()
    return bool(getattr(mesh, "manual_axes", ()))


def partitioned(
    operands: dict[str, Any], results: dict[str, Any], compute: Callable[..., Any]
) -> tuple[Any, ...]:
    """compute(shapes of the results, *operands), on the arrays or on each device's part of them."""
    call = Call.of(
        {name: x.shape for name, x in operands.items()},
        {name: x.shape for name, x in results.items()},
    )
    whole = custom_partitioning(functools.partial(compute, [array.shape for array in call.results]))
    rule, extents = call.rule()
    whole.def_partition(
        functools.partial(call.partition, compute),
        infer_sharding_from_operands=call.inferred,
        sharding_rule=rule,
        **extents,
    )
    return tuple(jax.custom_batching.sequential_vmap(lambda *x: whole(*x))(*operands.values()))
