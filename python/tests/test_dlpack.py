"""Arrays of an unknown framework, through DLPack."""

import weakref

import numpy as np
import pytest
from frameworks import Tiny as Array
from frameworks import add_tiny_framework

import flashcore


class MortalArray(Array):
    """An array whose memory is valid only while its capsule lives: exports a copy and spoils it."""

    def __init__(self, data, keywords=True):
        super().__init__(data)
        self.keywords, self.exports, self.alive, self.memory = keywords, 0, 0, []

    def __dlpack__(self, **options):
        if options and not self.keywords:
            raise TypeError("from before DLPack 1.0")
        self.exports += 1
        self.alive += 1
        memory = bytearray(self.data.tobytes())
        self.memory.append(memory)  # so that a read after the end finds spoilt bytes
        array = np.frombuffer(memory, self.data.dtype).reshape(self.data.shape)
        weakref.finalize(array, self.end, memory)
        return array.__dlpack__(**options)

    def end(self, memory):
        self.alive -= 1
        memory[:] = b"\xff" * len(memory)


class GpuArray(Array):
    def __dlpack_device__(self):
        return (2, 0)


@pytest.fixture(autouse=True)
def framework(monkeypatch):
    add_tiny_framework(monkeypatch, Array, MortalArray, GpuArray)


def test_written_into(rng):
    q = rng.normal(size=(1, 2, 5, 8)).astype(np.float32)
    out = Array(np.zeros_like(q))
    assert flashcore.attention(Array(q), Array(q), Array(q), out=out) is out
    assert np.array_equal(out.data, flashcore.attention(q, q, q))


# Every array of a call, including those that some kernel reads late.
CALLS = {
    "plain": {},
    "mask": {"mask": np.arange(25).reshape(1, 1, 5, 5) % 4 != 1},
    "bias and sinks": {
        "bias": np.linspace(-2, 2, 50, dtype=np.float32).reshape(1, 2, 5, 5),
        "sinks": np.ones(2, np.float32),
    },
    "ALiBi": {"alibi_slopes": np.array([0.5, 0.25], np.float32)},
    "lengths": {"seqlens_q": np.array([4], np.int32), "seqlens_kv": np.array([3], np.int32)},
    "packed": {
        "cu_seqlens_q": np.array([0, 5], np.int32),
        "cu_seqlens_kv": np.array([0, 5], np.int32),
    },
}


@pytest.mark.parametrize("keywords", [True, False])
@pytest.mark.parametrize("kernel", [None, "reference"])
@pytest.mark.parametrize("name", CALLS)
def test_capsules_live_until_the_call_returns(rng, name, kernel, keywords):
    packed = "cu_seqlens_q" in CALLS[name]
    shape = (5, 2, 8) if packed else (1, 2, 5, 8)
    tensors = [rng.normal(size=shape).astype(np.float32) for _ in range(3)]
    options = {"kernel": kernel, "return_lse": True}
    expected = flashcore.attention(*tensors, **CALLS[name], **options)
    flashcore.clear_plans()
    for what in ("a new plan", "a plan that is kept"):
        arrays = [MortalArray(data, keywords) for data in tensors]
        extras = {key: MortalArray(data, keywords) for key, data in CALLS[name].items()}
        found = flashcore.attention(*arrays, **extras, **options)
        for part, right in zip(found, expected, strict=True):
            assert np.array_equal(part.data, right), what
        for array in [*arrays, *extras.values()]:
            assert array.exports == 1, what
            assert array.alive == 0, "the call is over, and so is the loan"


def test_outputs_are_exported_once(rng):
    q = rng.normal(size=(1, 2, 5, 8)).astype(np.float32)
    expected, expected_lse = flashcore.attention(q, q, q, return_lse=True)
    out, lse = MortalArray(np.zeros_like(q)), MortalArray(np.zeros((1, 2, 5), np.float32))
    found = flashcore.attention(Array(q), Array(q), Array(q), out=out, out_lse=lse, return_lse=True)
    assert found[0] is out
    assert found[1] is lse
    for array in (out, lse):
        assert (array.exports, array.alive) == (1, 0)
    # Then into the caller's own memory.
    mine, mine_lse = Array(np.zeros_like(q)), Array(np.zeros((1, 2, 5), np.float32))
    flashcore.attention(Array(q), Array(q), Array(q), out=mine, out_lse=mine_lse, return_lse=True)
    assert np.array_equal(mine.data, expected)
    assert np.array_equal(mine_lse.data, expected_lse)


def test_explain_and_failed_calls_give_the_memory_back():
    x = MortalArray(np.ones((1, 1, 2, 8), np.float32))
    verdicts = flashcore.explain(x, x, x, causal=True)
    assert sum(verdict["chosen"] for verdict in verdicts) == 1
    assert x.alive == 0
    with pytest.raises(flashcore.InvalidArgumentError, match="softcap"):
        flashcore.attention(x, x, x, softcap=-1)
    assert x.alive == 0


def test_read_only_outputs():
    x = np.ones((1, 1, 2, 8), np.float32)
    frozen = np.zeros_like(x)
    frozen.flags.writeable = False
    with pytest.raises(flashcore.InvalidArgumentError, match="out: is read-only"):
        flashcore.attention(Array(x), Array(x), Array(x), out=Array(frozen))
    assert not frozen.any()


def test_other_devices_and_frameworks():
    x = np.ones((1, 1, 2, 8), np.float32)
    with pytest.raises(flashcore.UnsupportedError, match="wanted the CPU"):
        flashcore.attention(GpuArray(x), GpuArray(x), GpuArray(x))
    with pytest.raises(flashcore.UnsupportedError, match="^mask: is a tiny_framework array on"):
        flashcore.attention(Array(x), Array(x), Array(x), mask=GpuArray(x > 0))
    with pytest.raises(flashcore.ArgumentTypeError, match="k: is a numpy.ndarray"):
        flashcore.attention(Array(x), x, x)
    with pytest.raises(flashcore.ArgumentTypeError, match="wanted a numpy.ndarray, as q is"):
        flashcore.attention(x, Array(x), x)
    with pytest.raises(flashcore.InvalidArgumentError, match="DLPack dtype"):
        flashcore.attention(*[Array(x.astype(np.int16))] * 3)
