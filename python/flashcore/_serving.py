"""Serving: attention over caches, merge of two results, and append to a cache.

These calls take the arrays of one framework, like `attention`, and run on their device.
"""

from collections.abc import Hashable
from typing import Any, NoReturn

from ._attention import Alignment, Window, options_of
from ._backend import find, hashable, registered
from ._direct import DirectCall
from ._errors import InvalidArgumentError
from ._layout import F32, like
from ._library import (
    AppendArguments,
    AppendProblem,
    Arguments,
    MergeArguments,
    MergeProblem,
    check,
    fill,
    library,
    sized,
    with_defaults,
)
from ._operands import APPEND_TENSORS, CACHE_TENSORS, OPTIONAL_TENSORS, Options
from ._options import flag, integer, real, refuse_unknown
from ._plan import Plan, Request, cache


class _Append(DirectCall):
    """The arguments of append, from the keywords of a call."""

    def __init__(self, given: dict[str, Any]):
        arrays = {name: given[name] for name in APPEND_TENSORS if name in given}
        arrays |= {"k": given["k_cache"], "v": given["v_cache"]}
        super().__init__(arrays, written=("k", "v", "page_status"))
        if "q" in self.arrays:
            q = self.layouts["q"]
            self.add("q_out", q.dtype, q.shape, like(q, q.shape))
        problem, self.arguments = self.fill(with_defaults(AppendProblem), sized(AppendArguments))
        for name in ("kv_scale_block", "rotary_dim"):
            setattr(problem, name, integer(name, given[name], 0, 2**31 - 1))
        for name in ("rope_base", "rope_scale"):
            setattr(problem, name, real(name, given[name]))
        for name in ("interleaved", "v_transposed"):
            setattr(problem, name, flag(name, given[name]))
        if problem.rope_base == 0:
            if problem.rope_scale != 1:
                raise InvalidArgumentError(
                    f"rope_scale: is {problem.rope_scale}, wanted 1 without rope_base"
                )
            if problem.interleaved and "rope_cos" not in self.arrays:
                raise InvalidArgumentError("interleaved: is True, wanted False without a rotation")
        self.problem = problem
        self.seqlens_after: Any = None

    def has_rows_of(self, q: Any) -> bool:
        """Returns whether q has one query for each new row."""
        rows = -2 if len(self.first.shape) == 4 else 0
        return bool(q.shape[rows] == self.first.shape[rows])


# Arguments that `decode` takes only with new rows, and their defaults.
_OF_NEW_ROWS = {
    "seqlens_new": None,
    "rope_cos": None,
    "rope_sin": None,
    "rope_base": 0.0,
    "rope_scale": 1.0,
    "rotary_dim": 0,
    "interleaved": False,
}


def _refuse_without_new_rows(given: dict[str, Any]) -> None:
    for name, absent in _OF_NEW_ROWS.items():
        if given[name] is not absent and (absent is None or given[name] != absent):
            raise InvalidArgumentError(f"{name}: is given without k_new, wanted new rows")


def _step_of(given: dict[str, Any]) -> _Append:
    """Returns the append of `decode`; it has the lengths for the attention that follows."""
    for name in ("k_new", "v_new", "seqlens_kv"):
        if given[name] is None:
            raise InvalidArgumentError(
                f"{name}: is missing, wanted k_new, v_new and seqlens_kv, or no new rows"
            )
    given = given | {"cu_seqlens_new": given["cu_seqlens_q"]}
    if given["rope_cos"] is None and given["rope_sin"] is None and given["rope_base"] == 0:
        del given["q"]
    step = _Append(given)
    starts, count = given["cu_seqlens_new"], given["seqlens_new"]
    if count is None:
        count = step.first.shape[-2] if starts is None else starts[1:] - starts[:-1]
    step.seqlens_after = given["seqlens_kv"] + count
    return step


