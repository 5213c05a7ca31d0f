"""Attention from its definition (docs/semantics.md), in float64 and loops, to test against."""

import numpy as np


def attention(
    q,
    k,
    v,
    *,
    causal=False,
    softmax_scale=None,
    softcap=0.0,
    bias=None,
    mask=None,
    alibi_slopes=None,
    sinks=None,
    window=(-1, -1),
    alignment="bottom_right",
    causal_offset=0,
    causal_offsets=None,
    seqlens_q=None,
    seqlens_kv=None,
):
    """O and LSE of dense [B, H, S, D] inputs."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    batch, heads_q, seqlen_q, head_dim = q.shape
    heads_kv, seqlen_kv = k.shape[1:3]
    scale = 1 / np.sqrt(head_dim) if softmax_scale is None else softmax_scale
    pairs = (batch, heads_q, seqlen_q, seqlen_kv)
    bias = np.zeros(pairs) if bias is None else np.broadcast_to(np.asarray(bias, float), pairs)
    mask = np.ones(pairs, bool) if mask is None else np.broadcast_to(mask, pairs)
    slopes = np.zeros((batch, heads_q))
    if alibi_slopes is not None:
        slopes = np.broadcast_to(alibi_slopes, (batch, heads_q))
    left, right = (-1 if side is None else side for side in window)
    if causal:
        right = 0
    out = np.zeros((batch, heads_q, seqlen_q, v.shape[3]))
    lse = np.full((batch, heads_q, seqlen_q), -np.inf)
    i, j = np.arange(seqlen_q)[:, None], np.arange(seqlen_kv)[None, :]
    for b in range(batch):
        len_q = seqlen_q if seqlens_q is None else seqlens_q[b]
        len_kv = seqlen_kv if seqlens_kv is None else seqlens_kv[b]
        offset = {"top_left": 0, "bottom_right": int(len_kv) - int(len_q)}.get(alignment)
        if offset is None:
            offset = causal_offset if causal_offsets is None else int(causal_offsets[b])
        seen = (i < len_q) & (j < len_kv)
        if right >= 0:
            seen = seen & (j <= i + offset + right)
        if left >= 0:
            seen = seen & (j >= i + offset - left)
        for h in range(heads_q):
            scores = scale * q[b, h] @ k[b, h * heads_kv // heads_q].T
            if softcap > 0:
                scores = softcap * np.tanh(scores / softcap)
            scores = scores + bias[b, h] - slopes[b, h] * np.abs(i + offset - j)
            scores = np.where(seen & mask[b, h], scores, -np.inf)
            sink = -np.inf if sinks is None else float(sinks[h])
            highest = np.maximum(scores.max(axis=1, initial=-np.inf), sink)
            shift = np.where(np.isneginf(highest), 0, highest)
            weights = np.exp(scores - shift[:, None])
            denominator = weights.sum(axis=1) + np.exp(sink - shift)
            with np.errstate(divide="ignore"):
                lse[b, h] = shift + np.log(denominator)
            denominator = np.where(denominator == 0, 1, denominator)
            out[b, h] = weights / denominator[:, None] @ v[b, h * heads_kv // heads_q]
    return out, lse
