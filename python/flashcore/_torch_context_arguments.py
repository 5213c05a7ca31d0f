"""Checks the arguments of calls over several ranks."""

import inspect
import itertools
from typing import Any, NoReturn

import torch

from ._attention import attention
from ._context import rows_of
from ._errors import ArgumentTypeError, InvalidArgumentError, UnsupportedError
from ._options import ALIGNMENTS, integer, refuse_unknown
from ._torch_context import rows_at
from ._torch_group import Ranks

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
NAMED_ALIGNMENTS = {name: number for name, number in ALIGNMENTS.items() if name != "given"}
# What `attention` has and calls over ranks do not.
_NOT_HERE = set(inspect.signature(attention).parameters) - {"q", "k", "v", "unknown"}


def refuse(function: Any, unknown: dict[str, Any]) -> NoReturn:
    for name in unknown:
        if name.startswith("dropout"):
            raise UnsupportedError(
                f"{name}: is given, wanted it left out: dropout draws by a query's and a key's "
                "number, and a call on one rank counts both from 0"
            )
        if name in _NOT_HERE:
            raise UnsupportedError(
                f"{name}: is given, wanted it left out: attention over several ranks does not "
                "have it"
            )
    refuse_unknown(function, unknown)


def named(argument: str, value: Any, of: dict[str, int]) -> int:
    if not isinstance(value, str) or value not in of:
        raise InvalidArgumentError(f"{argument}: is {value!r}, wanted one of {', '.join(of)}")
    return of[value]


def lengths_of(argument: str, starts: Any) -> tuple[int, ...]:
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


def check_tensors(q: Any, k: Any, v: Any) -> None:
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


def agree(
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


def whole_lengths(
    argument: str, world: int, rows: int, seqlen: Any, starts: Any
) -> tuple[int, ...]:
    """Returns the lengths of whole documents: one in a dense batch."""
    if starts is not None:
        if seqlen is not None:
            raise InvalidArgumentError(f"{argument}: is given with cu_seqlens, wanted one of them")
        return lengths_of(f"cu_{argument}".replace("seqlen", "seqlens"), starts)
    if seqlen is None:
        return (world * rows,)
    return (integer(argument, seqlen, 0, 2**40),)
