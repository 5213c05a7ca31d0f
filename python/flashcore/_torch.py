"""PyTorch tensors: the direct way, and the registered operator.

An eager call goes straight to the library. Where PyTorch has to see the call (torch.compile,
autograd, fake and meta tensors, tensor subclasses, dispatch modes) it goes through the operator
torch.ops.flashcore.attention, which ends in the same direct call.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from ._backend import Backend, Outputs, run_plan
from ._errors import Error, InvalidArgumentError, UnsupportedError
from ._layout import CODES, Layout, check_rank, dtype_code
from ._layout import like as strides_like
from ._library import CPU, CUDA, error
from ._options import Options
from ._plan import FOUR_POINTERS_SIZE, Plan, aligned, cache, pack_four_pointers
from ._torch_vmap import batching_rule

CODE_OF = {getattr(torch, name): code for name, code in CODES.items() if hasattr(torch, name)}
DTYPE_OF = {code: dtype for dtype, code in CODE_OF.items()}

_KINDS = {"cpu": CPU, "cuda": CUDA}

# Types that are nothing but a torch.Tensor.
_PLAIN = {torch.Tensor, torch.nn.Parameter}
if hasattr(torch.nn, "Buffer"):
    _PLAIN.add(torch.nn.Buffer)


def _current_stream(index: int) -> int:
    return torch.cuda.current_stream(index).cuda_stream


# The same without making an object each call; PyTorch's own generated code uses it.
_stream = getattr(torch._C, "_cuda_getCurrentRawStream", _current_stream)
_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
_increment_version = getattr(torch.autograd.graph, "increment_version", lambda _: None)
_is_compiling = torch.compiler.is_compiling
_is_grad_enabled = torch.is_grad_enabled
_empty_strided = torch.empty_strided
_empty_like = torch.empty_like


def _in_transform() -> bool:
    """Whether a transform of torch.func (vmap, functionalize) is at work in this thread."""
    peek = getattr(torch._C._functorch, "peek_interpreter_stack", lambda: None)
    return peek() is not None


def refuse_nested(argument: str, array: torch.Tensor) -> None:
    if array.is_nested:
        raise UnsupportedError(
            f"{argument}: is a nested tensor, wanted a dense one, or its values packed, with "
            "cu_seqlens_q and cu_seqlens_kv"
        )


class TorchBackend(Backend):
    wanted = "a torch.Tensor"

    def owns(self, array: Any) -> bool:
        return isinstance(array, torch.Tensor)

    def key(self, array: Any) -> Hashable:
        return array.dtype, array.shape, array.stride(), array.device, array.is_neg()

    def layout(self, argument: str, array: Any) -> Layout:
        refuse_nested(argument, array)
        check_rank(argument, array.shape)
        if array.layout is not torch.strided:
            raise InvalidArgumentError(
                f"{argument}: layout is {array.layout}, wanted torch.strided"
            )
        if array.is_neg():
            raise InvalidArgumentError(
                f"{argument}: is a view with the negative bit, wanted it resolved (resolve_neg)"
            )
        kind = _KINDS.get(array.device.type)
        if kind is None:
            raise UnsupportedError(f"{argument}: is on {array.device}, wanted cpu or cuda")
        return Layout(
            dtype_code(argument, str(array.dtype).removeprefix("torch.")),
            tuple(array.shape),
            array.stride(),
            (kind, array.device.index or 0),
        )

    def pointer(self, array: Any) -> int:
        return array.data_ptr()

    def dtype(self, argument: str, dtype: Any) -> int:
        if isinstance(dtype, torch.dtype):
            return dtype_code(argument, str(dtype).removeprefix("torch."))
        return super().dtype(argument, dtype)

    def empty(self, plan: Plan, like: Any) -> Any:
        return _empty_strided(
            plan.out_shape, plan.out_stride, dtype=DTYPE_OF[plan.out_dtype], device=like.device
        )

    def empty_lse(self, plan: Plan, like: Any) -> Any:
        return torch.empty(plan.lse_shape, dtype=torch.float32, device=like.device)

    def workspace(self, nbytes: int, like: Any) -> tuple[Any, int]:
        owner = torch.empty(nbytes + 256, dtype=torch.uint8, device=like.device)
        return owner, aligned(owner.data_ptr())

    def stream(self, like: Any) -> int:
        return _stream(like.device.index) if like.is_cuda else 0

    def check_writable(self, argument: str, array: Any) -> None:
        if array.requires_grad and torch.is_grad_enabled():
            raise InvalidArgumentError(
                f"{argument}: requires a gradient, wanted a tensor that may be written into"
            )
        if not array.is_inference():
            _increment_version(array)  # so that autograd notices the write

    def attention(
        self,
        q: Any,
        k: Any,
        v: Any,
        extras: Sequence[Any] | None,
        options: tuple[Any, ...],
        dropout: tuple[Any, Any] | None,
        outputs: Outputs | None,
    ) -> Any:
        if (
            _is_compiling()
            or type(q) not in _PLAIN
            or type(k) not in _PLAIN
            or type(v) not in _PLAIN
            or (
                _is_grad_enabled()
                and (
                    q.requires_grad
                    or k.requires_grad
                    or v.requires_grad
                    or (extras is not None and self._needs_grad(extras))
                )
            )
            or q.is_meta
            or _modes()
            or forward_ad._current_level >= 0
        ):
            return self._by_operator(q, k, v, extras, options, dropout, outputs)
        try:
            if extras is None and dropout is None and outputs is None:
                return self._compute_plain(q, k, v, options)
            return self.compute(q, k, v, extras, options, dropout, outputs)
        except (Error, RuntimeError):
            # The tensors of a transform look like others but have no memory.
            if outputs is not None or not _in_transform():
                raise
        return self._by_operator(q, k, v, extras, options, dropout, outputs)

    def _compute_plain(self, q: Any, k: Any, v: Any, options: tuple[Any, ...]) -> Any:
        """`compute` without what most calls do not have, for what a call costs."""
        device = q.device
        key: Hashable
        try:
            key = (
                q.dtype,
                k.dtype,
                v.dtype,
                q.shape,
                k.shape,
                v.shape,
                q.stride(),
                k.stride(),
                v.stride(),
                device,
                k.device,
                v.device,
                q.is_neg() or k.is_neg() or v.is_neg(),
                options,
            )
            plan = cache.get(key)
        except (TypeError, RuntimeError):  # compute says what is wrong
            key = plan = None
        if plan is None:
            result = self.compute(q, k, v, None, options, None, None)
            plan = cache.get((self.key(q), self.key(k), self.key(v), options)) if key else None
            if plan is not None and not plan.return_lse and plan.workspace_bytes == 0:
                cache.put(key, plan)
            return result
        out = (
            _empty_like(q)
            if plan.like_q
            else _empty_strided(
                plan.out_shape, plan.out_stride, dtype=DTYPE_OF[plan.out_dtype], device=device
            )
        )
        arguments = pack_four_pointers(
            FOUR_POINTERS_SIZE, q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr()
        )
        status = run_plan(
            plan.handle, arguments, None, 0, _stream(device.index) if q.is_cuda else 0
        )
        if status != 0:
            raise error(status)
        return out

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
        self,
        q: Any,
        k: Any,
        v: Any,
        extras: Sequence[Any] | None,
        options: tuple[Any, ...],
        dropout: tuple[Any, Any] | None,
        outputs: Outputs | None,
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
            named.causal,
            named.softmax_scale,
            named.softcap,
            named.alignment,
            named.causal_offset,
            -1 if left is None else left,
            -1 if right is None else right,
            named.dropout_p,
            out_dtype,
            named.return_lse or needs_grad,
            named.kv_scale_block,
            named.max_seqlen_q,
            named.max_seqlen_kv,
            named.kernel,
            named.threads,
            named.batch_invariant,
            named.early_start,
            seed if seed is None or seed < 2**63 else seed - 2**64,
            offset if offset < 2**63 else offset - 2**64,
        )
        return (out, lse) if named.return_lse else out


backend = TorchBackend()

_NO_EXTRAS = (None,) * 12
_TENSORS = (
    "q",
    "k",
    "v",
    "bias",
    "mask",
    "alibi_slopes",
    "sinks",
    "q_scale",
    "k_scale",
    "v_scale",
    "cu_seqlens_q",
    "cu_seqlens_kv",
    "seqlens_q",
    "seqlens_kv",
    "causal_offsets",
)
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


def draw_seed() -> int:
    """A seed from PyTorch's CPU generator: torch.manual_seed makes it repeatable."""
    return int(torch.empty((), dtype=torch.int64).random_().item())


