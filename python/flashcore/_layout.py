"""The properties of an array that the library needs: dtype, shape, strides, device."""

from collections.abc import Sequence
from typing import NamedTuple

from ._errors import ArgumentTypeError, InvalidArgumentError
from ._library import CPU, CUDA, MAX_RANK, Tensor
from ._operands import DTYPES, OPERANDS

# Element types by their name in NumPy, ml_dtypes, JAX and CuPy; codes of flashcore.h.
CODES = {
    "float32": 0,
    "float16": 1,
    "bfloat16": 2,
    "float8_e4m3fn": 3,
    "float8_e5m2": 4,
    "bool": 5,
    "int32": 6,
    "float64": 7,
    "int64": 8,
}
NAMES = {code: name for name, code in CODES.items()}
F32 = CODES["float32"]
CPU_DEVICE = (CPU, 0)


class Layout(NamedTuple):
    dtype: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]  # in elements
    device: tuple[int, int]  # kind, index

    def tensor(self) -> Tensor:
        rank = len(self.shape)
        padding = (0,) * (MAX_RANK - rank)
        # Frameworks may put anything into the strides of an array without elements.
        stride = dense_strides(self.shape) if 0 in self.shape else self.stride
        return Tensor(self.dtype, rank, (*self.shape, *padding), (*stride, *padding))


def device_name(device: tuple[int, int]) -> str:
    return f"cuda:{device[1]}" if device[0] == CUDA else "cpu"


def _allowed(argument: str) -> tuple[str, ...]:
    return DTYPES[argument] if argument in DTYPES else OPERANDS[argument].dtypes


def wanted_dtype(argument: str) -> str:
    allowed = _allowed(argument)
    wanted = allowed[0] if len(allowed) == 1 else "one of " + ", ".join(allowed)
    return (
        f"{wanted}; what is to be added to the scores is a bias" if argument == "mask" else wanted
    )


def dtype_code(argument: str, name: str) -> int:
    if name not in _allowed(argument):
        verb = "is" if argument in DTYPES else "dtype is"
        raise InvalidArgumentError(f"{argument}: {verb} {name}, wanted {wanted_dtype(argument)}")
    return CODES[name]


def check_rank(argument: str, shape: Sequence[int]) -> None:
    if not 1 <= len(shape) <= MAX_RANK:
        raise InvalidArgumentError(
            f"{argument}: shape {list(shape)} has rank {len(shape)}, wanted 1 to {MAX_RANK}"
        )


def element_strides(
    argument: str, shape: Sequence[int], strides: Sequence[int], itemsize: int
) -> tuple[int, ...]:
    for stride in strides:
        if stride % itemsize != 0 and 0 not in shape:
            raise InvalidArgumentError(
                f"{argument}: a stride is {stride} bytes, wanted a multiple of the element's "
                f"{itemsize}"
            )
    return tuple(stride // itemsize for stride in strides)


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the strides of a row-major array."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def order_of(layout: Layout) -> tuple[int, ...]:
    """Returns the dimensions, outermost in memory first; the last one stays last."""
    last = len(layout.shape) - 1
    return (*sorted(range(last), key=lambda d: (-abs(layout.stride[d]), d)), last)


def like(q: Layout, shape: Sequence[int]) -> tuple[int, ...]:
    """Returns strides of a dense output whose dimensions have the memory order of q's.

    So a transposed [B, S, H, D] buffer has a transposed O. Broadcast or row-major q: row-major.
    """
    if q.stride == dense_strides(q.shape) or 0 in q.stride:
        return dense_strides(shape)
    order = order_of(q)
    permuted = dense_strides([shape[d] for d in order])
    strides = [0] * len(shape)
    for position, d in enumerate(order):
        strides[d] = permuted[position]
    return tuple(strides)


def wrong_type(argument: str, value: object, wanted: str) -> ArgumentTypeError:
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    article = "an" if name[0] in "aeiou" else "a"
    return ArgumentTypeError(f"{argument}: is {article} {name}, wanted {wanted}")
