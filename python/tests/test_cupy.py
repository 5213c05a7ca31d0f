"""CuPy arrays, on a GPU."""

import gates
import numpy as np
import pytest

import flashcore

cupy = pytest.importorskip("cupy")
if not (cupy.is_available() and flashcore.build_info()["cuda"]):
    pytest.skip("needs a GPU", allow_module_level=True)


def test_the_same_as_with_numpy(rng):
    q, k, v = (rng.normal(size=(2, 4, 37, 64)).astype(np.float16) for _ in range(3))
    expected, expected_lse = flashcore.attention(q, k, v, causal=True, return_lse=True)
    device = [cupy.asarray(x) for x in (q, k, v)]
    out, lse = flashcore.attention(*device, causal=True, return_lse=True)
    assert isinstance(out, cupy.ndarray)
    gates.check(out.get(), expected, "float16")
    gates.check_lse(lse.get(), expected_lse, "float16")


def test_layout_and_stream(rng):
    data = cupy.asarray(rng.normal(size=(2, 37, 4, 64)).astype(np.float16))
    x = data.transpose(0, 2, 1, 3)
    expected = flashcore.attention(x, x, x)
    assert expected.transpose(0, 2, 1, 3).flags.c_contiguous
    with cupy.cuda.Stream(non_blocking=True) as stream:
        out = flashcore.attention(x, x, x)
        stream.synchronize()
    assert cupy.array_equal(out, expected)


def test_hostile(rng):
    x = cupy.ones((1, 4, 8, 64), np.float16)
    with pytest.raises(TypeError, match=r"wanted a cupy\.ndarray, as q is"):
        flashcore.attention(x, x.get(), x)
    wide = cupy.ones((1, 4, 8, 584), np.float16)
    with pytest.raises(NotImplementedError, match="no kernel of this device"):
        flashcore.attention(wide, wide, wide)
