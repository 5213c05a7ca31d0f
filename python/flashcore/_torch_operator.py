"""PyTorch's two ways to a call: straight to the library, and by the registered operator.

An eager call goes straight there. Where PyTorch has to see the call (torch.compile, autograd, fake
and meta tensors, tensor subclasses, dispatch modes) it goes through torch.ops.flashcore.attention,
which ends in the same direct call.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from ._backend import Extras, Pair, Values
from ._errors import Error, InvalidArgumentError, UnsupportedError
from ._layout import Layout
from ._layout import like as strides_like
from ._library import CPU, OPTIONAL_TENSORS
from ._options import Options
from ._torch import DTYPE_OF, TorchTensors, draw_seed, refuse_nested
from ._torch_vmap import batching_rule

# Types that are nothing but a torch.Tensor.
PLAIN = {torch.Tensor, torch.nn.Parameter}
if hasattr(torch.nn, "Buffer"):
    PLAIN.add(torch.nn.Buffer)

_TENSORS = ("q", "k", "v", *OPTIONAL_TENSORS)
_NO_EXTRAS = (None,) * len(OPTIONAL_TENSORS)
_WINDOW = Options._fields.index("window")  # two scalars of the operator
_RETURN_LSE = Options._fields.index("return_lse")

_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
_is_compiling = torch.compiler.is_dynamo_compiling  # other tracers come as modes or subclasses
_is_grad_enabled = torch.is_grad_enabled


def _in_transform() -> bool:
    """Whether a transform of torch.func (vmap, functionalize) is at work in this thread."""
    peek = getattr(torch._C._functorch, "peek_interpreter_stack", lambda: None)
    return peek() is not None


class TorchBackend(TorchTensors):
    def attention(
        self, q: Any, k: Any, v: Any, extras: Extras, options: Values, dropout: Pair, outputs: Pair
    ) -> Any:
        if (
            _is_compiling()
            or type(q) not in PLAIN
            or type(k) not in PLAIN
            or type(v) not in PLAIN
            or (
                _is_grad_enabled()
                and (
                    q.requires_grad
                    or k.requires_grad
                    or v.requires_grad
                    or (extras is not None and self._needs_grad(extras))
                )
            )
            or _modes()
            or forward_ad._current_level >= 0
        ):
            return self._by_operator(q, k, v, extras, options, dropout, outputs)
        try:
            plan = self.plan(q, k, v, extras, options, outputs)
            return self.run(plan, q, k, v, extras, dropout, outputs)
        except (Error, RuntimeError):
            # Meta tensors and those of a transform look like others but have no memory.
            if outputs is not None or not (q.is_meta or _in_transform()):
                raise
        return self._by_operator(q, k, v, extras, options, dropout, outputs)

    def _check_derivatives(self, arrays: Sequence[Any]) -> None:
        """Refuses what PyTorch would take and then leave the derivative out of."""
        if forward_ad._current_level >= 0 and any(
            x is not None and forward_ad.unpack_dual(x).tangent is not None for x in arrays
        ):
            raise UnsupportedError(
                "attention: has no forward-mode derivative, wanted inputs without tangents"
            )
        if _is_compiling() or not torch.is_grad_enabled():
            return
        if _in_transform() and self._needs_grad(arrays):
            raise UnsupportedError(
                "attention: has no derivative under torch.func yet, wanted torch.no_grad() around "
                "the call, or inputs that require no gradient"
            )

    def _needs_grad(self, arrays: Sequence[Any]) -> bool:
        return any(isinstance(x, torch.Tensor) and x.requires_grad for x in arrays)

    def _by_operator(
        self, q: Any, k: Any, v: Any, extras: Extras, options: Values, dropout: Pair, outputs: Pair
    ) -> Any:
        if outputs is not None:
            raise UnsupportedError(
                "out, out_lse: are given under torch.compile, autograd, or with tensors that are "
                "not plain, wanted None"
            )
        arrays = (q, k, v, *(extras if extras is not None else _NO_EXTRAS))
        for name, array in zip(_TENSORS, arrays, strict=True):
            if array is None:
                continue
            if not isinstance(array, torch.Tensor):
                self._check_types(q, k, v, extras, None)
                raise InvalidArgumentError(f"{name}: wanted a torch.Tensor")
            refuse_nested(name, array)
        self._check_derivatives(arrays)
        named = Options(*options)
        left, right = (-1, -1) if named.window is None else named.window
        needs_grad = torch.is_grad_enabled() and self._needs_grad(arrays)
        out_dtype = named.out_dtype
        if isinstance(out_dtype, str):
            out_dtype = DTYPE_OF[self.dtype("out_dtype", out_dtype)]
        seed, offset = (0, 0) if dropout is None else dropout
        out, lse, _ = torch.ops.flashcore.attention(
            *arrays,
            *options[:_WINDOW],
            -1 if left is None else left,
            -1 if right is None else right,
            named.dropout_p,
            out_dtype,
            named.return_lse or needs_grad,
            *options[_RETURN_LSE + 1 :],
            None if seed is None else _signed(seed),
            _signed(offset),
        )
        return (out, lse) if named.return_lse else out


backend = TorchBackend()

_SCALARS = (
    "bool causal, float? softmax_scale, float softcap, str alignment, SymInt causal_offset, "
    "SymInt window_left, SymInt window_right, float dropout_p, ScalarType? out_dtype, "
    "bool return_lse, SymInt kv_scale_block, SymInt max_seqlen_q, SymInt max_seqlen_kv, "
    "str? kernel, int threads, bool batch_invariant, bool early_start, int? dropout_seed, "
    "int dropout_offset"
)

# Returns O, LSE (empty without return_lse), and the dropout's seed and offset (empty without
# dropout), which a backward pass needs. Without dropout_seed, PyTorch's CPU generator gives one.
_library = torch.library.Library("flashcore", "DEF")
_library.define(
    f"attention(Tensor q, Tensor k, Tensor v, {', '.join(f'Tensor? {n}' for n in _TENSORS[3:])}, "
    f"{_SCALARS}) -> (Tensor, Tensor, Tensor)",
    tags=(torch.Tag.needs_fixed_stride_order, torch.Tag.pt2_compliant_tag),
)
_library.define(
    "attention_backward(Tensor grad_out, Tensor? grad_lse, Tensor q, Tensor k, Tensor v, "
    "Tensor out, Tensor lse, Tensor rng_state) -> (Tensor, Tensor, Tensor)",
    tags=(torch.Tag.needs_fixed_stride_order, torch.Tag.pt2_compliant_tag),
)


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


def _parts_of(rest: tuple[Any, ...]) -> tuple[Extras, Options, Any, Any]:
    """Of the operator's arguments behind v: extras, options, the dropout's seed and offset."""
    extras, scalars = rest[: len(_NO_EXTRAS)], rest[len(_NO_EXTRAS) :]
    window = scalars[_WINDOW : _WINDOW + 2]
    options = Options._make((*scalars[:_WINDOW], window, *scalars[_WINDOW + 2 : -2]))
    return None if all(x is None for x in extras) else extras, options, *scalars[-2:]


def _attention(q: Any, k: Any, v: Any, *rest: Any) -> tuple[Any, Any, Any]:
    extras, options, seed, offset = _parts_of(rest)
    dropout = None
    if options.dropout_p != 0:
        dropout = (draw_seed() if seed is None else seed) % 2**64, offset % 2**64
    result = backend.compute(q, k, v, extras, options, dropout, None)
    out, lse = result if options.return_lse else (result, q.new_empty(0, dtype=torch.float32))
    state = q.new_empty(0 if dropout is None else 2, dtype=torch.int64)
    if dropout is not None:
        for word, value in zip(state, dropout, strict=True):
            word.fill_(_signed(value))
    return out, lse, state


def _attention_fake(q: Any, k: Any, v: Any, *rest: Any) -> tuple[Any, Any, Any]:
    _, options, _, _ = _parts_of(rest)
    shape = (*q.shape[:-1], v.shape[-1])
    layout = Layout(0, tuple(q.shape), tuple(q.stride()), (CPU, 0))
    out = torch.empty_strided(
        shape,
        strides_like(layout, shape),
        dtype=q.dtype if options.out_dtype is None else options.out_dtype,
        device=q.device,
    )
    lse = q.new_empty(q.shape[:-1] if options.return_lse else 0, dtype=torch.float32)
    return out, lse, q.new_empty(2 if options.dropout_p != 0 else 0, dtype=torch.int64)


def _save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, Any, Any]) -> None:
    out, lse, state = output
    ctx.mark_non_differentiable(state)
    ctx.save_for_backward(*inputs[:3], out, lse, state)
    ctx.inputs = len(inputs)


def _differentiate(ctx: Any, grad_out: Any, grad_lse: Any, _grad_state: Any) -> tuple[Any, ...]:
    grads = torch.ops.flashcore.attention_backward(grad_out, grad_lse, *ctx.saved_tensors)
    return (*grads, *(None,) * (ctx.inputs - 3))


def _backward(*_: Any) -> Any:
    raise UnsupportedError(
        "backward: attention has no backward pass yet, wanted torch.no_grad() around the call, or "
        "inputs that require no gradient"
    )


def _backward_fake(_out: Any, _lse: Any, q: Any, k: Any, v: Any, *_: Any) -> tuple[Any, Any, Any]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


for _key in ("CPU", "CUDA"):
    _library.impl("attention", _attention, _key)
    _library.impl("attention_backward", _backward, _key)
torch.library.register_fake("flashcore::attention", _attention_fake, lib=_library)
torch.library.register_fake("flashcore::attention_backward", _backward_fake, lib=_library)
if hasattr(torch.library, "register_vmap"):  # before, PyTorch maps it in a loop
    torch.library.register_vmap("flashcore::attention", batching_rule, lib=_library)
torch.library.register_autograd(
    "flashcore::attention", _differentiate, setup_context=_save_for_backward, lib=_library
)
