"""The frameworks, and the ways through each of them, for the tests that all of them share.

A way takes NumPy arrays and gives NumPy arrays back. In between it calls FlashCore with arrays of
its framework: eagerly, through PyTorch's operator and autograd, or traced by JAX.
"""

import importlib
import importlib.util
import sys
import types

import ml_dtypes
import numpy as np
import pytest

import flashcore

LEARNING = ("q", "k", "v", "bias", "sinks", "alibi_slopes")  # in the order of Gradients


class Way:
    """NumPy, eagerly."""

    package = "numpy"
    on_gpu = False
    has_fp8 = True  # and the other dtypes of ml_dtypes

    def __init__(self, monkeypatch):
        """Makes it ready for one test."""
        self.module = importlib.import_module(self.package)

    @classmethod
    def is_there(cls):
        if importlib.util.find_spec(cls.package) is None:
            return False
        return not cls.on_gpu or (flashcore.build_info()["cuda"] and cls.sees_gpu())

    def array(self, x):
        if not self.has_fp8 and x.dtype.name in dir(ml_dtypes):
            pytest.skip("this framework does not have it")
        return self.of_numpy(x)

    def of_numpy(self, x):
        return x

    def numpy(self, x):
        return x

    def dtype(self, name):
        return np.dtype(getattr(ml_dtypes, name, name))

    def call(self, function, arrays, options):
        """Calls a function with arrays of the framework."""
        return function(**arrays, **options)

    def split(self, given):
        """Returns the arrays, as those of the framework, and the rest."""
        arrays = {name: self.array(x) for name, x in given.items() if isinstance(x, np.ndarray)}
        return arrays, {name: x for name, x in given.items() if name not in arrays}

    def run(self, function, **given):
        """Returns the results of a call with NumPy arrays, as NumPy arrays."""
        found = self.call(function, *self.split(given))
        if isinstance(found, tuple):
            return tuple(x if x is None else self.numpy(x) for x in found)
        return self.numpy(found)

    def gradients(self, d_out, d_lse, **given):
        """Returns the gradient of each array that has one, by the array's name."""
        asked = {f"d_{name}": True for name in LEARNING[3:] if name in given}
        asked |= {"d_out": d_out, "d_lse": d_lse}
        found = self.run(flashcore.attention_backward, **given, **asked)
        # And after the results of the forward pass.
        out, lse = self.run(flashcore.attention, return_lse=True, **given)
        again = self.run(flashcore.attention_backward, out=out, lse=lse, **given, **asked)
        for one, other in zip(found, again, strict=True):
            assert np.array_equal(one, other)
        return {n: x for n, x in zip(LEARNING, found, strict=True) if x is not None}


class Tiny:
    """An array of an unknown framework: DLPack, and nothing else."""

    def __init__(self, data):
        self.data = data

    def __dlpack__(self, **options):
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.data.__dlpack_device__()


class OldTiny(Tiny):
    """An exporter from before DLPack 1.0: no keywords."""

    def __dlpack__(self, stream=None):
        return self.data.__dlpack__()


def add_tiny_framework(monkeypatch, *kinds):
    """Makes the classes those of a framework that has from_dlpack."""
    module = types.ModuleType("tiny_framework")
    module.from_dlpack = lambda data: Tiny(np.from_dlpack(data))
    monkeypatch.setitem(sys.modules, "tiny_framework", module)
    for kind in kinds:
        monkeypatch.setattr(kind, "__module__", "tiny_framework")


class Dlpack(Way):
    kind = Tiny
    has_fp8 = False  # NumPy exports none

    def __init__(self, monkeypatch):
        add_tiny_framework(monkeypatch, Tiny, OldTiny)

    def of_numpy(self, x):
        return self.kind(x)

    def numpy(self, x):
        assert type(x) is Tiny
        return x.data


class OldDlpack(Dlpack):
    kind = OldTiny


