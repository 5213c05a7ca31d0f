"""Every argument is used: it changes the result, is refused, or causes a warning."""

import inspect
import warnings

import numpy as np
import pytest

import flashcore

RNG = np.random.default_rng(0)


def draw(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int32)


def flat(found):
    if found is None:
        return []
    if isinstance(found, (tuple, list)):
        return [part for x in found for part in flat(x)]
    return [np.asarray(found)]


def outcome(call, arguments):
    """Returns a call's results, or its error or warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        try:
            return flat(call(**arguments))
        except (flashcore.Error, UserWarning) as error:
            return str(error)


def check_used(call, base, name, value):
    before, after = outcome(call, base), outcome(call, base | {name: value})
    assert not isinstance(before, str), before
    if isinstance(after, str):
        return
    same = len(before) == len(after) and all(
        x.shape == y.shape and x.dtype == y.dtype and np.array_equal(x, y, equal_nan=True)
        for x, y in zip(before, after, strict=True)
    )
    assert not same, f"{name} is accepted and not used"


def parameters(call):
    kinds = inspect.signature(call).parameters.values()
    return [p.name for p in kinds if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]


class With:
    """A value, and the other arguments that it needs to have a meaning."""

    def __init__(self, value, **base):
        self.value, self.base = value, base


Q, K, V = draw(2, 4, 9, 16), draw(2, 2, 11, 16), draw(2, 2, 11, 16)
OUT, LSE = flashcore.attention(Q, K, V, return_lse=True)
SCORES = {
    "causal": True,
    "softmax_scale": 0.9,
    "softcap": 0.5,
    "alibi_slopes": draw(4),
    "sinks": draw(4) + 3,
    "window": (1, 1),
    "alignment": With("top_left", causal=True),
    "causal_offset": With(2, causal=True, alignment="given"),
    "causal_offsets": With(ints(1, 2), causal=True, alignment="given"),
    "seqlens_q": ints(1, 2),
    "cu_seqlens_q": ints(0, 1, 2),
    "max_seqlen_q": 4,
    "kernel": "reference, or not",
    "threads": -1,
    "batch_invariant": 2,
}
DROPOUT = {"dropout_p": 0.5, "dropout_seed": 1}
ATTENTION = SCORES | {
    "bias": draw(1, 4, 9, 11),
    "mask": RNG.random((1, 1, 9, 11)) < 0.5,
    "seqlens_kv": ints(3, 4),
    "cu_seqlens_kv": ints(0, 3, 9),
    "max_seqlen_kv": 4,
    "dropout_p": With(0.4, **DROPOUT),
    "dropout_seed": With(2, **DROPOUT),
    "dropout_offset": With(2, **DROPOUT),
    "dropout_state": With(np.array([1, 2]), dropout_p=0.5, dropout_seed=1),
    "deterministic": 2,
}
OUTPUTS = {
    "q_scale": draw(2, 4),
    "o_scale": draw(2, 4),
    "v_transposed": True,
    "out_dtype": "float16",
    "return_lse": True,
    "return_amax": True,
    "return_max_logit": True,
    "out": draw(1),
    "out_lse": draw(1),
}
PAGES = ints(0, 1, 2, 3, 4, 5).reshape(2, 3)
FLAT = {"kv_indptr": ints(0, 2, 5), "kv_indices": ints(1, 2, 3, 4, 5)}
ROTATED = {"rope_base": 100.0}
NEW = {"k_new": draw(2, 2, 3, 16), "v_new": draw(2, 2, 3, 16)}
CACHE = {"k_cache": draw(6, 2, 4, 16), "v_cache": draw(6, 2, 4, 16)}
APPENDED = {
    "seqlens_new": ints(1, 1),
    "page_table": PAGES[::-1],
    **FLAT,
    "cache_leftpad": With(ints(1, 1), **ROTATED),
    "page_status": draw(1),
    "k_scale": draw(6, 2, 1),
    "v_scale": draw(6, 2, 1),
    "v_transposed": True,
    "rope_cos": draw(20, 8),
    "rope_sin": draw(20, 8),
    "rope_base": 10000.0,
    "rope_scale": With(0.5, **ROTATED),
    "rotary_dim": With(8, **ROTATED),
    "interleaved": With(True, **ROTATED),
    "threads": -1,
}


def appending(call):
    """Adds the caches that the call writes to its results."""

    def appended(**arguments):
        arguments |= {name: arguments[name].copy() for name in CACHE}
        return call(**arguments), arguments["k_cache"], arguments["v_cache"]

    return appended


def narrow(x):
    return flashcore.quantize(x, block=0)


FP8 = dict(zip(("k", "k_scale"), narrow(K)[:2], strict=True)) | dict(
    zip(("v", "v_scale"), narrow(V)[:2], strict=True)
)
ROWS_OF_4 = {"k_scale": np.ones((2, 2, 3), np.float32), "kv_scale_block": 4}
FP8_IN_BLOCKS = FP8 | ROWS_OF_4 | {"v_scale": ROWS_OF_4["k_scale"]}
ROWS_OF_2 = np.ones((6, 2, 2), np.float32)
CACHE_IN_BLOCKS = {
    "k_cache": narrow(CACHE["k_cache"]).values,
    "v_cache": narrow(CACHE["v_cache"]).values,
    "k_scale": ROWS_OF_2,
    "v_scale": ROWS_OF_2,
    "kv_scale_block": 2,
}
CALLS = {
    "attention": (
        flashcore.attention,
        flashcore.attention,
        {"q": Q, "k": K, "v": V},
        ATTENTION
        | OUTPUTS
        | {
            "k_scale": With(FP8["k_scale"] * 2, **FP8),
            "v_scale": With(FP8["v_scale"] * 2, **FP8),
            "kv_scale_block": With(8, **FP8_IN_BLOCKS),
            "early_start": 2,
        },
    ),
    "attention_backward": (
        flashcore.attention_backward,
        flashcore.attention_backward,
        {"d_out": draw(2, 4, 9, 16), "q": Q, "k": K, "v": V},
        ATTENTION
        | {
            "out": With(OUT * 2, out=OUT, lse=LSE),
            "lse": With(LSE + 1, out=OUT, lse=LSE),
            "d_lse": LSE,
            "grad_dtype": "float64",
            "dq": draw(1),
            "dk": draw(1),
            "dv": draw(1),
            "d_bias": With(True, bias=draw(1, 4, 9, 11)),
            "d_sinks": With(True, sinks=draw(4)),
            "d_alibi_slopes": With(True, alibi_slopes=draw(4)),
        },
    ),
    "decode": (
        flashcore.decode,
        appending(flashcore.decode),
        {"q": draw(2, 4, 3, 16), "page_table": PAGES, "seqlens_kv": ints(5, 9), **CACHE},
        SCORES
        | OUTPUTS
        | APPENDED
        | {
            "k_new": draw(2, 2, 3, 16),
            "v_new": draw(2, 2, 3, 16),
            "causal": False,
            "alignment": "top_left",
            "bias": draw(1, 4, 3, 12),
            "mask": RNG.random((1, 1, 3, 12)) < 0.5,
            "tree_mask": ints(1, 2, 3).reshape(1, 3, 1),
            "kv_last_page_len": ints(1, 2),
            "cache_batch_idx": ints(1, 0),
            "cache_leftpad": ints(1, 1),
            "seqlens_kv": ints(3, 4),
            "max_seqlen_kv": 6,
            "kv_scale_block": With(4, **CACHE_IN_BLOCKS),
            "rope_scale": 0.5,
            "rotary_dim": 8,
            "interleaved": True,
        },
    ),
    "decode with new rows": (
        flashcore.decode,
        appending(flashcore.decode),
        {"q": draw(2, 4, 3, 16), "page_table": PAGES, "seqlens_kv": ints(2, 4), **CACHE, **NEW},
        APPENDED,
    ),
    "append": (
        flashcore.append,
        appending(flashcore.append),
        {"page_table": PAGES, "seqlens_kv": ints(2, 4), **CACHE, **NEW},
        APPENDED
        | {
            "seqlens_kv": ints(3, 4),
            "cu_seqlens_new": ints(0, 1, 3),
            "q": draw(2, 4, 3, 16),
            "kv_scale_block": With(4, **CACHE_IN_BLOCKS),
        },
    ),
    "append without a rotation": (
        flashcore.append,
        appending(flashcore.append),
        {"page_table": PAGES, "seqlens_kv": ints(2, 4), **CACHE, **NEW},
        {"rope_scale": 0.5, "rotary_dim": 8, "interleaved": True},
    ),
    "append with tables": (
        flashcore.append,
        appending(flashcore.append),
        {"page_table": PAGES, "seqlens_kv": ints(2, 4), **CACHE, **NEW}
        | {"rope_cos": draw(20, 8), "rope_sin": draw(20, 8)},
        {"rope_scale": 0.5, "rotary_dim": 8, "interleaved": True, "rope_base": 100.0},
    ),
    "merge": (
        flashcore.merge,
        flashcore.merge,
        {"o_a": OUT, "lse_a": LSE, "o_b": draw(*OUT.shape), "lse_b": LSE + 1},
        {"out_dtype": "float16", "out": draw(1), "out_lse": draw(1), "threads": -1},
    ),
    "quantize": (
        flashcore.quantize,
        flashcore.quantize,
        {"x": K},
        {
            "dtype": "float8_e5m2",
            "scales": "tensor",
            "block": 4,
            "smooth": True,
            "cu_seqlens": ints(0, 3, 9),
            "seqlens": ints(3, 4),
            "max_seqlen": 3,
            "threads": -1,
        },
    ),
    "transpose_v": (
        flashcore.transpose_v,
        flashcore.transpose_v,
        {"v": FP8["v"]},
        {"columns": 256, "threads": -1},
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_argument_of_a_function_is_used(name):
    function, call, base, values = CALLS[name]
    known = {p for other in CALLS.values() if other[0] is function for p in (*other[2], *other[3])}
    assert known == set(parameters(function)), "an argument without a value in this test"
    for argument, value in values.items():
        if isinstance(value, With):
            check_used(call, base | value.base, argument, value.value)
        else:
            check_used(call, base, argument, value)


def hooks():
    """PyTorch's hooks: its own attention, and the function of transformers, in every variant."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    import flashcore.transformers as ours

    torch.manual_seed(0)
    q, k = torch.randn(1, 4, 20, 16), torch.randn(1, 4, 20, 16)
    mask = torch.rand(1, 1, 20, 20) < 0.7
    sdpa = {"query": q, "key": k, "value": k}
    found = {
        "sdpa": (
            flashcore.torch.scaled_dot_product_attention,
            sdpa,
            {
                "attn_mask": mask,
                "dropout_p": 0.5,
                "is_causal": True,
                "scale": 0.9,
            },
        ),
        "sdpa of fewer heads": (
            flashcore.torch.scaled_dot_product_attention,
            sdpa | {"key": k[:, :2], "value": k[:, :2], "enable_gqa": True},
            {"enable_gqa": False},
        ),
        "flash": (
            flashcore.torch._flash_forward,
            sdpa,
            {"dropout_p": 0.5, "is_causal": True, "return_debug_mask": True, "scale": 0.9},
        ),
    }
    starts = torch.tensor([0, 7, 20])
    lengths = {"cu_seq_lens_q": starts, "cu_seq_lens_k": starts}
    lengths |= {"max_length_q": 13, "max_length_k": 13}
    module = torch.nn.Module()
    module.layer_idx = 0

    class Cache:
        def update(self, key_states, value_states, layer_idx, kwargs):
            return key_states * 2, value_states * 2

    everywhere = {
        "attention_mask": torch.rand(1, 1, 20, 20) < 0.5,
        "dropout": 0.5,
        "scaling": 0.9,
        "softcap": 0.5,
        "s_aux": torch.randn(4) + 3,
        "position_bias": torch.randn(1, 4, 20, 20),
        "cache": Cache(),
        "block_table": torch.zeros(1, 1),
        "output_attentions": True,
        "deterministic": 2,
        "k_scale": torch.ones(1),
        "v_scale": torch.ones(1),
    }
    # A mask already includes causality and the window.
    without_mask = {"sliding_window": 3}
    packed = {"cu_seq_lens_q": starts[:2], "cu_seq_lens_k": starts[:2]}
    for causal in (True, False):
        for given in (None, mask):
            for of_row in ({}, lengths):
                base = {"module": module, "attention_mask": given, "is_causal": causal}
                values = everywhere | (without_mask if given is None else {})
                values |= {"is_causal": not causal} if given is None else {}
                values |= dict.fromkeys(packed) if of_row else packed
                title = f"transformers, causal {causal}, mask {given is not None}, {[*of_row]}"
                found[title] = (ours.attention_forward, sdpa | base | of_row, values)
    return found


def test_every_argument_of_a_hook_is_used():
    every = hooks()
    for title, (function, base, values) in every.items():
        known = {p for f, b, v in every.values() if f is function for p in (*b, *v)}
        assert set(parameters(function)) <= known, title
        for argument, value in values.items():
            check_used(function, base, argument, value)
