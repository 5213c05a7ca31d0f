"""The attention function for transformers: its options, packed sequences, and training."""

import itertools
import warnings

import pytest

import flashcore

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from transformers_models import (  # noqa: E402
    COMMON,
    FAMILIES,
    PLACES,
    TRANSLATORS,
    check,
    gemma,
    gpt_oss,
    grouped,
    mistral,
    pair,
    place,
)

import flashcore.transformers  # noqa: E402


@pytest.fixture(autouse=True)
def registered(torch_seeded, one_thread):
    flashcore.transformers.register()


@pytest.fixture
def seen(calls_of):
    """The calls that reach the library, to notice a model that bypasses it."""
    return calls_of(flashcore.transformers, "attention")


@place
@pytest.mark.parametrize("name", ["llama", "one-kv-head", "opt", "mistral"])
def test_logits(name, device, dtype, seen):
    ours, theirs = pair(FAMILIES[name], device, dtype)
    tokens = torch.randint(1, 97, (2, 40), device=device)
    check(ours(tokens).logits, theirs(tokens).logits, dtype)
    assert len(seen) == 2


@place
def test_vit(device, dtype, seen):
    ours, theirs = pair(vit, device, dtype)
    images = torch.randn(3, 3, 32, 32, device=device, dtype=dtype)
    check(ours(images).logits, theirs(images).logits, dtype)
    assert len(seen) == 2
    assert not any(options["causal"] for _, options in seen)


def vit():
    config = transformers.ViTConfig(**COMMON, image_size=32, patch_size=8, num_labels=7)
    return transformers.ViTForImageClassification, config


differentiates = pytest.mark.skipif(
    len(PLACES) > 1 and not flashcore.torch._differentiates("cuda", 0, "bfloat16", 32, 32),
    reason="the GPU has no backward pass",
)


@differentiates
@place
@pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "checkpointed"])
@pytest.mark.parametrize("make", [*FAMILIES.values(), vit], ids=[*FAMILIES, "vit"])
def test_a_training_step(make, device, dtype, checkpointed, seen):
    """The loss, every gradient, and the loss after an AdamW step equal those of eager."""
    losses, gradients = [], []
    with torch.enable_grad():
        for model in pair(make, device, dtype, "eager"):
            torch.manual_seed(1)
            if make is vit:
                images = torch.randn(3, 3, 32, 32, device=device, dtype=dtype)
                batch = {"pixel_values": images, "labels": torch.tensor([0, 3, 6], device=device)}
            else:
                tokens = torch.randint(1, 97, (2, 40), device=device)
                mask = torch.ones_like(tokens)
                mask[1, 30:] = 0
                labels = tokens.masked_fill(mask == 0, -100)  # such rows may see no key
                batch = {"input_ids": tokens, "labels": labels, "attention_mask": mask}
            model.train()
            if checkpointed:
                model.gradient_checkpointing_enable({"use_reentrant": False})
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            for _ in range(2):
                optimizer.zero_grad()
                loss = model(**batch).loss
                losses.append(loss.item())
                loss.backward()
                if len(losses) % 2 == 1:
                    gradients.append({n: p.grad.clone() for n, p in model.named_parameters()})
                optimizer.step()
    assert len(seen) == (12 if make in TRANSLATORS.values() else 4) * (1 + checkpointed)
    assert losses[1] < losses[0]
    limit = 1e-4 if dtype is torch.float32 else 4e-2
    assert losses[:2] == pytest.approx(losses[2:], rel=limit)
    for name, expected in gradients[1].items():
        error = (gradients[0][name].double() - expected.double()).norm()
        # Softmax ignores a bias common to all keys: its gradient is pure rounding.
        scale = gradients[1][name.replace("k_proj.bias", "q_proj.bias")].double().norm()
        assert error <= limit * scale + 1e-6, name


