"""FlashCore: softmax(Q K^T) V, one operator with one meaning on every backend.

>>> import numpy as np, flashcore
>>> q = np.random.default_rng(0).normal(size=(1, 8, 128, 64)).astype(np.float32)
>>> o = flashcore.attention(q, q, q, causal=True)

`python -m flashcore` prints what is installed, `flashcore.explain` which kernel a problem gets.
`flashcore.torch` is a drop-in for PyTorch, `flashcore.transformers` one for transformers.
"""

from ._attention import attention, clear_plans, explain
from ._backward import Gradients
from ._config import show_config
from ._errors import (
    ArgumentTypeError,
    DeviceError,
    Error,
    InternalError,
    InvalidArgumentError,
    OutOfMemoryError,
    UnsupportedError,
)
from ._gradients import attention_backward
from ._kv_cache import KVCache, OutOfPagesError, Step
from ._library import build_info, devices, version
from ._quantize import Quantized, quantize, transpose_v
from ._serving import append, decode, merge
from ._tune import Tuning, tune

__version__ = version()

__all__ = [
    "ArgumentTypeError",
    "DeviceError",
    "Error",
    "Gradients",
    "InternalError",
    "InvalidArgumentError",
    "KVCache",
    "OutOfMemoryError",
    "OutOfPagesError",
    "Quantized",
    "Step",
    "Tuning",
    "UnsupportedError",
    "__version__",
    "append",
    "attention",
    "attention_backward",
    "build_info",
    "clear_plans",
    "decode",
    "devices",
    "explain",
    "merge",
    "quantize",
    "show_config",
    "transpose_v",
    "tune",
    "version",
]