def decode(
    q: Any,
    k_cache: Any,
    v_cache: Any,
    *,
    k_new: Any = None,
    v_new: Any = None,
    seqlens_kv: Any = None,
    seqlens_new: Any = None,
    page_table: Any = None,
    kv_indptr: Any = None,
    kv_indices: Any = None,
    kv_last_page_len: Any = None,
    cache_batch_idx: Any = None,
    cache_leftpad: Any = None,
    page_status: Any = None,
    cu_seqlens_q: Any = None,
    seqlens_q: Any = None,
    max_seqlen_q: int = 0,
    max_seqlen_kv: int = 0,
    causal: bool = True,
    softmax_scale: float | None = None,
    softcap: float = 0.0,
    bias: Any = None,
    mask: Any = None,
    tree_mask: Any = None,
    alibi_slopes: Any = None,
    sinks: Any = None,
    window: Window | None = (-1, -1),
    alignment: Alignment = "bottom_right",
    causal_offset: int = 0,
    causal_offsets: Any = None,
    q_scale: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
    o_scale: Any = None,
    kv_scale_block: int = 0,
    v_transposed: bool = False,
    rope_cos: Any = None,
    rope_sin: Any = None,
    rope_base: float = 0.0,
    rope_scale: float = 1.0,
    rotary_dim: int = 0,
    interleaved: bool = False,
    out_dtype: Any = None,
    return_lse: bool = False,
    return_amax: bool = False,
    return_max_logit: bool = False,
    out: Any = None,
    out_lse: Any = None,
    kernel: str | None = None,
    threads: int = 0,
    batch_invariant: bool = False,
    **unknown: NoReturn,
) -> Any:
    """Attention of few or many queries over keys and values in a cache.

    One query per sequence is decode, a few are speculative decoding, more are a chunk of a prompt.
    docs/semantics.md defines the result exactly ("Caches"). Arguments of `attention` mean the same
    here, except that causal is the default, which changes nothing for one query.

    Arguments
        q: [B, Hq, Sq, Dqk]; with cu_seqlens_q and pages [total_q, Hq, Dqk].
        k_cache, v_cache: [num_pages, Hkv, page_size, D] with pages, otherwise [B, Hkv, Skv, D], or
            [rows, Hkv, Skv, D] with cache_batch_idx. dtype of q, or fp8. A cache in the layout
            [num_pages, page_size, Hkv, D] is passed as a transposed view.
        seqlens_kv: [B], int32: rows of the cache in use, including the queries' own keys.
        page_table: [B, max_pages], int32: the pages of each sequence, in order.
        kv_indptr, kv_indices, kv_last_page_len: instead, one list: the pages of sequence b are
            kv_indices[kv_indptr[b] : kv_indptr[b + 1]], the last with kv_last_page_len[b] rows.
        cache_batch_idx: [B], int32: the cache row of each sequence.
        cache_leftpad: [B], int32: rows of the cache before the first key.
        page_status: [1], int32: set to 1 when a page index was out of range and was clamped.
            Without it, such an index is an error on the CPU.
        tree_mask: [B|1, Sq, words], packed [total_q, words], int32: bits of a speculative tree. Bit
            t of a query's words is set if the query sees key offset + t; with as many new keys as
            queries, this is the key of query t.
        k_scale, v_scale: [num_pages|1, Hkv|1, blocks|1] (B without pages), float32, for fp8 caches.
        v_transposed: v_cache is [B, Hkv, Dv, columns], fp8, as `transpose_v` makes it.
        max_seqlen_kv: the most rows per sequence; 0: all that the table has room for.
        k_new, v_new: new rows, appended before the queries attend to them, as by `append`.
            seqlens_kv then counts the rows before them, and seqlens_new the new rows in use. Packed
            queries have as many packed new rows. On an error nothing is written.
        rope_cos ... interleaved: with k_new, the rotation of the new keys and of q, as in `append`.

    Returns and raises what `attention` does.
    """
    if unknown:
        refuse_unknown(decode, unknown)
    backend = registered.get(type(q)) or find("q", q)
    if cache_batch_idx is not None:
        if page_table is not None or kv_indices is not None:
            raise InvalidArgumentError("cache_batch_idx: is given with pages, wanted one of them")
        backend.check_arrays([("cache_batch_idx", cache_batch_idx)])
        page_table = cache_batch_idx.reshape((cache_batch_idx.shape[0], 1))
    step: _Append | None = None
    if k_new is None and v_new is None:
        _refuse_without_new_rows(locals())
    else:
        step = _step_of(locals())
        q = step.arrays.get("q_out", q)
        seqlens_kv = step.seqlens_after
        if seqlens_q is None and seqlens_new is not None and step.has_rows_of(q):
            seqlens_q = seqlens_new
    given = locals()
    named = {"q": q, "k": k_cache, "v": v_cache}
    named |= {name: given.get(name) for name in (*OPTIONAL_TENSORS, *CACHE_TENSORS)}
    named |= {"out": out, "out_lse": out_lse}
    named = {name: array for name, array in named.items() if array is not None}
    values: Any = hashable(options_of(given))
    backend.check_arrays(named.items())
    key: Hashable = (
        "decode",
        values,
        *((name, backend.key(array)) for name, array in named.items()),
    )
    plan = cache.get(key)
    if plan is None:
        layouts = {name: backend.layout(name, array) for name, array in named.items()}
        dtype = None if out_dtype is None else backend.dtype("out_dtype", out_dtype)
        plan = cache.put(key, Plan(Request(layouts, Options._make(values), dtype)))
    for name in ("out", "out_lse", "page_status"):
        if name in named:
            backend.check_writable(name, named[name])
    found = {"out": backend.empty(plan.out, q) if out is None else out}
    if plan.lse is not None:
        found["out_lse"] = backend.empty(plan.lse, q) if out_lse is None else out_lse
    found |= {name: backend.empty(layout, q) for name, layout in plan.largest.items()}
    arguments = fill(sized(Arguments), backend.pointer, named | found)
    if step is None:
        run: tuple[Any, ...] = (library.flashcore_plan_run, plan.handle, bytes(arguments))
    else:
        run = (
            library.flashcore_append_and_attend,
            step.problem,
            step.arguments,
            plan.handle,
            arguments,
            step.options(threads),
        )
    check(backend.launch(plan, q, *run))
    return tuple(found.values()) if len(found) > 1 else found["out"]