@place
@pytest.mark.parametrize("make", [gemma, gpt_oss], ids=["softcap", "sinks"])
def test_models_beyond_sdpa(make, device, dtype, seen):
    """Models whose softcap or sinks sdpa ignores: compared with eager, which has them."""
    ours, theirs = pair(make, device, dtype, other="eager")
    if make is gpt_oss:
        for model in (ours, theirs):
            for layer in model.model.layers:
                layer.self_attn.sinks.fill_(2.0)
    tokens = torch.randint(1, 97, (2, 40), device=device)
    mask = torch.ones_like(tokens)
    mask[1, :7] = 0
    actual, expected = (m(tokens, attention_mask=mask).logits for m in (ours, theirs))
    check(actual[mask == 1], expected[mask == 1], dtype)
    assert len(seen) == 2
    assert all(options["softcap"] or options["sinks"] is not None for _, options in seen)


@place
def test_switching_an_existing_model(device, dtype):
    kind, config = grouped()
    model = kind(config).to(device, dtype).eval()
    tokens = torch.randint(1, 97, (1, 30), device=device)
    expected = model(tokens).logits
    model.set_attn_implementation("flashcore")
    check(model(tokens).logits, expected, dtype)


@pytest.mark.compiles
@place
def test_compiled(device, dtype):
    ours, theirs = pair(grouped, device, dtype)
    tokens = torch.randint(1, 97, (2, 40), device=device)
    compiled = torch.compile(ours, fullgraph=True)
    check(compiled(tokens, use_cache=False).logits, theirs(tokens).logits, dtype)


@place
@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_cache_in_fp8(device, dtype, name):
    """A cache in fp8: equals sdpa on the same numbers, widened."""
    small = getattr(torch, name)

    class Cache(transformers.DynamicCache):
        def __init__(self, widened):
            super().__init__()
            self.widened = widened

        def update(self, key_states, value_states, *rest, **options):
            kept = [x.to(small) for x in (key_states, value_states)]
            k, v = super().update(*[x.view(torch.uint8) for x in kept], *rest, **options)
            k, v = k.view(small), v.view(small)
            return (k.to(dtype), v.to(dtype)) if self.widened else (k, v)

    ours, theirs = pair(grouped, device, dtype)
    tokens = torch.randint(1, 97, (2, 12), device=device)
    logits = []
    with torch.no_grad():
        for model in (ours, theirs):
            cache = Cache(widened=model is theirs)
            found = [model(tokens[:, :9], past_key_values=cache).logits]
            found += [model(tokens[:, n : n + 1], past_key_values=cache).logits for n in (9, 10)]
            logits.append(torch.cat(found, 1))
    check(*logits, dtype)
    q, k = (torch.randn(2, heads, 7, 16, device=device, dtype=dtype) for heads in (4, 2))
    module, scale = torch.nn.Module(), torch.tensor([[[0.5], [2.0]]], device=device)
    module.is_causal = True
    kept = k.to(small)
    scaled = attend(q, kept, kept, None, module=module, k_scale=scale, v_scale=scale)
    wide = kept.to(dtype) * scale[..., None].to(dtype)
    check(scaled, attend(q, wide, wide, None, module=module), dtype)


@pytest.mark.compiles
@place
def test_static_cache_compiled(device, dtype):
    """Steps over a static cache: one graph, compiled once, equals sdpa."""
    ours, theirs = pair(grouped, device, dtype)
    tokens = torch.randint(1, 97, (2, 12), device=device)
    steps = torch.randint(1, 97, (6, 2, 1), device=device)
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    logits = []
    for model in (ours, theirs):
        cache = transformers.StaticCache(config=model.config, max_cache_len=40)
        found = [model(tokens, past_key_values=cache).logits]
        step = torch.compile(model, fullgraph=True) if model is ours else model
        found += [step(token, past_key_values=cache).logits for token in steps]
        logits.append(found)
    for actual, expected in zip(*logits, strict=True):
        check(actual, expected, dtype)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


