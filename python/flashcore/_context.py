"""Plans of context parallelism: what a rank computes, sends and receives (context_parallel.hpp)."""

from collections.abc import Sequence
from ctypes import POINTER, addressof, byref, c_int64, c_void_p, cast
from functools import lru_cache
from typing import Any, NamedTuple

from ._library import (
    ContextCall,
    ContextInfo,
    ContextProblem,
    ContextStep,
    check,
    library,
    sized,
    with_defaults,
)

LAYOUTS = {"contiguous": 0, "zigzag": 1}
ALGORITHMS = {"automatic": 0, "ring": 1, "all_gather": 2, "ulysses": 3}
_NAMES = {number: name for name, number in ALGORITHMS.items()}


class What(NamedTuple):
    """The problem of all ranks, with the names and meanings of the C struct."""

    world: int
    layout: int
    algorithm: int
    seqlens_q: tuple[int, ...]
    seqlens_kv: tuple[int, ...]
    causal: bool = False
    alignment: int = 1
    window_left: int = -1
    window_right: int = -1
    batch: int = 1
    heads_q: int = 1
    heads_kv: int = 1
    head_dim_qk: int = 128
    head_dim_v: int = 128
    element_bytes: int = 2
    link_bytes_per_second: float | None = None
    flops_per_second: float | None = None


class Piece(NamedTuple):
    """Rows [begin, begin + rows) of the whole are rows [place, place + rows) of a rank's shard."""

    rank: int
    begin: int
    place: int
    rows: int


class Block(NamedTuple):
    q_begin: int
    q_end: int
    kv_begin: int
    kv_end: int
    offset: int


class Call(NamedTuple):
    window: tuple[int, int]
    blocks: tuple[Block, ...]
    # The position of each block's first key, where positions count: see _context_positions.py.
    first_keys: tuple[int, ...] | None = None


class Step(NamedTuple):
    """Ranks, None where there is none."""

    owner: int | None
    send_to: int | None
    send_own_to: int | None
    receive_from: int | None
    gradient_to: int | None
    gradient_from: int | None
    gradient_home_from: int | None
    calls: tuple[Call, ...]


class ContextPlan(NamedTuple):
    algorithm: str
    initialise: bool
    rows_q: int
    rows_kv: int
    pieces_q: tuple[tuple[Piece, ...], ...]  # of each rank
    pieces_kv: tuple[tuple[Piece, ...], ...]
    steps: tuple[Step, ...]
    seconds: dict[str, float]  # predicted, of each algorithm

    @property
    def calls(self) -> int:
        return sum(len(step.calls) for step in self.steps)


def rows_of(pieces: Sequence[Piece]) -> int:
    return sum(piece.rows for piece in pieces)


def _numbers(address: Any, count: int, width: int) -> list[tuple[int, ...]]:
    if count == 0:
        return []
    flat = cast(address, POINTER(c_int64))[: count * width]
    return [tuple(flat[i : i + width]) for i in range(0, len(flat), width)]


def _pieces(address: Any, count: int, world: int) -> tuple[tuple[Piece, ...], ...]:
    found: list[list[Piece]] = [[] for _ in range(world)]
    for numbers in _numbers(address, count, 4):
        found[numbers[0]].append(Piece(*numbers))
    return tuple(map(tuple, found))


def _call(plan: c_void_p, step: int, call: int) -> Call:
    info = sized(ContextCall)
    check(library.flashcore_context_plan_call(plan, step, call, info))
    blocks = tuple(Block(*numbers) for numbers in _numbers(info.blocks, info.num_blocks, 5))
    return Call((info.window_left, info.window_right), blocks)


def _step(plan: c_void_p, number: int) -> Step:
    info = sized(ContextStep)
    check(library.flashcore_context_plan_step(plan, number, info))
    ranks = {name: getattr(info, name) for name in Step._fields[:-1]}
    return Step(
        **{name: None if rank < 0 else rank for name, rank in ranks.items()},
        calls=tuple(_call(plan, number, call) for call in range(info.calls)),
    )


@lru_cache(maxsize=256)
def make_context_plan(what: What, rank: int) -> ContextPlan:
    problem = with_defaults(ContextProblem)
    problem.rank = rank
    problem.documents = len(what.seqlens_q)
    lengths = {}
    for name, value in what._asdict().items():
        if isinstance(value, tuple):
            lengths[name] = (c_int64 * len(value))(*value)
            setattr(problem, name, addressof(lengths[name]))
        elif value is not None:
            setattr(problem, name, value)
    plan = c_void_p()
    check(library.flashcore_context_plan_create(problem, byref(plan)))
    try:
        info = sized(ContextInfo)
        check(library.flashcore_context_plan_info(plan, info))
        return ContextPlan(
            algorithm=_NAMES[info.algorithm],
            initialise=bool(info.initialise),
            rows_q=info.rows_q,
            rows_kv=info.rows_kv,
            pieces_q=_pieces(info.pieces_q, info.num_pieces_q, what.world),
            pieces_kv=_pieces(info.pieces_kv, info.num_pieces_kv, what.world),
            steps=tuple(_step(plan, number) for number in range(info.steps)),
            seconds={
                name: getattr(info, f"{name}_seconds") for name in ALGORITHMS if name != "automatic"
            },
        )
    finally:
        library.flashcore_context_plan_destroy(plan)
