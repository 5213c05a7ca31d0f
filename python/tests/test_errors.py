"""Hostile input: every mistake raises an exception whose message says what is wanted."""

import importlib.util
import re

import numpy as np
import pytest
from process import python

import flashcore


@pytest.fixture
def x():
    return np.ones((1, 2, 4, 8), np.float32)


def message(kind, call, *args, **options):
    with pytest.raises(kind) as caught:
        call(*args, **options)
    assert isinstance(caught.value, flashcore.Error)
    text = str(caught.value)
    assert ": " in text
    assert "\n" not in text
    return text


# Functions, the arrays that each wants, and some of those that it takes.
FUNCTIONS = {
    flashcore.attention: ("q k v", "bias mask sinks seqlens_kv cu_seqlens_q out"),
    flashcore.attention_backward: ("d_out q k v", "out lse d_lse bias mask seqlens_kv dq dv"),
}
each_function = pytest.mark.parametrize("call", FUNCTIONS)


@each_function
@pytest.mark.parametrize("bad", [None, 1, "q", [[1.0]], object(), b"x", np.float32(1)])
def test_no_array(x, bad, call):
    for name in (names := FUNCTIONS[call][0].split()):
        arrays = dict.fromkeys(names, x) | {name: bad}
        text = message(flashcore.ArgumentTypeError, call, **arrays)
        assert re.match(f"{name}: is (an [aeiou]|a [^aeiou])", text), text
        assert "wanted a" in text


@pytest.mark.parametrize(
    ("call", "name"), [(call, name) for call in FUNCTIONS for name in FUNCTIONS[call][1].split()]
)
def test_no_optional_array(x, call, name):
    arrays = dict.fromkeys(FUNCTIONS[call][0].split(), x)
    text = message(flashcore.ArgumentTypeError, call, **arrays, **{name: [1, 2]})
    assert text.startswith(f"{name}: is a list, wanted a numpy.ndarray, as q is")


@pytest.mark.parametrize("dtype", ["int64", "complex64", "uint8", "longdouble", "S4", object])
def test_dtypes_that_there_are_not(x, dtype):
    bad = np.zeros(x.shape, dtype)
    text = message(flashcore.InvalidArgumentError, flashcore.attention, bad, bad, bad)
    assert text.startswith("q: dtype is ")
    assert "float32" in text
    assert "float64" not in text, "the library takes none"


# Valid arrays by argument name; each test changes one.
ARGUMENTS = {
    "q": (1, 2, 4, 8),
    "k": (1, 2, 4, 8),
    "v": (1, 2, 4, 8),
    "bias": (1, 2, 4, 4),
    "mask": (1, 1, 4, 4),
    "alibi_slopes": (2,),
    "sinks": (2,),
    "seqlens_q": (1,),
    "seqlens_kv": (1,),
    "causal_offsets": (1,),
    "out": (1, 2, 4, 8),
    "out_lse": (1, 2, 4),
}
# Names that only the library uses.
FOREIGN = re.compile(r"(?<![./\w'])(f64|f32|f16|bf16|f8e\w+|i32|boolean|o|lse)(?![\w'])")


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int32", "bool"])
def test_messages_name_arguments_and_dtypes_as_python_does(x, name, dtype):
    given = {"q": x, "k": x, "v": x, "return_lse": True, name: np.ones(ARGUMENTS[name], dtype)}
    if name == "causal_offsets":
        given |= {"causal": True, "alignment": "given"}
    try:
        flashcore.attention(**given)
    except flashcore.Error as error:
        text = str(error)
    else:
        return  # it is one of the argument's dtypes
    assert not FOREIGN.search(text)
    # If q gets a valid dtype, k is the one that differs from it.
    culprit = "k" if name == "q" and dtype == "float16" else name
    assert text.startswith((f"{culprit}: dtype is ", "problem: no kernel", "causal_offset"))
    assert dtype in text or not text.startswith(f"{culprit}: dtype is ")


def test_refusals_and_reasons_speak_python(x):
    half = x.astype(np.float16)
    seen = 0
    for options in ({}, {"out_dtype": "float64"}, {"softcap": 2.0}, {"out_dtype": np.float16}):
        for tensor in (x, half):
            for verdict in flashcore.explain(tensor, tensor, tensor, return_lse=True, **options):
                assert not FOREIGN.search(verdict["refusal"])
                seen += "float" in verdict["refusal"]
    assert seen > 0
    text = message(flashcore.InvalidArgumentError, flashcore.attention, x, x, x, kernel="f16 o lse")
    assert "'f16 o lse'" in text, "what the caller wrote stays as it is"


X = np.ones((1, 2, 4, 8), np.float32)
FROZEN = np.zeros_like(X)
FROZEN.flags.writeable = False
ODD = np.ndarray(X.shape, np.float32, bytearray(4096), strides=(1024, 515, 32, 4))
HALF, WIDE, SWAPPED = X.astype("f2"), X.astype("f8"), X.astype(X.dtype.newbyteorder())
LSE, LSE_OF_5 = np.zeros((1, 2, 4), np.float32), np.zeros((1, 2, 5), np.float32)


