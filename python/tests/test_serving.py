"""Caches, merge, append and KVCache against their definitions in docs/semantics.md."""

import numpy as np
import pytest
from definition import attention as definition

import flashcore


def rng(seed=0):
    return np.random.default_rng(seed)


def normal(random, *shape, dtype=np.float32):
    return random.normal(size=shape).astype(dtype)


def both(random, lengths, page_size, heads, width):
    """Keys and values, padded with NaN, then in pages, and the table of the pages."""
    columns = -(-max(lengths) // page_size)
    pages = len(lengths) * columns + 2
    dense = np.full((2, len(lengths), heads, max(lengths), width), np.nan, np.float32)
    caches = np.full((2, pages, heads, page_size, width), np.nan, np.float32)
    table = np.full((len(lengths), columns), -1, np.int32)
    order = iter(random.permutation(pages))
    for b, length in enumerate(lengths):
        dense[:, b, :, :length] = normal(random, 2, heads, length, width)
        for n in range(-(-length // page_size)):
            table[b, n] = next(order)
            rows = dense[:, b, :, n * page_size : min((n + 1) * page_size, length)]
            caches[:, table[b, n], :, : rows.shape[2]] = rows
    return *dense, *caches, table


def expected(q, k, v, lengths, **options):
    k, v = np.nan_to_num(k), np.nan_to_num(v)
    return definition(q, k, v, causal=True, seqlens_kv=np.array(lengths), **options)


@pytest.mark.parametrize("page_size", [1, 3, 16, 64])
@pytest.mark.parametrize("queries", [1, 5])
def test_decode_over_pages(page_size, queries):
    random = rng(page_size * 10 + queries)
    lengths = [40, 7, 23]
    dense_k, dense_v, k, v, table = both(random, lengths, page_size, 2, 24)
    q = normal(random, 3, 6, queries, 24)
    seqlens = np.array(lengths, np.int32)
    pages = {"page_table": table, "seqlens_kv": seqlens}
    out, lse = flashcore.decode(q, k, v, **pages, return_lse=True, max_seqlen_kv=40)
    want, want_lse = expected(q, dense_k, dense_v, lengths)
    np.testing.assert_allclose(out, want, atol=2e-5)
    np.testing.assert_allclose(lse, want_lse, atol=1e-4)

    # Lists the same pages in the flat form, and in memory of the other layout.
    counts = -(-seqlens // page_size)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    indices = np.concatenate([row[:n] for row, n in zip(table, counts, strict=True)])
    last = (seqlens - (counts - 1) * page_size).astype(np.int32)
    token_major = [
        np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3) for x in (k, v)
    ]
    flat = flashcore.decode(
        q, *token_major, kv_indptr=indptr, kv_indices=indices, kv_last_page_len=last
    )
    np.testing.assert_array_equal(flat, out)

    # Packed queries give the same numbers.
    packed = q.transpose(0, 2, 1, 3).reshape(-1, 6, 24)
    starts = np.arange(4, dtype=np.int32) * queries
    packed = np.ascontiguousarray(packed)
    rows = flashcore.decode(packed, k, v, **pages, cu_seqlens_q=starts)
    np.testing.assert_array_equal(rows.reshape(3, queries, 6, 24).transpose(0, 2, 1, 3), out)


def test_a_flat_list_may_be_longer_than_the_sequence():
    random = rng(4)
    q, k, v = (normal(random, *shape) for shape in [(1, 2, 1, 8), (3, 2, 4, 8), (3, 2, 4, 8)])
    options = {"seqlens_kv": np.array([5], np.int32), "max_seqlen_kv": 5}
    table = flashcore.decode(q, k, v, page_table=np.array([[2, 0]], np.int32), **options)
    lists = {
        "kv_indices": np.array([2, 0], np.int32),
        "kv_indptr": np.array([0, 2], np.int32),
    }
    np.testing.assert_array_equal(flashcore.decode(q, k, v, **lists, **options), table)
    with pytest.raises(flashcore.InvalidArgumentError, match="has 8 rows, wanted at most 5"):
        flashcore.decode(q, k, v, **lists, max_seqlen_kv=5)


def test_decode_in_a_window_reads_only_its_pages():
    random = rng(3)
    dense_k, dense_v, k, v, table = both(random, [64], 8, 1, 16)
    q = normal(random, 1, 2, 1, 16)
    want, _ = expected(q, dense_k, dense_v, [64], window=(10, 0))
    table[0, :6] = -5  # left of the window: keys 53 to 63 are in pages 6 and 7
    options = {"page_table": table, "seqlens_kv": np.array([64], np.int32), "window": (10, 0)}
    out = flashcore.decode(q, k, v, **options)
    np.testing.assert_allclose(out, want, atol=2e-5)
    table[0, 6] = 99
    with pytest.raises(flashcore.InvalidArgumentError, match="page 6 of sequence 0 is 99"):
        flashcore.decode(q, k, v, **options)
    status = np.zeros(1, np.int32)
    flashcore.decode(q, k, v, **options, page_status=status)
    assert status[0] == 1


def test_rows_of_a_cache_and_padding():
    random = rng(4)
    k, v = normal(random, 5, 2, 30, 16), normal(random, 5, 2, 30, 16)
    q = normal(random, 2, 4, 1, 16)
    index, seqlens = np.array([3, 0], np.int32), np.array([30, 11], np.int32)
    out = flashcore.decode(q, k, v, cache_batch_idx=index, seqlens_kv=seqlens)
    want = flashcore.attention(q, k[index], v[index], causal=True, seqlens_kv=seqlens)
    np.testing.assert_array_equal(out, want)

    padding = np.array([4, 0], np.int32)
    out = flashcore.decode(
        q, k, v, cache_batch_idx=index, seqlens_kv=seqlens, cache_leftpad=padding
    )
    shifted = [
        np.stack([np.roll(x[i], -p, axis=1) for i, p in zip(index, padding, strict=True)])
        for x in (k, v)
    ]
    want = flashcore.attention(q, *shifted, causal=True, seqlens_kv=seqlens - padding)
    np.testing.assert_array_equal(out, want)


def test_fp8_cache_under_wider_queries():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    random = rng(5)
    k, v = normal(random, 2, 2, 40, 32), normal(random, 2, 2, 40, 32)
    scale = (0.5 + random.uniform(size=(2, 2, 40))).astype(np.float32)
    k8, v8 = (np.zeros(x.shape, ml_dtypes.float8_e4m3fn) for x in (k, v))
    scales = {"k_scale": scale, "v_scale": scale, "kv_scale_block": 1}
    flashcore.append(k, v, k8, v8, seqlens_kv=np.zeros(2, np.int32), **scales)
    np.testing.assert_array_equal(
        k8.astype(np.float32), (k / scale[..., None]).astype(ml_dtypes.float8_e4m3fn)
    )
    q = normal(random, 2, 4, 3, 32)
    out = flashcore.decode(q, k8, v8, **scales)
    wide = [x.astype(np.float32) * scale[..., None] for x in (k8, v8)]
    want, _ = definition(q, *wide, causal=True)
    np.testing.assert_allclose(out, want, atol=2e-5)


def test_append_to_a_transposed_v():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    random = rng(7)
    k, v = normal(random, 2, 2, 21, 32), normal(random, 2, 2, 21, 32)
    k8, rows = (np.zeros((2, 2, 50, 32), ml_dtypes.float8_e4m3fn) for _ in range(2))
    columns = flashcore.transpose_v(rows)
    used = np.array([3, 29], np.int32)
    flashcore.append(k, v, k8, rows, seqlens_kv=used)
    flashcore.append(k, v, k8, columns, seqlens_kv=used, v_transposed=True)
    np.testing.assert_array_equal(
        columns.view(np.uint8), flashcore.transpose_v(rows).view(np.uint8)
    )
    q = normal(random, 2, 4, 2, 32)
    more = used + 21
    want = flashcore.decode(q, k8, rows, seqlens_kv=more)
    found = flashcore.decode(q, k8, columns, seqlens_kv=more, v_transposed=True)
    np.testing.assert_array_equal(found, want)


def test_merge_of_a_shared_prefix():
    random = rng(6)
    prefix_k, prefix_v = normal(random, 1, 2, 50, 16), normal(random, 1, 2, 50, 16)
    k, v = normal(random, 3, 2, 9, 16), normal(random, 3, 2, 9, 16)
    q = normal(random, 3, 4, 1, 16)
    # The prefix once, with the queries of all sequences as one entry.
    together = np.ascontiguousarray(q.transpose(2, 1, 0, 3))
    o_a, lse_a = flashcore.attention(together, prefix_k, prefix_v, return_lse=True)
    o_a = np.ascontiguousarray(o_a.transpose(2, 1, 0, 3))
    lse_a = np.ascontiguousarray(lse_a.transpose(2, 1, 0))
    o_b, lse_b = flashcore.attention(q, k, v, return_lse=True)
    out, lse = flashcore.merge(o_a, lse_a, o_b, lse_b)
    whole = [
        np.concatenate([np.repeat(a, 3, axis=0), b], 2) for a, b in ((prefix_k, k), (prefix_v, v))
    ]
    want, want_lse = flashcore.attention(q, *whole, return_lse=True)
    np.testing.assert_allclose(out, want, atol=2e-6)
    np.testing.assert_allclose(lse, want_lse, atol=2e-6)
    again = flashcore.merge(o_a, lse_a, o_b, lse_b, out=o_a, out_lse=lse_a)
    assert again[0] is o_a
    assert again[1] is lse_a
    np.testing.assert_array_equal(o_a, out)
    nothing, none = flashcore.merge(
        np.full_like(o_b, np.nan), np.full_like(lse_b, -np.inf), o_b, lse_b
    )
    np.testing.assert_array_equal(nothing, o_b)
    np.testing.assert_array_equal(none, lse_b)


@pytest.mark.parametrize("interleaved", [False, True])
def test_append_rotates(interleaved):
    random = rng(7)
    k_new, v_new, q = (normal(random, 2, 2, 3, 8) for _ in range(3))
    k, v = (np.zeros((2, 2, 10, 8), np.float32) for _ in range(2))
    before = np.array([4, 0], np.int32)
    rotated = flashcore.append(
        k_new, v_new, k, v, seqlens_kv=before, rope_base=100.0, interleaved=interleaved, q=q
    )
    position = before[:, None] + np.arange(3)
    angle = position[..., None] * 100.0 ** (-2 * np.arange(4) / 8)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]

    def turn(x):
        pairs = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :4], x[..., 4:])
        first, second = pairs[0] * cos - pairs[1] * sin, pairs[0] * sin + pairs[1] * cos
        if interleaved:
            return np.stack([first, second], -1).reshape(x.shape)
        return np.concatenate([first, second], -1)

    np.testing.assert_allclose(rotated, turn(q), atol=2e-6)
    for b, start in enumerate(before):
        np.testing.assert_allclose(k[b, :, start : start + 3], turn(k_new)[b], atol=2e-6)
        np.testing.assert_array_equal(v[b, :, start : start + 3], v_new[b])
        assert not k[b, :, start + 3 :].any()
        assert not k[b, :, :start].any()


