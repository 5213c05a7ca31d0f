"""Nested tensors: jagged ones are packed batches, all others are refused."""

import pytest
from torch_cases import check, draw, ft, place, torch

import flashcore

pytestmark = pytest.mark.usefixtures("torch_seeded")


@place
def test_sdpa_of_jagged_tensors(device, dtype):
    options = {"device": device, "dtype": dtype}

    def jagged(heads, lengths):
        parts = [draw(length, heads, 32, **options) for length in lengths]
        return torch.nested.nested_tensor(parts, layout=torch.jagged).transpose(1, 2)

    q, k, v = jagged(4, (5, 17, 1)), jagged(2, (9, 17, 30)), jagged(2, (9, 17, 30))
    for causal in (False, True):
        out = ft.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True, scale=0.3)
        assert out.is_nested
        assert out.shape[:2] == (3, 4)
        for part, *inputs_of in zip(*(x.unbind() for x in (out, q, k, v)), strict=True):
            part, *inputs_of = (x[None] for x in (part, *inputs_of))
            check(part, *inputs_of, is_causal=causal, enable_gqa=True, scale=0.3)
    (q + out).unbind()  # jagged in the same way
    for lengths in ((9, 30, 17), (9, 17, 29)):
        with pytest.raises(ValueError, match="value: has other lengths than key"):
            ft.scaled_dot_product_attention(q, k, jagged(2, lengths), enable_gqa=True)
    with pytest.raises(NotImplementedError, match="attn_mask: is given with nested"):
        ft.scaled_dot_product_attention(q, k, v, torch.ones(1, dtype=bool, device=device))
    with pytest.raises(NotImplementedError, match="key: wanted all three tensors nested"):
        ft.scaled_dot_product_attention(q, draw(3, 4, 9, 32, **options), v)


def test_sdpa_refuses_what_is_no_dense_tensor():
    q = draw(1, 4, 8, 16)
    nested = torch.nested.nested_tensor([draw(4, 5, 16), draw(4, 7, 16)])
    jagged = torch.nested.nested_tensor([draw(5, 4, 16), draw(7, 4, 16)], layout=torch.jagged)
    for bad in (nested, jagged):
        with pytest.raises(NotImplementedError, match="query: wanted all three tensors nested"):
            ft.scaled_dot_product_attention(bad, bad, bad)
        with pytest.raises(NotImplementedError, match="q: is a nested tensor"):
            flashcore.attention(bad, bad, bad)
    with pytest.raises(NotImplementedError, match="key: is a nested tensor"):
        ft.scaled_dot_product_attention(q, nested, q)
    with pytest.raises(TypeError, match="key: is a list, wanted a torch.Tensor"):
        ft.scaled_dot_product_attention(q, [1.0], q)
    with pytest.raises(TypeError, match="query: is a numpy.ndarray"):
        ft.scaled_dot_product_attention(*[q.numpy()] * 3)
    with pytest.raises(ValueError, match="complex64"):
        ft.scaled_dot_product_attention(*[q.to(torch.complex64)] * 3)