# What differs in attention(X, X, X), and the sentence that it gets.
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"k": HALF, "v": HALF}, "k: dtype is float16, wanted q's float32, or fp8"),
        (
            {"mask": np.ones((1, 1, 4, 4))},
            "mask: dtype is float64, wanted bool; what is to be added to the scores is a bias",
        ),
        ({"q": SWAPPED}, "q: dtype is >f4, wanted this machine's byte order"),
        (
            {"q": WIDE, "k": WIDE, "v": WIDE},  # the first one is blamed
            "q: dtype is float64, wanted one of float32, float16, bfloat16, float8_e4m3fn, "
            "float8_e5m2",
        ),
        ({"k": np.ones((), np.float32)}, "k: shape [] has rank 0, wanted 1 to 4"),
        ({"k": X[None]}, "k: shape [1, 1, 2, 4, 8] has rank 5, wanted 1 to 4"),
        (
            {"k": X[..., :4]},
            "k: shape is [1, 2, 4, 4], wanted [B, Hkv, Skv, Dqk] = [1, 2, 4, 8]",
        ),
        ({"q": X[0]}, "q: rank is 3, wanted 4 for [B, Hq, Sq, Dqk]"),
        ({"q": X.repeat(2, 3)[..., ::2]}, "q: stride of the last dimension is 2, wanted 1"),
        ({"q": ODD}, "q: a stride is 515 bytes, wanted a multiple of the element's 4"),
        ({"out": FROZEN}, "out: is read-only, wanted memory to write into"),
        ({"out": X[0]}, "out: rank is 3, wanted 4 for [B, Hq, Sq, Dv]"),
        (
            {"out_lse": LSE_OF_5, "return_lse": True},
            "out_lse: shape is [1, 2, 5], wanted [B, Hq, Sq] = [1, 2, 4]",
        ),
        ({"out_lse": LSE}, "out_lse: is present, wanted it only with return_lse=True"),
        (
            {"dropout_p": 0.5, "dropout_seed": -1},
            "dropout_seed: is -1, wanted 0 to 18446744073709551615",
        ),
        (
            {"dropout_p": 0.5, "dropout_seed": 2**64},
            "dropout_seed: is 18446744073709551616, wanted 0 to 18446744073709551615",
        ),
    ],
)
def test_sentences(changes, sentence):
    given = {"q": X, "k": X, "v": X} | changes
    assert message(flashcore.InvalidArgumentError, flashcore.attention, **given) == sentence
    assert not FROZEN.any()


def test_outputs_do_not_overlap_inputs(x):
    text = message(flashcore.InvalidArgumentError, flashcore.attention, x, x, x, out=x)
    assert "overlaps" in text


@pytest.mark.parametrize(
    ("option", "value", "kind"),
    [
        ("causal", "yes", flashcore.ArgumentTypeError),
        ("causal", 2, flashcore.ArgumentTypeError),
        ("softmax_scale", "x", flashcore.ArgumentTypeError),
        ("softmax_scale", float("nan"), flashcore.InvalidArgumentError),
        ("softmax_scale", 1e300, flashcore.InvalidArgumentError),
        ("softmax_scale", 10**400, flashcore.InvalidArgumentError),
        ("softcap", -1.0, flashcore.InvalidArgumentError),
        ("softcap", None, flashcore.ArgumentTypeError),
        ("alignment", "middle", flashcore.InvalidArgumentError),
        ("alignment", 1, flashcore.InvalidArgumentError),
        ("causal_offset", 2**70, flashcore.InvalidArgumentError),
        ("causal_offset", 1.5, flashcore.ArgumentTypeError),
        ("causal_offset", 3, flashcore.InvalidArgumentError),
        ("window", (1,), flashcore.ArgumentTypeError),
        ("window", 7, flashcore.ArgumentTypeError),
        ("window", (1.0, 2), flashcore.ArgumentTypeError),
        ("window", (-2, 0), flashcore.InvalidArgumentError),
        ("window", [{}, 1], flashcore.ArgumentTypeError),
        ("dropout_p", 1.5, flashcore.InvalidArgumentError),
        ("dropout_p", 0.5, flashcore.InvalidArgumentError),  # and no seed
        ("max_seqlen_q", -1, flashcore.InvalidArgumentError),
        ("max_seqlen_q", 4, flashcore.InvalidArgumentError),  # not packed
        ("kernel", "fastest", flashcore.InvalidArgumentError),
        ("kernel", "reference\0", flashcore.InvalidArgumentError),
        ("kernel", 3, flashcore.ArgumentTypeError),
        ("kernel", "naive", flashcore.UnsupportedError),
        ("threads", -1, flashcore.InvalidArgumentError),
        ("threads", 10**6, flashcore.InvalidArgumentError),
        ("threads", [], flashcore.ArgumentTypeError),
        ("batch_invariant", "no", flashcore.ArgumentTypeError),
        ("early_start", 2, flashcore.ArgumentTypeError),
        ("out_dtype", "float128", flashcore.InvalidArgumentError),
        ("out_dtype", "int32", flashcore.InvalidArgumentError),
        ("out_dtype", 5, flashcore.ArgumentTypeError),
        ("out_dtype", "no such thing", flashcore.ArgumentTypeError),
    ],
)
def test_options(x, option, value, kind):
    text = message(kind, flashcore.attention, x, x, x, **{option: value})
    assert "wanted" in text
    assert text.startswith(option.partition("_")[0]) or kind is flashcore.UnsupportedError


