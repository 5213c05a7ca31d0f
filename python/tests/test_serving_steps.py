"""Serving steps: append and attention in one call, tree masks, shared prefixes, MLA."""

import numpy as np
import pytest
from definition import attention as definition
from test_serving import normal, rng

import flashcore


def pages_for(random, batch, columns, page_size, heads, width):
    pages = batch * columns + 2
    table = random.permutation(pages)[: batch * columns].reshape(batch, columns).astype(np.int32)
    k, v = (normal(random, pages, heads, page_size, width) for _ in range(2))
    return k, v, table


@pytest.mark.parametrize("rotation", [{}, {"rope_base": 100.0}, {"rope_base": 100.0, "packed": 1}])
def test_decode_with_new_rows_is_append_and_decode(rotation):
    rotation = dict(rotation)
    packed = rotation.pop("packed", 0)
    random = rng(1)
    k, v, table = pages_for(random, 2, 3, 4, 2, 16)
    before, counts = np.array([5, 0], np.int32), np.array([3, 1], np.int32)
    if packed:
        starts = np.array([0, 3, 4], np.int32)
        k_new, v_new, q = (
            normal(random, 4, 2, 16),
            normal(random, 4, 2, 16),
            normal(random, 4, 6, 16),
        )
        new, queries, together = (
            {"cu_seqlens_new": starts},
            {"cu_seqlens_q": starts},
            {"cu_seqlens_q": starts},
        )
    else:
        k_new, v_new = normal(random, 2, 2, 3, 16), normal(random, 2, 2, 3, 16)
        q = normal(random, 2, 6, 3, 16)
        new, queries = {"seqlens_new": counts}, {"seqlens_q": counts}
        together = {"seqlens_new": counts}
    apart = k.copy(), v.copy()
    turned = flashcore.append(
        k_new,
        v_new,
        *apart,
        seqlens_kv=before,
        page_table=table,
        q=q if rotation else None,
        **new,
        **rotation,
    )
    want = flashcore.decode(
        q if turned is None else turned,
        *apart,
        page_table=table,
        seqlens_kv=before + counts,
        **queries,
    )
    out = flashcore.decode(
        q,
        k,
        v,
        k_new=k_new,
        v_new=v_new,
        seqlens_kv=before,
        page_table=table,
        **together,
        **rotation,
    )
    np.testing.assert_array_equal(out, want)
    np.testing.assert_array_equal(k, apart[0])
    np.testing.assert_array_equal(v, apart[1])


def test_a_refused_step_writes_nothing():
    random = rng(2)
    k, v, table = pages_for(random, 1, 2, 4, 2, 8)
    before, row, q = np.array([4], np.int32), normal(random, 1, 2, 1, 8), normal(random, 1, 2, 1, 8)
    kept = k.copy()
    call = {"k_new": row, "v_new": row, "seqlens_kv": before, "page_table": table}
    for wrong, sentence in [
        ({"v_new": None}, "v_new: is missing"),
        ({"seqlens_kv": None}, "seqlens_kv: is missing"),
        ({"seqlens_kv": before + 4}, "seqlens_kv: entry 0 is 9"),
        ({"out": np.zeros((1, 2, 2, 8), np.float32)}, "out: shape is"),
        ({"page_table": table + 100}, "page_table: page 0 of sequence 0"),
        ({"rope_base": -1.0}, "rope_base: is -1"),
    ]:
        with pytest.raises(flashcore.InvalidArgumentError, match=sentence):
            flashcore.decode(q, k, v, **(call | wrong))
        np.testing.assert_array_equal(k, kept)
    with pytest.raises(flashcore.InvalidArgumentError, match="rope_base: is given without k_new"):
        flashcore.decode(q, k, v, seqlens_kv=before, page_table=table, rope_base=10.0)


@pytest.mark.parametrize("packed", [False, True])
def test_a_step_of_a_cache_in_one_call(packed):
    random = rng(6)
    rows = (3, 2, 8) if packed else (2, 2, 2, 8)
    shape = (3, 4, 8) if packed else (2, 4, 2, 8)
    outs, caches = [], []
    data = [(normal(random, *rows), normal(random, *rows), normal(random, *shape)) for _ in "ab"]
    for together in (False, True):
        cache = flashcore.KVCache(8, 2, heads_kv=2, head_dim=8)
        sequences = [cache.add(), cache.add()]
        for k_new, v_new, q in data:
            step = cache.extend(sequences, [2, 1])
            if together:
                out = step.decode(q, k_new=k_new, v_new=v_new, rope_base=100.0)
            else:
                out = step.decode(step.append(k_new, v_new, q=q, rope_base=100.0))
        outs.append(out)
        caches.append(cache)
    np.testing.assert_array_equal(*outs)
    np.testing.assert_array_equal(caches[0].k, caches[1].k)
    np.testing.assert_array_equal(caches[0].v, caches[1].v)