def _attention(q: Any, k: Any, v: Any, *rest: Any) -> tuple[Any, Any, Any]:
    extras: Sequence[Any] | None = rest[:12]
    if extras == _NO_EXTRAS or all(x is None for x in rest[:12]):
        extras = None
    scalars = rest[12:]
    options = (*scalars[:5], (scalars[5], scalars[6]), *scalars[7:17])
    return_lse, dropout_p = scalars[9], scalars[7]
    dropout = None
    if dropout_p != 0:
        seed = draw_seed() if scalars[17] is None else scalars[17]
        dropout = (seed % 2**64, scalars[18] % 2**64)
    result = backend.compute(q, k, v, extras, options, dropout, None)
    out, lse = result if return_lse else (result, q.new_empty(0, dtype=torch.float32))
    state = q.new_empty(0 if dropout is None else 2, dtype=torch.int64)
    if dropout is not None:
        for word, value in zip(state, dropout, strict=True):
            word.fill_(_signed(value))
    return out, lse, state


def _attention_fake(q: Any, k: Any, v: Any, *rest: Any) -> tuple[Any, Any, Any]:
    scalars = rest[12:]
    return_lse, dropout_p = scalars[9], scalars[7]
    shape = (*q.shape[:-1], v.shape[-1])
    layout = Layout(0, tuple(q.shape), tuple(q.stride()), (CPU, 0))
    out = torch.empty_strided(
        shape,
        strides_like(layout, shape),
        dtype=q.dtype if scalars[8] is None else scalars[8],
        device=q.device,
    )
    lse = q.new_empty(q.shape[:-1] if return_lse else 0, dtype=torch.float32)
    return out, lse, q.new_empty(2 if dropout_p != 0 else 0, dtype=torch.int64)


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
