"""Arrays of a framework that this package has never heard of, through DLPack."""

import sys
import types

import numpy as np
import pytest

import flashcore


class Array:
    """As little as an array can be: DLPack, and nothing else."""

    def __init__(self, data):
        self.data = data

    def __dlpack__(self, **options):
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.data.__dlpack_device__()


class OldArray(Array):
    """From before DLPack 1.0: no keywords."""

    def __dlpack__(self, stream=None):
        return self.data.__dlpack__()


class GpuArray(Array):
    def __dlpack_device__(self):
        return (2, 0)


@pytest.fixture(autouse=True)
def framework(monkeypatch):
    module = types.ModuleType("tiny_framework")
    module.from_dlpack = lambda data: Array(np.from_dlpack(data))
    monkeypatch.setitem(sys.modules, "tiny_framework", module)
    for kind in (Array, OldArray, GpuArray):
        monkeypatch.setattr(kind, "__module__", "tiny_framework")


@pytest.mark.parametrize("kind", [Array, OldArray])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_in_and_out(rng, kind, dtype):
    q, k, v = (rng.normal(size=(1, 2, 5, 8)).astype(dtype) for _ in range(3))
    mask = rng.random((1, 1, 5, 5)) < 0.7
    expected, expected_lse = flashcore.attention(q, k, v, mask=mask, return_lse=True)
    out, lse = flashcore.attention(kind(q), kind(k), kind(v), mask=kind(mask), return_lse=True)
    assert type(out) is Array
    assert np.array_equal(out.data, expected)
    assert np.array_equal(lse.data, expected_lse)


def test_strides(rng):
    q = rng.normal(size=(1, 5, 2, 8)).astype(np.float32).transpose(0, 2, 1, 3)
    out = flashcore.attention(Array(q), Array(q), Array(q))
    assert np.array_equal(out.data, flashcore.attention(q, q, q))


def test_written_into(rng):
    q = rng.normal(size=(1, 2, 5, 8)).astype(np.float32)
    out = Array(np.zeros_like(q))
    assert flashcore.attention(Array(q), Array(q), Array(q), out=out) is out
    assert np.array_equal(out.data, flashcore.attention(q, q, q))


def test_other_devices_and_frameworks():
    x = np.ones((1, 1, 2, 8), np.float32)
    with pytest.raises(flashcore.UnsupportedError, match="wanted the CPU"):
        flashcore.attention(GpuArray(x), GpuArray(x), GpuArray(x))
    with pytest.raises(flashcore.ArgumentTypeError, match="k: is a numpy.ndarray"):
        flashcore.attention(Array(x), x, x)
    with pytest.raises(flashcore.ArgumentTypeError, match="wanted a numpy.ndarray, as q is"):
        flashcore.attention(x, Array(x), x)
    with pytest.raises(flashcore.InvalidArgumentError, match="DLPack dtype"):
        flashcore.attention(*[Array(x.astype(np.int64))] * 3)