@each_function
def test_lengths_are_read_before_anything_is_written(x, call):
    out = np.full_like(x, 7)
    given = dict.fromkeys(FUNCTIONS[call][0].split(), x) | {"seqlens_kv": np.array([5], np.int32)}
    if call is flashcore.attention_backward:  # of what the forward pass left
        given |= zip(("out", "lse"), flashcore.attention(x, x, x, return_lse=True), strict=True)
    given["dq" if "d_out" in given else "out"] = out
    message(flashcore.InvalidArgumentError, call, **given)
    assert (out == 7).all()


def test_unknown_keyword(x):
    with pytest.raises(TypeError, match="is_causal"):
        flashcore.attention(x, x, x, is_causal=True)


def test_masked_arrays_are_not_taken_for_their_data(x):
    masked = np.ma.masked_array(x, x > 0)
    text = message(flashcore.ArgumentTypeError, flashcore.attention, masked, x, x)
    assert "MaskedArray" in text


def test_builtin_classes(x):
    for kind, builtin in [
        (flashcore.InvalidArgumentError, ValueError),
        (flashcore.UnsupportedError, NotImplementedError),
        (flashcore.ArgumentTypeError, TypeError),
        (flashcore.OutOfMemoryError, MemoryError),
        (flashcore.DeviceError, RuntimeError),
        (flashcore.InternalError, RuntimeError),
    ]:
        assert issubclass(kind, builtin)
    with pytest.raises(ValueError, match="softcap: is -1"):
        flashcore.attention(x, x, x, softcap=-1)
    with pytest.raises(NotImplementedError, match="naive"):
        flashcore.attention(x, x, x, kernel="naive")


def importing(library):
    """Returns the output of `import flashcore` with this library."""
    run = python("-c", "import flashcore", FLASHCORE_LIBRARY=str(library))
    assert run.returncode != 0
    return run.stderr.splitlines()[-1]


def test_a_missing_library_is_named(tmp_path):
    missing = tmp_path / "no.so"
    assert importing(missing).startswith(f"ImportError: flashcore: there is no {missing}")


def test_another_library_is_named():
    other = importlib.util.find_spec("numpy.linalg._umath_linalg").origin
    said = importing(other)
    assert said.startswith(f"ImportError: flashcore: {other} has no function flashcore_")
    assert "wanted the shared library of this package" in said


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_dtypes_that_numpy_lacks_name_the_package(dtype):
    program = f"""
import sys
sys.modules["ml_dtypes"] = None  # not installed
import numpy, flashcore
x = numpy.ones((1, 1, 2, 8), numpy.float16)
try:
    flashcore.attention(x, x, x, out_dtype="{dtype}")
except flashcore.Error as error:
    print(error)
"""
    run = python("-c", program)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(
        f"out_dtype: is {dtype}, which NumPy has from the package ml_dtypes"
    )
    assert "wanted" in run.stdout


def test_a_library_that_does_not_load_is_named(tmp_path):
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"no library")
    said = importing(broken)
    assert said.startswith("ImportError: flashcore: ")
    assert str(broken) in said
    assert "wanted Linux" in said


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("scale", "softmax_scale"),
        ("is_causal", "causal"),
        ("attn_mask", "mask"),
        ("sotfcap", "softcap"),
        ("zzz", "one of help(flashcore.attention)"),
    ],
)
def test_unknown_keywords_name_the_one_that_was_meant(x, name, meant):
    for call in (flashcore.attention, flashcore.explain):
        text = message(flashcore.ArgumentTypeError, call, x, x, x, **{name: 1})
        assert text == f"{name}: is no argument of attention, wanted {meant}"


def test_every_function_names_unknown_keywords(x):
    calls = {
        flashcore.attention_backward: (x, x, x, x),
        flashcore.decode: (x, x, x),
        flashcore.merge: (x, x, x, x),
        flashcore.append: (x, x, x, x),
        flashcore.quantize: (x,),
        flashcore.transpose_v: (x,),
    }
    for call, arrays in calls.items():
        needed = {"seqlens_kv": x} if call is flashcore.append else {}
        text = message(flashcore.ArgumentTypeError, call, *arrays, **needed, thread=1)
        assert text == f"thread: is no argument of {call.__name__}, wanted threads"


def test_the_module_takes_no_words():
    bogus = python("-m", "flashcore", "bogus")
    assert bogus.returncode == 2
    assert "unrecognized arguments: bogus" in bogus.stderr
    assert bogus.stdout == ""
    plain = python("-m", "flashcore")
    assert plain.returncode == 0
    assert plain.stdout.startswith("flashcore ")
