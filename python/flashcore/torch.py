"""PyTorch: a drop-in for scaled_dot_product_attention, per call, temporarily, or registered.

Importing this module also registers the operator torch.ops.flashcore.attention, so that
torch.compile(fullgraph=True) accepts `flashcore.attention` and this module's functions.
"""

import contextlib
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from ._attention import DEFAULTS, attention
from ._backend import registered
from ._errors import InvalidArgumentError, UnsupportedError
from ._gradients import attention_backward, differentiates
from ._layout import CODES, wrong_type
from ._torch import KINDS, refuse_nested
from ._torch_nested import jagged_attention
from ._torch_operator import PLAIN, backend

__all__ = ["attention", "register_flash_impl", "replace_sdpa", "scaled_dot_product_attention"]

for _type in PLAIN:
    registered.setdefault(_type, backend)


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """torch.nn.functional.scaled_dot_product_attention, computed by FlashCore.

    query [..., Hq, L, E], key [..., H, S, E], value [..., H, S, Ev]: the leading dimensions
    broadcast. attn_mask broadcasts to [..., Hq, L, S]: bool (True: attend), or floating point,
    which is added to the scores. is_causal has its diagonal at the top left. A row that attends to
    no key is 0. Dropout draws its seed from PyTorch's CPU generator; when compiled or in a CUDA
    graph, each run draws another one from the device's. Jagged nested tensors are packed batches.

    It has gradients, also for attn_mask, but no second-order ones. float64 is refused.
    """
    if attn_mask is not None and is_causal:
        raise InvalidArgumentError("attn_mask: is given with is_causal=True, wanted one of them")
    if _any_autocast():
        query, key, value, attn_mask = autocast(query, key, value, attn_mask)
    try:
        is_nested = query.is_nested
        if not is_nested:
            shape_q, shape_k, shape_v = query.shape, key.shape, value.shape
            contiguous = query.is_contiguous(), key.is_contiguous(), value.is_contiguous()
    except (AttributeError, RuntimeError):
        _check_dense(query, key, value)
        raise
    if is_nested:
        return jagged_attention(query, key, value, attn_mask, dropout_p, is_causal, scale)
    if len(shape_q) != 4 or len(shape_k) != 4 or len(shape_v) != 4:
        return _any_rank(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if contiguous != _ALL:
        query, key, value = _dense(query), _dense(key), _dense(value)
    heads_q, heads_k, heads_v = shape_q[1], shape_k[1], shape_v[1]
    if heads_q != heads_k or heads_q != heads_v:
        if not enable_gqa and not {1, heads_q} >= {heads_k, heads_v}:
            raise InvalidArgumentError(
                f"key: has {heads_k} heads and value {heads_v}, wanted query's {heads_q}, or "
                "enable_gqa=True"
            )
        heads = heads_v if heads_k == 1 else heads_k
        key, value = (_expand(x, 1, heads) for x in (key, value))
    batch = shape_q[0]
    if batch != shape_k[0] or batch != shape_v[0]:
        batch = next(b for b in (batch, shape_k[0], shape_v[0]) if b != 1)
        query, key, value = (_expand(x, 0, batch) for x in (query, key, value))
    if isinstance(scale, torch.Tensor):
        if scale.requires_grad:
            raise wrong_type("scale", scale, "a number: it has no gradient")
        scale = float(scale)
    if attn_mask is None and dropout_p == 0.0:
        options = (is_causal, scale, *_OTHER_OPTIONS)
        return backend.attention((query, key, value, None, options, None, None))
    return attention(
        query,
        key,
        value,
        causal=is_causal,
        softmax_scale=scale,
        alignment="top_left",
        **of_mask(attn_mask),
        dropout_p=dropout_p,
    )


def of_mask(attn_mask: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """Returns PyTorch's mask, of up to 4 dimensions, as the option of `attention` that it is."""
    if attn_mask is None:
        return {}
    name = "mask" if attn_mask.dtype is torch.bool else "bias"
    return {name: attn_mask[(None,) * (4 - attn_mask.dim())]}


def autocast(query: torch.Tensor, *others: Any) -> tuple[Any, ...]:
    """Casts floating-point tensors to the autocast dtype, if active, as PyTorch's own call does."""
    kind = query.device.type
    tensors = (query, *others)
    if kind not in ("cpu", "cuda") or not torch.is_autocast_enabled(kind):
        return tensors
    dtype = torch.get_autocast_dtype(kind)
    return tuple(
        x.to(dtype) if x is not None and x.dtype in (torch.float32, *_HALVES) else x
        for x in tensors
    )


# Preprocessed defaults of `attention`, so that the most common call skips that step.
_OTHER_OPTIONS = DEFAULTS._replace(alignment="top_left")[2:]
_ALL = (True, True, True)
_HALVES = (torch.float16, torch.bfloat16)
_any_autocast = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)


def _check_dense(*tensors: Any) -> None:
    for name, x in zip(("query", "key", "value"), tensors, strict=True):
        if not isinstance(x, torch.Tensor):
            raise wrong_type(name, x, "a torch.Tensor")
        refuse_nested(name, x)


def _dense(x: torch.Tensor) -> torch.Tensor:
    """Returns x if its last dimension is contiguous, otherwise a contiguous copy."""
    return x if x.stride(-1) == 1 or x.shape[-1] <= 1 else x.contiguous()


def _expand(x: torch.Tensor, dimension: int, extent: int) -> torch.Tensor:
    if x.shape[dimension] != 1 or extent == 1:
        return x
    shape = list(x.shape)
    shape[dimension] = extent
    return x.expand(shape)


def _any_rank(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> torch.Tensor:
    """Handles fewer or more than 4 dimensions: those before the last three become one batch."""
    rank = max(query.dim(), key.dim(), value.dim())
    if min(query.dim(), key.dim(), value.dim()) < 2:
        raise InvalidArgumentError("query, key, value: wanted at least 2 dimensions")
    full = max(rank, 4)
    query, key, value = (x[(None,) * (full - x.dim())] for x in (query, key, value))
    lead = torch.broadcast_shapes(*(x.shape[:-3] for x in (query, key, value)))
    query, key, value = (x.expand(*lead, *x.shape[-3:]).flatten(0, -4) for x in (query, key, value))
    if attn_mask is not None and attn_mask.dim() > 3:
        attn_mask = attn_mask.expand(*lead, *attn_mask.shape[-3:]).flatten(0, -4)
    out = scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
    )
    out = out.unflatten(0, lead)
    return out.reshape(out.shape[full - rank :])


_lock = threading.Lock()
_stack: list[Callable[..., torch.Tensor]] = []


@contextlib.contextmanager
def replace_sdpa(fallback: bool = False) -> Iterator[None]:
    """In this context, torch.nn.functional.scaled_dot_product_attention is FlashCore's.

    Every caller of that name is routed: models, nn.MultiheadAttention, other libraries. The name
    is process-wide, so other threads are routed as well; contexts may be nested.

    fallback: calls that FlashCore refuses (UnsupportedError, float64, tensors that do not know its
    operator, such as a DTensor, and on a device without a backward pass, inputs that require
    gradients) go to the function before the outermost context. Without it they raise.
    """
    with sdpa_replaced_by(
        lambda before: _with_fallback(before) if fallback else scaled_dot_product_attention
    ):
        yield


@contextlib.contextmanager
def sdpa_replaced_by(
    make: Callable[[Callable[..., torch.Tensor]], Callable[..., torch.Tensor]],
) -> Iterator[None]:
    """Takes what makes the replacement of the function before the outermost context."""
    with _lock:
        _stack.append(F.scaled_dot_product_attention)
        F.scaled_dot_product_attention = make(_stack[0])
    try:
        yield
    finally:
        with _lock:
            F.scaled_dot_product_attention = _stack.pop()


def _with_fallback(before: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def routed(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *rest: Any, **options: Any
    ) -> torch.Tensor:
        mask = rest[0] if rest else options.get("attn_mask")
        needs_grad = torch.is_grad_enabled() and any(
            x is not None and x.requires_grad for x in (query, key, value, mask)
        )
        refused = query.dtype is torch.float64 or (
            needs_grad and not _has_gradients(query, value.shape[-1])
        )
        if not refused:
            try:
                return scaled_dot_product_attention(query, key, value, *rest, **options)
            except NotImplementedError:  # raised here, or by a subclass that lacks our operator
                pass
        return before(query, key, value, *rest, **options)

    return routed


def _differentiates(device: str, index: int, dtype: str, head_dim_qk: int, head_dim_v: int) -> bool:
    if device not in KINDS or dtype not in CODES:
        return False
    return differentiates((KINDS[device], index), CODES[dtype], head_dim_qk, head_dim_v)


# Under torch.compile this is evaluated once, when the graph is made.
_is_differentiated: Any = torch.compiler.assume_constant_result(_differentiates)


def _has_gradients(query: torch.Tensor, head_dim_v: int) -> bool:
    device, dtype = query.device, str(query.dtype).removeprefix("torch.")
    return _is_differentiated(device.type, device.index or 0, dtype, query.shape[-1], head_dim_v)


class _FlashHandle:
    """Keeps the registration in PyTorch's attention registry alive."""

    def __init__(self, library: torch.library.Library):
        self.library: torch.library.Library | None = library

    def remove(self) -> None:
        self.library = None


def _flash_forward(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """aten::_scaled_dot_product_flash_attention."""
    if dropout_p != 0.0:
        raise UnsupportedError(
            f"dropout_p: is {dropout_p}, wanted 0: the backward pass of PyTorch's flash attention "
            "draws other numbers"
        )
    if return_debug_mask:
        raise UnsupportedError("return_debug_mask: is True, wanted False")
    out, lse = attention(
        query,
        key,
        value,
        causal=is_causal,
        alignment="top_left",
        softmax_scale=scale,
        return_lse=True,
    )
    state = torch.zeros(2, dtype=torch.uint64, device=query.device)
    offset = torch.zeros((), dtype=torch.uint64, device=query.device)
    debug = query.new_empty(0)
    return out, lse, None, None, query.shape[2], key.shape[2], state, offset, debug


def _flash_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    cum_seq_q: torch.Tensor | None,
    cum_seq_k: torch.Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    *state: torch.Tensor,
    scale: float | None = None,
) -> tuple[torch.Tensor, ...]:
    """aten::_scaled_dot_product_flash_attention_backward. PyTorch computes what we refuse."""
    try:
        if dropout_p != 0.0:  # another implementation's forward pass drew the numbers
            raise UnsupportedError(f"dropout_p: is {dropout_p}, wanted 0")
        return attention_backward(
            _dense(grad_out),
            query,
            key,
            value,
            out,
            logsumexp,
            causal=is_causal,
            alignment="top_left",
            softmax_scale=scale,
        )[:3]
    except UnsupportedError:
        tensors = (x.transpose(1, 2) for x in (grad_out, query, key, value, out))
        gradients = torch.ops.aten._flash_attention_backward(
            *tensors,
            logsumexp,
            cum_seq_q,
            cum_seq_k,
            max_q,
            max_k,
            dropout_p,
            is_causal,
            *state,
            scale=scale,
        )
        return tuple(x.transpose(1, 2) for x in gradients)


def _activate_flash() -> _FlashHandle:
    library = torch.library.Library("aten", "IMPL", "CUDA")
    with warnings.catch_warnings():
        # PyTorch warns that its kernel is overridden, which is the intent.
        warnings.filterwarnings("ignore", message="Warning only once for all operators")
        library.impl("_scaled_dot_product_flash_attention", _flash_forward, "CUDA")
        if _differentiates("cuda", 0, "float16", 64, 64):
            backward = "_scaled_dot_product_flash_attention_backward"
            library.impl(backward, _flash_backward, "CUDA")
    return _FlashHandle(library)


def register_flash_impl() -> bool:
    """Adds "flashcore" to PyTorch's registry of flash attention implementations, if there is one.

    torch.nn.attention.activate_flash_attention_impl("flashcore") then makes PyTorch's own
    scaled_dot_product_attention use FlashCore's forward pass wherever it chooses its flash backend
    on a GPU, and its backward pass if the GPU has one. Returns False if PyTorch has no such
    registry.
    """
    register = getattr(torch.nn.attention, "register_flash_attention_impl", None)
    if register is None:
        return False
    register("flashcore", register_fn=_activate_flash)
    return True
