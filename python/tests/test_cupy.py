"""CuPy arrays, on a GPU."""

import numpy as np
import pytest

import flashcore

cupy = pytest.importorskip("cupy")
if not (cupy.is_available() and flashcore.build_info()["cuda"]):
    pytest.skip("needs a GPU", allow_module_level=True)


def test_layout_and_stream(rng):
    data = cupy.asarray(rng.normal(size=(2, 37, 4, 64)).astype(np.float16))
    x = data.transpose(0, 2, 1, 3)
    expected = flashcore.attention(x, x, x)
    assert expected.transpose(0, 2, 1, 3).flags.c_contiguous
    with cupy.cuda.Stream(non_blocking=True) as stream:
        out = flashcore.attention(x, x, x)
        stream.synchronize()
    assert cupy.array_equal(out, expected)


def test_unsupported():
    wide = cupy.ones((1, 4, 8, 584), np.float16)
    with pytest.raises(NotImplementedError, match="no kernel of this device"):
        flashcore.attention(wide, wide, wide)
