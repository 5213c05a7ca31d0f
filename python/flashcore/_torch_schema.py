"""The arguments of PyTorch's operators, forward and backward: their order and meaning."""

from typing import Any

import torch

from ._layout import CPU_DEVICE, Layout
from ._layout import like as strides_like
from ._operands import LARGEST_OF, OPTIONAL_TENSORS, Options

library = torch.library.Library("flashcore", "DEF")
TAGS = (torch.Tag.needs_fixed_stride_order, torch.Tag.pt2_compliant_tag)

TENSORS = ("q", "k", "v", *OPTIONAL_TENSORS)
TENSORS_SCHEMA = ", ".join(
    ["Tensor q", "Tensor k", "Tensor v", *(f"Tensor? {name}" for name in OPTIONAL_TENSORS)]
)
# The fields of Options; a window is two scalars.
OPTIONS_SCHEMA = (
    "bool causal, float? softmax_scale, float softcap, str alignment, SymInt causal_offset, "
    "SymInt window_left, SymInt window_right, float dropout_p, ScalarType? out_dtype, "
    f"bool return_lse, {', '.join(f'bool {name}' for name in LARGEST_OF)}, SymInt kv_scale_block, "
    "SymInt max_seqlen_q, SymInt max_seqlen_kv, bool v_transposed, str? kernel, int threads, "
    "bool batch_invariant, bool early_start, bool deterministic"
)
OPTIONS_COUNT = len(Options._fields) + 1
_WINDOW = Options._fields.index("window")
_OUT_DTYPE = Options._fields.index("out_dtype")  # return_lse is next


def scalars_of(
    options: tuple[Any, ...], out_dtype: Any = None, return_lse: bool = True
) -> tuple[Any, ...]:
    """Scalars with this dtype and LSE. By index: torch.compile lacks _replace in PyTorch 2.4."""
    window = options[_WINDOW]
    left, right = (-1, -1) if window is None else window
    return (
        *options[:_WINDOW],
        -1 if left is None else left,
        -1 if right is None else right,
        *options[_WINDOW + 1 : _OUT_DTYPE],
        out_dtype,
        return_lse,
        *options[_OUT_DTYPE + 2 :],
    )


def options_of(scalars: tuple[Any, ...]) -> Options:
    window = scalars[_WINDOW : _WINDOW + 2]
    return Options._make((*scalars[:_WINDOW], window, *scalars[_WINDOW + 2 :]))


def signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


def state_of(
    state: torch.Tensor | None, options: Options
) -> tuple[torch.Tensor | None, tuple[int, int] | None]:
    """Returns dropout's state as a device tensor, or as numbers, which every kernel takes."""
    if state is None or options.dropout_p == 0:
        return None, None
    if state.device.type != "cpu" or state.dtype is not torch.int64 or state.shape != (2,):
        return state, None  # the library reads it, or reports what is wrong
    seed, offset = state.tolist()
    return None, (seed % 2**64, offset % 2**64)


def empty_like(x: torch.Tensor, shape: Any, dtype: torch.dtype) -> torch.Tensor:
    """Allocates an output like the library does: dense, in the memory order of x."""
    layout = Layout(0, tuple(x.shape), tuple(x.stride()), CPU_DEVICE)
    return torch.empty_strided(shape, strides_like(layout, shape), dtype=dtype, device=x.device)