class Torch(Way):
    package = "torch"
    device = "cpu"

    def of_numpy(self, x):
        if x.dtype.name not in dir(ml_dtypes):
            return self.module.from_numpy(x).to(self.device)
        bits = x.view(np.uint8 if x.itemsize == 1 else np.uint16)
        return self.module.from_numpy(bits).view(self.dtype(x.dtype.name)).to(self.device)

    def numpy(self, x):
        assert type(x) is self.module.Tensor
        assert x.device.type == self.device
        name, x = str(x.dtype).removeprefix("torch."), x.detach().cpu()
        if name not in dir(ml_dtypes):
            return x.numpy()
        bits = self.module.uint8 if x.itemsize == 1 else self.module.uint16
        return x.view(bits).numpy().view(getattr(ml_dtypes, name))

    def dtype(self, name):
        return getattr(self.module, name)


class TorchOnGpu(Torch):
    device = "cuda"
    on_gpu = True

    @staticmethod
    def sees_gpu():
        return importlib.import_module("torch").cuda.is_available()


class TorchOperator(Torch):
    """The registered operator, as a dispatch mode sees it, and its derivative."""

    def call(self, function, arrays, options):
        from torch.utils._python_dispatch import TorchDispatchMode

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                return function(*args, **(kwargs or {}))

        with Mode():
            return function(**arrays, **options)

    def gradients(self, d_out, d_lse, **given):
        arrays, options = self.split(given)
        learning = {n: arrays[n].requires_grad_() for n in LEARNING if n in given}
        results = flashcore.attention(**arrays, **options, return_lse=True)
        d_results = [self.array(d_out), self.array(d_lse)]
        found = self.module.autograd.grad(results, list(learning.values()), d_results)
        return {name: self.numpy(x) for name, x in zip(learning, found, strict=True)}


class Jax(Way):
    package = "jax"

    def __init__(self, monkeypatch):
        super().__init__(monkeypatch)
        self.on_gpu = self.module.default_backend() == "gpu"

    def of_numpy(self, x):
        return self.module.numpy.asarray(x)

    def numpy(self, x):
        assert isinstance(x, self.module.Array)
        return np.asarray(x)


class JaxJit(Jax):
    """Under jit, and differentiated there."""

    def call(self, function, arrays, options):
        return self.module.jit(lambda arrays: function(**arrays, **options))(arrays)

    def gradients(self, d_out, d_lse, **given):
        arrays, options = self.split(given)
        learning = {n: arrays.pop(n) for n in LEARNING if n in given}

        def pulled_back(learning, d_results):
            def results(learning):
                return flashcore.attention(**learning, **arrays, **options, return_lse=True)

            return self.module.vjp(results, learning)[1](d_results)[0]

        found = self.module.jit(pulled_back)(learning, (self.array(d_out), self.array(d_lse)))
        return {name: self.numpy(x) for name, x in found.items()}


class Cupy(Way):
    package = "cupy"
    on_gpu = True
    has_fp8 = False

    @staticmethod
    def sees_gpu():
        return importlib.import_module("cupy").is_available()

    def of_numpy(self, x):
        return self.module.asarray(x)

    def numpy(self, x):
        assert isinstance(x, self.module.ndarray)
        return x.get()


WAYS = {
    "numpy": Way,
    "dlpack": Dlpack,
    "old dlpack": OldDlpack,
    "torch": Torch,
    "torch operator": TorchOperator,
    "torch cuda": TorchOnGpu,
    "jax": Jax,
    "jax jit": JaxJit,
    "cupy": Cupy,
}


def _ways(wanted):
    """Frameworks and devices that are not there have no tests."""
    found = [
        pytest.param(kind, id=name, marks=pytest.mark.gpu if kind.on_gpu else ())
        for name, kind in WAYS.items()
        if wanted(kind) and kind.is_there()
    ]
    return pytest.mark.parametrize("way", found, indirect=True)


each_way = _ways(lambda kind: True)
each_way_of_fp8 = _ways(lambda kind: kind.has_fp8)