def merge(
    o_a: Any,
    lse_a: Any,
    o_b: Any,
    lse_b: Any,
    *,
    out_dtype: Any = None,
    out: Any = None,
    out_lse: Any = None,
    threads: int = 0,
    **unknown: NoReturn,
) -> tuple[Any, Any]:
    """Merges attention over two disjoint sets of keys: O and LSE over all keys.

    Arguments
        o_a, o_b: [B, Hq, Sq, Dv], or packed [total_q, Hq, Dv]; float32, float16 or bfloat16.
        lse_a, lse_b: [B, Hq, Sq], or packed [total_q, Hq]; float32.
        out_dtype: dtype of o_a, the default, or float32.
        out, out_lse: arrays to write the results to: new arrays, or the inputs themselves.
    """
    if unknown:
        refuse_unknown(merge, unknown)
    arrays = {"o_a": o_a, "o_b": o_b, "lse_a": lse_a, "lse_b": lse_b}
    call = DirectCall(arrays | {"out": out, "out_lse": out_lse}, written=("out", "out_lse"))
    first = call.first
    if out is None:
        dtype = first.dtype if out_dtype is None else call.backend.dtype("out_dtype", out_dtype)
        out = call.add("out", dtype, first.shape, like(first, first.shape))
    elif out_dtype is not None:
        raise InvalidArgumentError("out_dtype: is given with out, wanted one of them")
    if out_lse is None:
        out_lse = call.add("out_lse", F32, first.shape[:-1])
    filled = call.fill(sized(MergeProblem), sized(MergeArguments))
    call.run(library.flashcore_merge, *filled, threads=threads)
    return out, out_lse


def append(
    k_new: Any,
    v_new: Any,
    k_cache: Any,
    v_cache: Any,
    *,
    seqlens_kv: Any,
    seqlens_new: Any = None,
    cu_seqlens_new: Any = None,
    page_table: Any = None,
    kv_indptr: Any = None,
    kv_indices: Any = None,
    cache_leftpad: Any = None,
    page_status: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
    kv_scale_block: int = 0,
    v_transposed: bool = False,
    rope_cos: Any = None,
    rope_sin: Any = None,
    rope_base: float = 0.0,
    rope_scale: float = 1.0,
    rotary_dim: int = 0,
    interleaved: bool = False,
    q: Any = None,
    threads: int = 0,
    **unknown: NoReturn,
) -> Any:
    """Appends new keys and values to a cache, with an optional rotation (RoPE).

    docs/semantics.md defines the result exactly ("Append").

    Arguments
        k_new, v_new: [B, Hkv, Snew, D], or packed [total, Hkv, D] with cu_seqlens_new and pages.
        k_cache, v_cache: as in `decode`; dtype of k_new, or fp8. They are written.
        v_transposed: v_cache is [B, Hkv, Dv, columns], as in `decode`.
        seqlens_kv: [B], int32: rows in use before the call; it is not changed.
        seqlens_new: [B], int32: new rows in use, at most Snew.
        rope_cos, rope_sin: [positions, R / 2], float32; or rope_base, for the angle
            position * rope_scale * rope_base ** (-2 n / rotary_dim) of pair n.
        interleaved: pairs are (2n, 2n + 1), instead of (n, n + R / 2).
        q: [B, Hq, Snew, Dqk], or packed: queries at the positions of the new keys.

    Returns
        q, rotated, as a new array; None without q.
    """
    if unknown:
        refuse_unknown(append, unknown)
    call = _Append(locals())
    call.run(library.flashcore_append, call.problem, call.arguments, threads=threads)
    return call.arrays.get("q_out")
