"""The two paths of a PyTorch call: directly to the library, or by the registered operator.

An eager call takes the direct path. If PyTorch must see the call (torch.compile, autograd, fake and
meta tensors, tensor subclasses, dispatch modes), it goes through torch.ops.flashcore.attention,
which ends in the same direct call.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from ._backend import seeds
from ._backward import BackwardCall, Gradients
from ._call import Call, Fields
from ._errors import Error, InvalidArgumentError, UnsupportedError
from ._operands import LARGEST, OPTIONAL_TENSORS, Options
from ._options import largest_of
from ._torch import DTYPE_OF, TorchTensors, draw_dropout, in_transform, refuse_nested
from ._torch_backward import Differentiated, differentiate, save_for_backward
from ._torch_schema import (
    OPTIONS_SCHEMA,
    TAGS,
    TENSORS,
    TENSORS_SCHEMA,
    empty_like,
    library,
    options_of,
    scalars_of,
    signed,
    state_of,
)
from ._torch_vmap import batching_rule

# Types that behave exactly like torch.Tensor.
PLAIN = {torch.Tensor, torch.nn.Parameter}
if hasattr(torch.nn, "Buffer"):
    PLAIN.add(torch.nn.Buffer)

_NO_EXTRAS = (None,) * len(OPTIONAL_TENSORS)

_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
_is_compiling = torch.compiler.is_dynamo_compiling  # other tracers come as modes or subclasses
_is_grad_enabled = torch.is_grad_enabled


def _drawn(call: Fields) -> Fields:
    """Returns a call without a seed with the dropout that is drawn for it."""
    q, k, v, extras, options, (_, offset), outputs = call
    if offset != 0:
        raise InvalidArgumentError(
            f"dropout_offset: is {offset!r}, wanted 0 without dropout_seed: both are drawn"
        )
    drawn = draw_dropout(q.device)
    if "dropout_seed" in drawn:
        return q, k, v, extras, options, (drawn["dropout_seed"], 0), outputs
    extras = (*(extras or _NO_EXTRAS)[:-1], drawn["dropout_state"])
    return q, k, v, extras, options, None, outputs


class TorchBackend(TorchTensors):
    def attention(self, call: Fields) -> Any:
        q, k, v, extras, _, dropout, outputs = call
        if dropout is not None and dropout[0] is None:
            call = _drawn(call)
            extras = call[3]
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
            return self._by_operator(call)
        try:
            return self.run(self.plan(call), call)
        except (Error, RuntimeError):
            # Meta tensors and tensors of a transform look like others but have no memory.
            if outputs is not None or not (q.is_meta or in_transform()):
                raise
        return self._by_operator(call)

    def backward(self, call: BackwardCall) -> Gradients:
        self.check_arrays(call.arrays.items())
        arrays = call.arrays.values()
        if torch.is_grad_enabled() and self._needs_grad([*arrays]):
            raise UnsupportedError(
                "attention_backward: has no derivative, wanted torch.no_grad() around the call, or "
                "inputs that require no gradient"
            )
        plain = all(type(x) in PLAIN and not x.is_meta for x in arrays)
        if _is_compiling() or not plain or _modes() or in_transform():
            raise UnsupportedError(
                "attention_backward: is called with tensors that have no memory, wanted plain "
                "tensors, outside of torch.compile and torch.func; there, differentiate attention"
            )
        return super().backward(call)

    def _check_derivatives(self, arrays: Sequence[Any]) -> None:
        """Refuses forward-mode gradients, which PyTorch would accept and then ignore."""
        if forward_ad._current_level >= 0 and any(
            x is not None and forward_ad.unpack_dual(x).tangent is not None for x in arrays
        ):
            raise UnsupportedError(
                "attention: has no forward-mode derivative, wanted inputs without tangents"
            )

    def _needs_grad(self, arrays: Sequence[Any]) -> bool:
        return any(isinstance(x, torch.Tensor) and x.requires_grad for x in arrays)

    def _by_operator(self, call: Fields) -> Any:
        q, k, v, extras, options, dropout, outputs = call
        if outputs is not None:
            raise UnsupportedError(
                "out, out_lse: are given under torch.compile, autograd, or with tensors that are "
                "not plain, wanted None"
            )
        arrays = (q, k, v, *(extras if extras is not None else _NO_EXTRAS))
        for name, array in zip(TENSORS, arrays, strict=True):
            if array is None:
                continue
            if not isinstance(array, torch.Tensor):
                self.check_types(call)
                raise InvalidArgumentError(f"{name}: wanted a torch.Tensor")
            refuse_nested(name, array)
        self._check_derivatives(arrays)
        named = Options(*options)
        needs_grad = torch.is_grad_enabled() and self._needs_grad(arrays)
        out_dtype = named.out_dtype
        if isinstance(out_dtype, str):
            out_dtype = DTYPE_OF[self.dtype("out_dtype", out_dtype)]
        if dropout is not None:  # the one optional array that is a tensor only here
            arrays = (*arrays[:-1], torch.tensor([signed(word) for word in seeds(dropout)]))
        scalars = scalars_of(options, out_dtype, named.return_lse or needs_grad)
        # The operator's own derivative does not work inside of torch.func's transforms. If
        # torch.compile traces such a transform, PyTorch refuses the operator.
        in_func_grad = not _is_compiling() and needs_grad and in_transform()
        operator = Differentiated.apply if in_func_grad else _operator
        out, lse, *largest = operator(*arrays, *scalars)
        found = (out, lse) if named.return_lse else (out,)
        asked = largest_of(named)
        found += tuple(x for name, x in zip(LARGEST, largest, strict=True) if name in asked)
        return found if len(found) > 1 else out


backend = TorchBackend()

# Returns O, LSE and the largest values, empty without the option that asks for them. The
# state of dropout is an input, so that a second run of the operator, as in activation
# checkpointing, has the same mask.
library.define(
    f"attention({TENSORS_SCHEMA}, {OPTIONS_SCHEMA}) -> "
    f"({', '.join(['Tensor'] * (2 + len(LARGEST)))})",
    tags=TAGS,
)
_operator = torch.ops.flashcore.attention


def _attention(*arguments: Any) -> tuple[torch.Tensor, ...]:
    options = options_of(arguments[len(TENSORS) :])
    arrays = dict(zip(TENSORS, arguments, strict=False))
    arrays["dropout_state"], dropout = state_of(arrays["dropout_state"], options)
    result = backend.compute(Call.of(arrays, options, dropout))
    q = arrays["q"]
    asked = (*(("lse",) if options.return_lse else ()), *largest_of(options))
    out, *others = result if asked else (result,)
    found = dict(zip(asked, others, strict=True))
    for name in ("lse", *LARGEST):
        if name not in found:
            found[name] = q.new_empty(0, dtype=torch.float32)
    return out, *(found[name] for name in ("lse", *LARGEST))


def _attention_fake(q: Any, k: Any, v: Any, *rest: Any) -> tuple[torch.Tensor, ...]:
    options = options_of(rest[len(OPTIONAL_TENSORS) :])
    dtype = q.dtype if options.out_dtype is None else options.out_dtype
    head_dim_v = v.shape[-2 if options.v_transposed else -1]
    out = empty_like(q, (*q.shape[:-1], head_dim_v), dtype)
    lse = q.new_empty(q.shape[:-1] if options.return_lse else 0, dtype=torch.float32)
    starts = rest[OPTIONAL_TENSORS.index("cu_seqlens_q")]
    batch = q.shape[0] if starts is None else starts.shape[0] - 1
    asked = largest_of(options)
    shapes = [(batch, q.shape[1]) if name in asked else 0 for name in LARGEST]
    return out, lse, *(q.new_empty(shape, dtype=torch.float32) for shape in shapes)


for _key in ("CPU", "CUDA"):
    library.impl("attention", _attention, _key)
torch.library.register_fake("flashcore::attention", _attention_fake, lib=library)
if hasattr(torch.library, "register_vmap"):  # before that, PyTorch maps it in a loop
    torch.library.register_vmap("flashcore::attention", batching_rule, lib=library)
torch.library.register_autograd(
    "flashcore::attention", differentiate, setup_context=save_for_backward, lib=library
)
