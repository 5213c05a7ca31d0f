"""Attention from its definition (docs/semantics.md), in float64 and loops, to test against."""

import numpy as np

# Shapes of q and of k without elements, by the dimension that is empty.
EMPTY = {
    "batch": ((0, 4, 5, 16), (0, 2, 6, 16)),
    "heads": ((2, 0, 5, 16), (2, 0, 6, 16)),
    "queries": ((2, 4, 0, 16), (2, 2, 6, 16)),
    "keys": ((2, 4, 5, 16), (2, 2, 0, 16)),
    "all": ((0, 0, 0, 16), (0, 0, 0, 16)),
}


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
    kept=None,
    d_out=None,
    d_lse=None,
):
    """O and LSE of dense [B, H, S, D] inputs; with d_out, a dict of all gradients.

    kept [B, Hq, Sq, Skv] is the factor that dropout applies to the probabilities.
    """
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
    kept = np.ones(pairs) if kept is None else kept
    d_lse = np.zeros((batch, heads_q, seqlen_q)) if d_lse is None else np.asarray(d_lse, float)
    d_q, d_k, d_v = (np.zeros(x.shape) for x in (q, k, v))
    d_bias, d_slopes, d_sinks = np.zeros(pairs), np.zeros((batch, heads_q)), np.zeros(heads_q)
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
            h_kv = h * heads_kv // heads_q
            scores = scale * q[b, h] @ k[b, h_kv].T
            slope = np.ones(scores.shape)
            if softcap > 0:
                scores = softcap * np.tanh(scores / softcap)
                slope = 1 - (scores / softcap) ** 2
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
            p = weights / denominator[:, None]
            out[b, h] = (p * kept[b, h]) @ v[b, h_kv]
            if d_out is None:
                continue
            # A row that sees no key has only the gradient of its sink.
            d_o = np.where(p.any(axis=1)[:, None], np.asarray(d_out[b, h], float), 0)
            d_lse_row = np.where(i[:, 0] < len_q, d_lse[b, h], 0)
            delta = (d_o * out[b, h]).sum(axis=1) - d_lse_row
            ds = p * (kept[b, h] * (d_o @ v[b, h_kv].T) - delta[:, None])
            d_q[b, h] = (ds * slope * scale) @ k[b, h_kv]
            d_k[b, h_kv] += (ds * slope * scale).T @ q[b, h]
            d_v[b, h_kv] += (p * kept[b, h]).T @ d_o
            d_bias[b, h] = ds
            d_slopes[b, h] = -(ds * np.abs(i + offset - j)).sum()
            d_sinks[h] -= (np.exp(sink - shift) / denominator * delta).sum()
    if d_out is None:
        return out, lse
    return {
        "dq": d_q,
        "dk": d_k,
        "dv": d_v,
        "d_bias": d_bias,
        "d_sinks": d_sinks,
        "d_alibi_slopes": d_slopes,
    }


def summed_like(gradient, x):
    """A gradient summed over the dimensions in which x, of the same rank, has extent 1."""
    over = tuple(d for d in range(gradient.ndim) if x.shape[d] == 1)
    return gradient.sum(axis=over, keepdims=True)