LENGTHS = (13, 1, 26)
STARTS = torch.tensor([0, 13, 14, 40])
PACKED = {"cu_seq_lens_q": STARTS, "cu_seq_lens_k": STARTS, "max_length_q": 26, "max_length_k": 26}
POSITIONS = torch.cat([torch.arange(n) for n in LENGTHS])[None]


def packed_on(device):
    options = PACKED | {"position_ids": POSITIONS}
    return {n: x.to(device) if torch.is_tensor(x) else x for n, x in options.items()}


def spans():
    """Returns the slice of each packed sequence."""
    return [slice(end - length, end) for end, length in zip(STARTS[1:], LENGTHS, strict=True)]


@place
@pytest.mark.parametrize("beside", ["nothing", "ones", "padding", "no-cache"])
@pytest.mark.parametrize(
    "make",
    [grouped, mistral, gemma, gpt_oss],
    ids=["grouped", "sliding-window", "softcap", "sinks"],
)
def test_packed_models(make, beside, device, dtype):
    """Several sequences in one row longer than the window, with every kind of mask."""
    ours, theirs = pair(make, device, dtype, other="eager")
    tokens = torch.randint(1, 97, (1, 40), device=device)
    options = packed_on(device)
    mask = torch.ones_like(tokens)
    if beside == "padding":
        mask[0, [5, 20, 21, 39]] = 0
    if beside in ("ones", "padding"):
        options["attention_mask"] = mask
    options["use_cache"] = beside != "no-cache"
    actual = ours(tokens, **options).logits
    for part in spans():
        expected = theirs(tokens[:, part], attention_mask=mask[:, part]).logits
        kept = mask[:, part] == 1
        check(actual[:, part][kept], expected[kept], dtype)


@pytest.mark.compiles
@place
def test_packed_models_compiled(device, dtype):
    ours, theirs = pair(mistral, device, dtype)
    tokens = torch.randint(1, 97, (1, 40), device=device)
    compiled = torch.compile(ours, fullgraph=True)
    actual = compiled(tokens, use_cache=False, **packed_on(device)).logits
    for part in spans():
        check(actual[:, part], theirs(tokens[:, part]).logits, dtype)


def attend(*arrays, module=None, **options):
    out, weights = flashcore.transformers.attention_forward(
        torch.nn.Module() if module is None else module, *arrays, **options
    )
    assert weights is None
    return out.transpose(1, 2)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mask", ["none", "band", "random", "bias", "two rows"])
def test_packed_sequences_are_apart(mask, causal, window):
    """Each sequence by itself, with its window, under every kind of mask."""
    rows = 2 if mask == "two rows" else 1
    q, k = torch.randn(rows, 4, 20, 16), torch.randn(rows, 2, 20, 16)
    starts = torch.tensor([0, 7, 7, 20, 31, 40] if rows == 2 else [0, 7, 7, 20])
    lengths = {"cu_seq_lens_q": starts, "cu_seq_lens_k": starts, "max_length_q": 13}
    left = -1 if window is None else window - 1
    seen = {"causal": causal, "window": (left, -1 if causal else left)}
    given = None
    if mask == "band":
        far = torch.arange(20)[:, None] - torch.arange(20)
        given = (far >= 0 if causal else far >= -20)[None, None]
        if window is not None:
            given = given & (far.abs() < window)
    elif mask in ("random", "bias"):
        given = torch.rand(1, 1, 20, 20) > 0.4
        seen = {}
    if mask == "bias":
        given = torch.randn(1, 4, 20, 20).masked_fill(~given, -torch.inf)
    out = attend(q, k, k, given, scaling=0.3, is_causal=causal, sliding_window=window, **lengths)
    for begin, end in itertools.pairwise(starts):
        row, part = int(begin) // 20, slice(int(begin) % 20, int(end - 1) % 20 + 1)
        if begin == end:
            continue
        inputs = [x[row : row + 1, :, part] for x in (q, k, k)]
        of_part = {}
        if mask in ("random", "bias"):
            of_part = {"mask" if mask == "random" else "bias": given[..., part, part]}
        expected = flashcore.attention(*inputs, softmax_scale=0.3, **seen, **of_part)
        torch.testing.assert_close(out[row : row + 1, :, part], expected)


