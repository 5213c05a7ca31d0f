"""JAX arrays, eagerly; _jax_ffi.py handles traced arrays.

JAX does not expose its streams, so a call waits for its inputs, and on a GPU for its result, too.
The output is a new array that nothing else refers to, written in place before it is returned.
"""

import ctypes
from collections.abc import Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from ._backend import Backend
from ._backward import OUTPUTS, BackwardCall, Gradients
from ._call import Call, Fields
from ._errors import ArgumentTypeError, DeviceError, InvalidArgumentError, UnsupportedError
from ._layout import Layout, check_rank, dense_strides, dtype_code
from ._library import CPU, CUDA
from ._numpy import numpy_dtype
from ._plan import Plan, aligned, host_workspace


def _device(array: Any) -> Any:
    (device,) = array.devices()
    return device


def _synchronize(index: int) -> None:
    """Waits for the GPU's default stream through the driver, which is loaded if JAX uses a GPU."""
    driver = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    steps = [
        lambda: driver.cuDeviceGet(ctypes.byref(device), index),
        lambda: driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
        lambda: driver.cuCtxPushCurrent_v2(context),
        lambda: driver.cuStreamSynchronize(None),
        lambda: driver.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())),
        lambda: driver.cuDevicePrimaryCtxRelease_v2(device),
    ]
    for step in steps:
        status = step()
        if status != 0:
            raise DeviceError(f"device: waiting for cuda:{index} failed with CUDA error {status}")


class JaxBackend(Backend):
    wanted = "a jax.Array"

    def owns(self, array: Any) -> bool:
        return isinstance(array, jax.Array)

    def key(self, array: Any) -> Hashable:
        return jax, array.dtype, array.shape, array.sharding

    def layout(self, argument: str, array: Any) -> Layout:
        check_rank(argument, array.shape)
        if len(array.devices()) != 1:
            raise InvalidArgumentError(
                f"{argument}: lies on {len(array.devices())} devices, wanted one"
            )
        device = _device(array)
        if device.platform not in ("cpu", "gpu", "cuda"):
            raise UnsupportedError(f"{argument}: is on a {device.platform}, wanted a CPU or a GPU")
        kind = CPU if device.platform == "cpu" else CUDA
        index = 0 if kind == CPU else device.local_hardware_id
        shape = tuple(array.shape)
        return Layout(
            dtype_code(argument, array.dtype.name), shape, dense_strides(shape), (kind, index)
        )

    def dtype(self, argument: str, dtype: Any) -> int:
        try:
            return dtype_code(argument, jnp.dtype(dtype).name)
        except TypeError:
            return super().dtype(argument, dtype)

    def pointer(self, array: Any) -> int:
        return array.unsafe_buffer_pointer() if array.size else 0

    def empty(self, layout: Layout, like: Any) -> Any:
        return self._fresh(layout.shape, numpy_dtype(layout.dtype), like)

    def _fresh(self, shape: Sequence[int], dtype: Any, like: Any) -> Any:
        return jnp.empty(shape, dtype, device=_device(like)).block_until_ready()

    def workspace(self, nbytes: int, like: Any) -> tuple[Any, int]:
        if _device(like).platform == "cpu":
            return host_workspace(nbytes)
        owner = self._fresh([nbytes + 256], jnp.uint8, like)
        return owner, aligned(owner.unsafe_buffer_pointer())

    def check_writable(self, argument: str, array: Any) -> None:
        raise ArgumentTypeError(f"{argument}: is a jax.Array, which is immutable, wanted None")

    def run(self, plan: Plan, call: Fields) -> Any:
        result = super().run(plan, call)
        if plan.device[0] == CUDA:
            _synchronize(plan.device[1])
        return result

    def attention(self, call: Fields) -> Any:
        of = Call._make(call)
        arrays = list(of.inputs().values())
        if any(isinstance(array, jax.core.Tracer) for array in arrays):
            self.check_types(of._replace(outputs=None))
            for name, array in of.given_outputs().items():
                self.check_writable(name, array)
            from ._jax_ffi import attention

            return attention(of, self.dtype)
        jax.block_until_ready(arrays)
        return self.compute(call)

    def backward(self, call: BackwardCall) -> Gradients:
        arrays = call.arrays
        if any(isinstance(array, jax.core.Tracer) for array in arrays.values()):
            raise UnsupportedError(
                "attention_backward: is traced by JAX, wanted it outside of jit, grad and vmap; "
                "there, differentiate attention"
            )
        for name in OUTPUTS:
            if name in arrays:
                self.check_writable(name, arrays[name])
        jax.block_until_ready(list(arrays.values()))
        gradients = super().backward(call)
        device = _device(arrays["q"])
        if device.platform != "cpu":
            _synchronize(device.local_hardware_id)
        return gradients


backend = JaxBackend()
