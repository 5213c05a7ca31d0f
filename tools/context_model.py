#!/usr/bin/env python3
"""Attention over many GPUs on paper: the time of a causal forward pass and the bytes between nodes, by algorithm.

    context_model.py [--tokens N] [--heads N] [--heads-kv N] [--head-dim N] [--near B/S] [--far B/S] [--flops N]

The formulas are those of docs/distributed.md, with two links: within a node of 8 GPUs, and between nodes. Launches and
latencies are not in the model.
"""
import argparse
import dataclasses
import math

NODE = 8  # GPUs
ALGORITHMS = ("ring", "all_gather", "ulysses", "two levels")


@dataclasses.dataclass(frozen=True)
class Setting:
    tokens: int = 2**20
    heads: int = 64
    heads_kv: int = 8
    head_dim: int = 128
    element_bytes: int = 2
    near: float = 167e9  # bytes per second of a GPU within a node; this and flops were measured on two H200
    far: float = 50e9    # between nodes: a 400 Gb/s InfiniBand port for each GPU, its nominal rate
    flops: float = 680e12

    def calls(self, world: int) -> float:
        """Seconds of all calls of a rank; a zigzag gives each an equal share."""
        pairs = self.tokens * (self.tokens + 1) / 2
        return 2 * pairs * 2 * self.head_dim * self.heads / self.flops / world

    def row(self, heads: float) -> float:
        """Bytes of two rows, of K and V or of Q and O."""
        return 2 * self.head_dim * self.element_bytes * heads


@dataclasses.dataclass(frozen=True)
class Time:
    seconds: float = math.inf
    far_bytes: float = 0  # that a GPU receives from other nodes


def ring(setting: Setting, world: int) -> Time:
    """All links are busy in each step, so the slowest one counts."""
    sent = setting.tokens / world * setting.row(setting.heads_kv)
    link = setting.near if world <= NODE else setting.far
    step = setting.calls(world) / world
    return Time((world - 1) * max(step, sent / link) + step, 0 if world <= NODE else (world - 1) * sent)


def _from_all(setting: Setting, world: int, each: float) -> Time:
    """`each` bytes from every other rank, from the node's own ones and then from the others."""
    near = (min(world, NODE) - 1) * each
    far = max(world - NODE, 0) * each
    return Time(near / setting.near + far / setting.far, far)


def all_gather(setting: Setting, world: int) -> Time:
    moved = _from_all(setting, world, setting.tokens / world * setting.row(setting.heads_kv))
    return Time(setting.calls(world) + moved.seconds, moved.far_bytes)


def _exchanged(setting: Setting, world: int) -> float:
    """Bytes that a rank gets from another one in Ulysses: Q and O, and K and V."""
    rows = setting.tokens / world
    return rows / world * setting.row(setting.heads) + rows * setting.row(max(setting.heads_kv // world, 1))


def _divides(setting: Setting, world: int) -> bool:
    return setting.heads % world == 0 and (setting.heads_kv % world == 0 or world % setting.heads_kv == 0)


def ulysses(setting: Setting, world: int) -> Time:
    if not _divides(setting, world):
        return Time()
    moved = _from_all(setting, world, _exchanged(setting, world))
    return Time(setting.calls(world) + moved.seconds, moved.far_bytes)


def two_levels(setting: Setting, world: int) -> Time:
    """Ulysses in the node, a ring of nodes."""
    if world <= NODE or world % NODE != 0 or not _divides(setting, NODE):
        return Time()
    # Rows of the whole node's heads: as Ulysses with the rows of one place in the ring.
    nodes = world // NODE
    of_node = dataclasses.replace(setting, tokens=setting.tokens // nodes)
    inside = (NODE - 1) * _exchanged(of_node, NODE) / setting.near
    sent = setting.tokens / nodes * setting.row(max(setting.heads_kv // NODE, 1))
    step = setting.calls(world) / nodes
    return Time(inside + (nodes - 1) * max(step, sent / setting.far) + step, (nodes - 1) * sent)


def times(setting: Setting, world: int) -> dict[str, Time]:
    return dict(zip(ALGORITHMS, (of(setting, world) for of in (ring, all_gather, ulysses, two_levels))))


def best(found: dict[str, Time]) -> str:
    """The shortest time; among equal ones the fewest bytes between nodes."""
    shortest = min(time.seconds for time in found.values())
    near_it = [name for name, time in found.items() if time.seconds <= 1.001 * shortest]
    return min(near_it, key=lambda name: found[name].far_bytes)


def efficiency(setting: Setting, world: int, time: Time) -> float:
    """The share of a time that is calls."""
    return setting.calls(world) / time.seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in dataclasses.fields(Setting):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)
    parser.add_argument("--worlds", type=int, nargs="+", default=[8, 16, 32, 64, 128, 256, 512, 1024])
    arguments = vars(parser.parse_args())
    worlds = arguments.pop("worlds")
    setting = Setting(**arguments)
    print("GPUs".rjust(6), "calls, ms".rjust(12), *(name.rjust(14) for name in ALGORITHMS), " best")
    for world in worlds:
        found = times(setting, world)
        shown = ("-" if math.isinf(time.seconds) else f"{1e3 * time.seconds:.2f} ms" for time in found.values())
        print(f"{world:6} {1e3 * setting.calls(world):12.2f}", *(text.rjust(14) for text in shown), "", best(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