def test_packed_sequences_with_a_plain_mask_take_no_mask(seen):
    """The mask that transformers makes for a windowed layer repeats the window only."""
    q = torch.randn(1, 4, 40, 16)
    far = torch.arange(40)[:, None] - torch.arange(40)
    mask = ((far >= 0) & (far < 8))[None, None]
    attend(q, q, q, mask, is_causal=True, sliding_window=8, **PACKED)
    attend(q, q, q, mask, is_causal=True, **PACKED)
    assert ["mask" in options for _, options in seen] == [False, True]


@pytest.mark.parametrize("queries", [20, 1])
@pytest.mark.parametrize("causal", [True, False])
def test_windows_without_a_mask(causal, queries):
    q, k = torch.randn(1, 4, queries, 16), torch.randn(1, 2, 20, 16)
    out = attend(q, k, k, None, is_causal=causal, sliding_window=5)
    window = (4, -1 if causal else 4)
    expected = flashcore.attention(q, k, k, causal=causal, window=window)
    torch.testing.assert_close(out, expected)


def test_tables_of_blocks_are_refused():
    q = torch.randn(1, 4, 8, 16)
    for cache in (None, object()):
        with pytest.raises(NotImplementedError, match="block_table"):
            attend(q, q, q, None, cache=cache, block_table=torch.zeros(1, 1))


@pytest.mark.parametrize("asked", ["in the call", "in the config"])
def test_weights_that_there_are_not(asked):
    """Warns like sdpa, because the result has no weights."""
    kind, config = grouped()
    config._attn_implementation = "flashcore"
    options = {"output_attentions": True}
    if asked == "in the config":
        config._output_attentions, options = True, {}
    model = kind(config).eval()
    tokens = torch.randint(1, 97, (1, 5))
    with pytest.warns(UserWarning, match="output_attentions: flashcore never has the weights"):
        model(tokens, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        config._output_attentions = False
        model(tokens, output_attentions=False)


@pytest.mark.compiles
def test_weights_that_there_are_not_compiled():
    q = torch.randn(1, 4, 8, 16)
    compiled = torch.compile(
        lambda q: attend(q, q, q, None, is_causal=True, output_attentions=True), fullgraph=True
    )
    with pytest.warns(UserWarning, match="output_attentions: flashcore never has the weights"):
        compiled(q)


def test_softcap_and_sinks_reach_the_library():
    q = torch.randn(1, 4, 8, 16)
    sinks = torch.randn(4)
    out = attend(q, q, q, None, scaling=0.3, softcap=2.0, s_aux=sinks, is_causal=True)
    expected = flashcore.attention(
        q, q, q, causal=True, softmax_scale=0.3, softcap=2.0, sinks=sinks
    )
    assert torch.equal(out, expected)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("mask", ["none", "bool", "bias"])
def test_position_bias(mask, packed):
    """It is added to the scores, next to causality, a mask, and the starts of sequences."""
    q, bias = torch.randn(1, 4, 40, 16), torch.randn(1, 4, 40, 40)
    far = torch.arange(40)[:, None] - torch.arange(40)
    kept = (far >= 0)[None, None]
    given = None
    if mask == "bool":
        given = kept = kept & (torch.rand(1, 1, 40, 40) > 0.3)
    elif mask == "bias":
        given = torch.zeros(1, 1, 40, 40).masked_fill(~kept, -torch.inf)
    if packed:
        of = torch.repeat_interleave(torch.arange(3), torch.tensor(LENGTHS))
        kept = kept & (of[:, None] == of)
    out = attend(q, q, q, given, is_causal=True, position_bias=bias, **(PACKED if packed else {}))
    torch.testing.assert_close(out, flashcore.attention(q, q, q, mask=kept, bias=bias))