@pytest.mark.parametrize("packed", [False, True])
def test_tree_masks(packed):
    random = rng(3)
    tokens, lengths = 40, np.array([61, 40], np.int32)
    k, v, table = pages_for(random, 2, 4, 16, 2, 16)
    q = normal(random, 2, 4, tokens, 16)
    sees = np.eye(tokens, dtype=bool)
    for token in range(1, tokens):  # the parent's row, and the token itself
        sees[token] |= sees[(token - 1) // 3]
    words = np.zeros((tokens, 2), np.uint32)
    for token, key in zip(*np.nonzero(sees), strict=True):
        words[token, key // 32] |= np.uint32(1) << np.uint32(key % 32)
    words = words.view(np.int32)
    mask = np.ones((2, 1, tokens, 64), bool)
    for b, length in enumerate(lengths):
        mask[b, 0, :, length - tokens : length] = sees
    call = {"page_table": table, "seqlens_kv": lengths}
    want = flashcore.decode(q, k, v, causal=False, mask=mask, **call)
    if packed:
        rows = np.ascontiguousarray(q.transpose(0, 2, 1, 3)).reshape(-1, 4, 16)
        starts = np.arange(3, dtype=np.int32) * tokens
        out = flashcore.decode(
            rows,
            k,
            v,
            causal=False,
            cu_seqlens_q=starts,
            tree_mask=np.concatenate([words, words]),
            **call,
        )
        out = out.reshape(2, tokens, 4, 16).transpose(0, 2, 1, 3)
    else:
        out = flashcore.decode(q, k, v, causal=False, tree_mask=words[None], **call)
        # Parents come first, so causal makes no difference.
        again = flashcore.decode(q, k, v, tree_mask=words[None], **call)
        np.testing.assert_array_equal(again, out)
    np.testing.assert_array_equal(out, want)
    with pytest.raises(flashcore.InvalidArgumentError, match="tree_mask: dtype is bool"):
        flashcore.decode(q, k, v, tree_mask=sees[None], **call)


def test_prefixes_shared_over_two_levels():
    """A prompt of all sequences, a continuation of pairs, and their own rows: docs/python.md."""
    random = rng(4)
    heads, width = 4, 16

    def keys(entries, rows):
        return tuple(normal(random, entries, 2, rows, width) for _ in range(2))

    prompt, pairs, own = keys(1, 50), keys(2, 9), keys(4, 6)
    lengths = np.array([6, 0, 1, 4], np.int32)
    q = normal(random, 4, heads, 1, width)
    out, lse = flashcore.decode(q, *own, seqlens_kv=lengths, return_lse=True)
    for k, v in (pairs, prompt):
        entries, group = len(k), len(q) // len(k)
        # The queries of a group form one entry, which reads the keys once.
        together = q.reshape(entries, group, heads, width).transpose(0, 2, 1, 3)
        part, part_lse = flashcore.attention(np.ascontiguousarray(together), k, v, return_lse=True)
        part = part.transpose(0, 2, 1, 3).reshape(q.shape)
        part_lse = part_lse.transpose(0, 2, 1).reshape(lse.shape)
        out, lse = flashcore.merge(out, lse, part, part_lse)
    for b, length in enumerate(lengths):
        whole = [
            np.concatenate([prompt[n], pairs[n][b // 2 :][:1], own[n][b : b + 1, :, :length]], 2)
            for n in range(2)
        ]
        want, want_lse = definition(q[b : b + 1], *whole)
        np.testing.assert_allclose(out[b : b + 1], want, atol=5e-6)
        np.testing.assert_allclose(lse[b : b + 1], want_lse, atol=5e-6)


def test_mla_values_are_columns_of_the_keys():
    random = rng(5)
    cache = np.full((6, 1, 8, 576), np.nan, np.float32)
    table, lengths = np.array([[4, 1], [0, 3]], np.int32), np.array([11, 5], np.int32)
    k, v = cache[..., 512:], cache[..., :512]
    for b, length in enumerate(lengths):
        latent, rotary = normal(random, 1, 1, length, 512), normal(random, 1, 1, length, 64)
        flashcore.append(
            rotary,
            latent,
            k,
            v,
            seqlens_kv=np.zeros(1, np.int32),
            page_table=table[b : b + 1],
            rope_base=10000.0,
        )
    q = normal(random, 2, 16, 1, 576)
    out = flashcore.decode(
        q, cache, v, page_table=table, seqlens_kv=lengths, softmax_scale=192**-0.5
    )
    for b, length in enumerate(lengths):
        rows = np.concatenate(list(cache[table[b]]), 1)[None, :, :length]
        want, _ = definition(q[b : b + 1], rows, rows[..., :512], softmax_scale=192**-0.5)
        np.testing.assert_allclose(out[b : b + 1], want, atol=2e-5)