class Model:
    """Sequences as plain arrays, to compare a KVCache with."""

    def __init__(self):
        self.rows = {}

    def check(self, cache):
        for sequence, (k, v) in self.rows.items():
            assert cache.length(sequence) == len(k)
            pages = cache.pages(sequence)
            assert len(pages) == -(-len(k) // cache.page_size)
            for j in range(len(k)):
                at = pages[j // cache.page_size], slice(None), j % cache.page_size
                np.testing.assert_array_equal(cache.k[0][at], k[j])
                np.testing.assert_array_equal(cache.v[0][at], v[j])


@pytest.mark.parametrize("seed", range(3))
def test_kv_cache_against_plain_arrays(seed):
    random = rng(100 + seed)
    cache = flashcore.KVCache(24, int(random.integers(1, 6)), heads_kv=2, head_dim=8)
    model = Model()
    refused = attended = 0
    for turn in range(300):
        action = random.choice(["add", "extend", "extend", "extend", "fork", "free", "truncate"])
        known = list(model.rows)
        if action == "add" or not known:
            if len(known) < 8:
                model.rows[cache.add()] = ([], [])
            continue
        one = known[random.integers(len(known))]
        k, v = model.rows[one]
        if action == "fork" and len(known) < 8:
            rows = int(random.integers(0, len(k) + 1))
            model.rows[cache.fork(one, rows)] = (k[:rows], v[:rows])
        elif action == "free":
            cache.free(one)
            del model.rows[one]
        elif action == "truncate":
            rows = int(random.integers(0, len(k) + 1))
            cache.truncate(one, rows)
            model.rows[one] = (k[:rows], v[:rows])
        elif action == "extend":
            count = int(random.integers(1, len(known) + 1))
            chosen = [known[i] for i in random.permutation(len(known))[:count]]
            counts = [int(n) for n in random.integers(0, 7, size=count)]
            free, pages = cache.free_pages, [cache.pages(s) for s in known]
            try:
                step = cache.extend(chosen, counts)
            except flashcore.OutOfPagesError:
                refused += 1
                assert cache.free_pages == free
                assert [cache.pages(s) for s in known] == pages
                continue
            total = sum(counts)
            new_k, new_v = normal(random, total, 2, 8), normal(random, total, 2, 8)
            step.append(new_k, new_v)
            at = 0
            for sequence, n in zip(chosen, counts, strict=True):
                old_k, old_v = model.rows[sequence]
                model.rows[sequence] = (
                    [*old_k, *new_k[at : at + n]],
                    [*old_v, *new_v[at : at + n]],
                )
                at += n
            q = normal(random, total, 4, 8)
            out = step.decode(q)
            at = 0
            for sequence, n in zip(chosen, counts, strict=True):
                if n > 0:
                    keys, values = (
                        np.stack(x).transpose(1, 0, 2)[None] for x in model.rows[sequence]
                    )
                    want = flashcore.attention(
                        np.ascontiguousarray(q[at : at + n].transpose(1, 0, 2)[None]),
                        np.ascontiguousarray(keys),
                        np.ascontiguousarray(values),
                        causal=True,
                    )
                    np.testing.assert_array_equal(out[at : at + n].transpose(1, 0, 2)[None], want)
                    attended += 1
                at += n
        if turn % 10 == 0:
            model.check(cache)
    assert refused > 0
    assert attended > 50
    for sequence in list(model.rows):
        cache.free(sequence)
    assert cache.free_pages == 24
    assert len(cache) == 0


def test_forks_share_until_they_write():
    random = rng(8)
    cache = flashcore.KVCache(8, 4, heads_kv=1, head_dim=4, layers=2)
    parent = cache.add()
    step = cache.extend([parent], [6])
    for layer in range(2):
        step.append(normal(random, 1, 1, 6, 4), normal(random, 1, 1, 6, 4), layer=layer)
    child = cache.fork(parent)
    assert cache.pages(child) == cache.pages(parent)
    assert cache.free_pages == 6
    before = cache.k[:, cache.pages(parent)[1]].copy()
    # Both grow in one step: the page that they share is copied once.
    step = cache.extend([parent, child], [1, 1])
    assert cache.free_pages == 5
    for layer in range(2):
        step.append(normal(random, 2, 1, 1, 4), normal(random, 2, 1, 1, 4), layer=layer)
    assert cache.pages(child)[0] == cache.pages(parent)[0]
    assert cache.pages(child)[1] != cache.pages(parent)[1]
    for sequence in (parent, child):
        np.testing.assert_array_equal(cache.k[:, cache.pages(sequence)[1], :, :2], before[:, :, :2])


def test_refusals():
    random = rng(9)
    q, k = normal(random, 2, 2, 1, 8), normal(random, 4, 2, 4, 8)
    table, seqlens = np.zeros((2, 2), np.int32), np.array([8, 8], np.int32)
    with pytest.raises(flashcore.InvalidArgumentError, match="page_table: dtype is int64"):
        flashcore.decode(q, k, k, page_table=table.astype(np.int64), seqlens_kv=seqlens)
    with pytest.raises(flashcore.InvalidArgumentError, match=r"page_table: shape is \[1, 2\]"):
        flashcore.decode(q, k, k, page_table=table[:1], seqlens_kv=seqlens)
    with pytest.raises(flashcore.InvalidArgumentError, match="seqlens_kv: entry 1 is 9"):
        flashcore.decode(q, k, k, page_table=table, seqlens_kv=np.array([8, 9], np.int32))
    with pytest.raises(flashcore.ArgumentTypeError, match="page_table"):
        flashcore.decode(q, k, k, page_table=[[0, 1], [2, 3]], seqlens_kv=seqlens)
    with pytest.raises(flashcore.InvalidArgumentError, match="cache_batch_idx"):
        flashcore.decode(q, k, k, page_table=table, cache_batch_idx=seqlens)
    read_only = k.copy()
    read_only.flags.writeable = False
    with pytest.raises(flashcore.InvalidArgumentError, match="k: is read-only"):
        flashcore.append(q, q, read_only, k.copy(), page_table=table, seqlens_kv=seqlens)
    with pytest.raises(flashcore.InvalidArgumentError, match="k: sequence 0 has 8 rows in use"):
        flashcore.append(q, q, k.copy(), k.copy(), page_table=table, seqlens_kv=seqlens)
    cache = flashcore.KVCache(4, 2, heads_kv=1, head_dim=4)
    with pytest.raises(flashcore.InvalidArgumentError, match="sequence: is 7"):
        cache.extend([7], [1])
    one = cache.add()
    with pytest.raises(flashcore.InvalidArgumentError, match="twice"):
        cache.extend([one, one], [1, 1])
    with pytest.raises(flashcore.OutOfPagesError, match="4 are free, wanted 5"):
        cache.extend([one], [9])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_kv_cache_of_torch_tensors(torch_device, dtype):
    """Forks that share a page, in packed and dense steps, against plain tensors."""
    import torch

    device, random = torch_device, rng(11)
    cache = flashcore.KVCache(40, 4, heads_kv=2, head_dim=64, layers=2, dtype=dtype, device=device)
    assert cache.k.device.type == device
    parent = cache.add()
    children = [cache.fork(parent)]
    kept = {parent: [], children[0]: []}
    steps = [([parent, children[0]], [6, 3], False), ([parent], [5], True)]
    for turn in range(6):
        if turn == 2:
            children.append(cache.fork(parent))
            kept[children[1]] = list(kept[parent])
        chosen, counts, packed = (
            steps[turn] if turn < 2 else ([parent, *children], [1, 1, 1], turn % 2)
        )
        step = cache.extend(chosen, counts)
        rows = sum(counts) if packed else max(counts)
        tensors = [
            torch.from_numpy(
                normal(random, rows, heads, 64)
                if packed
                else normal(random, len(chosen), heads, rows, 64)
            ).to(device, getattr(torch, dtype))
            for heads in (4, 2, 2)
        ]
        for layer in range(2):
            q, k, v = (x * (layer + 1) for x in tensors)
            step.append(k, v, layer=layer)
            out = step.decode(q, layer=layer)
            at = 0
            for b, (sequence, count) in enumerate(zip(chosen, counts, strict=True)):
                if packed:
                    parts = [x[at : at + count].transpose(0, 1) for x in (q, k, v, out)]
                else:
                    parts = [x[b, :, :count] for x in (q, k, v, out)]
                at += count
                if layer == 0:
                    kept[sequence] = [*kept[sequence], (parts[1], parts[2])]
                keys, values = (
                    torch.cat([one[i] for one in kept[sequence]], dim=1)[None] * (layer + 1)
                    for i in range(2)
                )
                want = flashcore.attention(parts[0][None].contiguous(), keys, values, causal=True)[
                    0
                ]
                torch.testing.assert_close(parts[3], want, atol=2e-2, rtol=1e-2)
    assert cache.length(parent) == 15
    with pytest.raises(flashcore.InvalidArgumentError, match="device: is 'nowhere'"):
        flashcore.KVCache(4, 2, heads_kv=1, head_dim=4, device="nowhere")
    with pytest.raises(flashcore.InvalidArgumentError, match="dtype: is not PyTorch's"):
        flashcore.KVCache(4, 2, heads_kv=1, head_dim=4, dtype="float12", device="cpu")


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    random = rng(10)
    _, _, k, v, table = both(random, [20, 9], 4, 2, 16)
    q, seqlens = normal(random, 2, 4, 1, 16), np.array([20, 9], np.int32)
    want = flashcore.decode(q, k, v, page_table=table, seqlens_kv=seqlens)
    *arrays, table, seqlens = map(torch.from_numpy, (q, k, v, table, seqlens))
    out = flashcore.decode(*arrays, page_table=table, seqlens_kv=seqlens)
    assert isinstance(out, torch.Tensor)
    np.testing.assert_array_equal(out.numpy(), want)
