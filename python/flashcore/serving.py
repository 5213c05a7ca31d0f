"""Serving: one call for the requests of an engine's step, whose keys and values lie in pages.

An engine has block tables and lengths on the device, and packs the queries of a step: chunks of
prompts and single tokens together. `Batch` takes these arrays as they are. Nothing here waits for
the device or reads from it, so a step can be captured in a CUDA graph and replayed once the arrays
hold the numbers of another step. Plans depend on shapes alone: arrays with room for the most
requests, tokens and pages need one plan.
"""

from functools import cached_property
from typing import Any

from ._options import window_of
from ._serving import append, decode, merge

__all__ = ["Batch", "pages"]

# Options that mean the same for the keys that requests share, which have no diagonal.
_OF_SHARED = ("softmax_scale", "softcap", "k_scale", "v_scale", "kv_scale_block", "threads")


def pages(buffer: Any, page_size: int) -> Any:
    """A cache of tokens, [tokens, Hkv, D], as pages [tokens / page_size, Hkv, page_size, D].

    The view reads "NHD" pages in place. "HND" pages, [pages, Hkv, page_size, D], need none.
    """
    tokens, heads, width = buffer.shape
    return buffer.reshape((tokens // page_size, page_size, heads, width)).swapaxes(1, 2)


class Batch:
    """The requests of one step: int32 arrays of one framework, on the device of the cache.

    page_table: [B, max_pages]: the pages of each request, in order.
    seqlens_kv: [B]: its keys, with those of its queries.
    cu_seqlens_q: [B + 1]: where its queries begin in packed arrays; a request may have none.
    max_seqlen_q: the most queries of a request; 0: not known. It is rounded up to a power of two,
        so that few plans serve all steps.
    max_seqlen_kv: the most keys of a request; 0: all that the table has room for.
    seqlens_before: [B]: its keys before the step. By default they are computed when they are first
        needed; an engine that captures a graph gives the array that it keeps up to date.
    shared: [B], all equal: rows at the beginning that lie in the same pages for all requests. They
        are read once for all. O and LSE are the same but for rounding. With a window, ALiBi,
        batch_invariant or dense queries, nothing is shared.

    Arrays of rows are packed, [total, H, D], or dense, [B, H, S, D]. On a GPU cu_seqlens_q may end
    before packed arrays do: what is left of O is not defined.
    """

    def __init__(
        self,
        page_table: Any,
        seqlens_kv: Any,
        cu_seqlens_q: Any,
        *,
        max_seqlen_q: int = 0,
        max_seqlen_kv: int = 0,
        seqlens_before: Any = None,
        shared: Any = None,
    ):
        self.page_table = page_table
        self.seqlens_kv = seqlens_kv
        self.cu_seqlens_q = cu_seqlens_q
        self.max_seqlen_q = 1 << (max_seqlen_q - 1).bit_length() if max_seqlen_q > 0 else 0
        self.max_seqlen_kv = max_seqlen_kv
        self.shared = shared
        if seqlens_before is not None:
            self.seqlens_before = seqlens_before

    @cached_property
    def seqlens_new(self) -> Any:
        """[B]: the queries of each request."""
        return self.cu_seqlens_q[1:] - self.cu_seqlens_q[:-1]

    @cached_property
    def seqlens_before(self) -> Any:
        return self.seqlens_kv - self.seqlens_new

    def append(self, k_new: Any, v_new: Any, k_cache: Any, v_cache: Any, **options: Any) -> Any:
        """Writes the new rows of a layer behind those of the requests.

        The caches are [num_pages, Hkv, page_size, D] with any strides; `options` are those of
        `flashcore.append`. Returns its q, rotated, or None.
        """
        return append(
            k_new,
            v_new,
            k_cache,
            v_cache,
            seqlens_kv=self.seqlens_before,
            page_table=self.page_table,
            **self._lengths(k_new, "cu_seqlens_new", "seqlens_new"),
            **options,
        )

    def attend(self, q: Any, k_cache: Any, v_cache: Any, **options: Any) -> Any:
        """Attention of the queries over the pages of their requests.

        Causal by default; `options` are those of `flashcore.decode`, such as window, sinks,
        softcap, alibi_slopes, k_scale, v_scale, return_lse, out, out_lse and batch_invariant. With
        k_new and v_new it writes the new rows first, in the same call.
        """
        if (
            self.shared is None
            or len(q.shape) != 3
            or options.get("batch_invariant")
            or options.get("alibi_slopes") is not None
            or window_of(options.get("window")) != (-1, -1)
        ):
            return self._decode(q, k_cache, v_cache, **options)
        has_lse = options.pop("return_lse", False)
        out, lse = self._decode(
            q, k_cache, v_cache, cache_leftpad=self.shared, return_lse=True, **options
        )
        # The queries of all requests as one sequence.
        part, part_lse = decode(
            q.swapaxes(0, 1)[None],
            k_cache,
            v_cache,
            page_table=self.page_table[:1],
            seqlens_kv=self.shared[:1],
            causal=False,
            return_lse=True,
            max_seqlen_kv=self.max_seqlen_kv,
            **{name: options[name] for name in _OF_SHARED if name in options},
        )
        merge(out, lse, part[0].swapaxes(0, 1), part_lse[0].swapaxes(0, 1), out=out, out_lse=lse)
        return (out, lse) if has_lse else out

    def _decode(
        self, q: Any, k_cache: Any, v_cache: Any, *, k_new: Any = None, **options: Any
    ) -> Any:
        lengths = self._lengths(q, "cu_seqlens_q", "seqlens_q")
        if k_new is not None and "seqlens_q" in lengths:
            lengths["seqlens_new"] = self.seqlens_new
        return decode(
            q,
            k_cache,
            v_cache,
            k_new=k_new,
            seqlens_kv=self.seqlens_kv if k_new is None else self.seqlens_before,
            page_table=self.page_table,
            max_seqlen_q=min(self.max_seqlen_q, q.shape[0]),
            max_seqlen_kv=self.max_seqlen_kv,
            **lengths,
            **options,
        )

    def _lengths(self, array: Any, packed: str, dense: str) -> dict[str, Any]:
        if len(array.shape) == 3:
            return {packed: self.cu_seqlens_q}
        return {dense: self.seqlens_new}
