"""Calls of context parallelism in which queries and keys have their true positions.

A plan joins blocks where the mask allows it. Biases, masks and ALiBi need the position of each
query and key, so here a block is one piece of queries and one of keys, with the offset between
them.
"""

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from ._context import Block, Call, ContextPlan, Piece, What, make_context_plan

TOP_LEFT = 0


class _Run(NamedTuple):
    """Rows of a document that lie together in a tensor."""

    document: int
    begin: int  # in the document
    place: int  # in the tensor
    rows: int


def _starts(lengths: Sequence[int]) -> list[int]:
    return [0, *itertools.accumulate(lengths)]


def _runs(lengths: Sequence[int], pieces: Sequence[Piece] | None) -> list[_Run]:
    """Returns the runs of pieces, or of all documents."""
    starts = _starts(lengths)
    if pieces is None:
        found = zip(starts, lengths, strict=False)
        return [_Run(i, 0, start, rows) for i, (start, rows) in enumerate(found) if rows > 0]
    documents = [bisect_right(starts, piece.begin) - 1 for piece in pieces]
    return [
        _Run(document, piece.begin - starts[document], piece.place, piece.rows)
        for document, piece in zip(documents, pieces, strict=True)
        if piece.rows > 0
    ]


def _block(what: What, q: _Run, kv: _Run) -> Block | None:
    """Returns the pairs of two runs, or None where no key is seen."""
    left, right = what.window_left, 0 if what.causal else what.window_right
    offset = q.begin - kv.begin
    if what.alignment != TOP_LEFT:
        offset += what.seqlens_kv[q.document] - what.seqlens_q[q.document]
    first = 0 if left < 0 else max(0, offset - left)
    end = kv.rows if right < 0 else min(kv.rows, q.rows + offset + right)
    if first >= end:
        return None
    return Block(q.place, q.place + q.rows, kv.place + first, kv.place + end, offset - first)


def _calls(what: What, q: Sequence[_Run], kv: Sequence[_Run]) -> Iterator[Call]:
    """One call has at most one block of each document."""
    left, right = what.window_left, 0 if what.causal else what.window_right
    found: dict[int, list[tuple[Block, int]]] = {}
    for document in sorted({run.document for run in q}):
        number = itertools.count()
        mine = (run for run in q if run.document == document)
        for one, other in itertools.product(mine, [x for x in kv if x.document == document]):
            block = _block(what, one, other)
            if block is not None:
                key = other.begin + block.kv_begin - other.place
                found.setdefault(next(number), []).append((block, key))
    for blocks in found.values():
        keys = tuple(key for _, key in blocks)
        yield Call((left, right), tuple(block for block, _ in blocks), keys)


@lru_cache(maxsize=256)
def make_positioned_plan(what: What, rank: int) -> ContextPlan:
    """The plan with calls whose offsets are those of the whole documents."""
    plan = make_context_plan(what, rank)
    every_q = plan.algorithm == "ulysses"
    q = _runs(what.seqlens_q, None if every_q else plan.pieces_q[rank])
    steps = []
    for step in plan.steps:
        if plan.algorithm == "ring" and step.owner is None:
            steps.append(step)
            continue
        pieces = plan.pieces_kv[step.owner] if plan.algorithm == "ring" else None  # type: ignore[index]
        kv = _runs(what.seqlens_kv, pieces)
        steps.append(step._replace(calls=tuple(_calls(what, q, kv))))
    return plan._replace(steps=tuple(steps), initialise=True)
