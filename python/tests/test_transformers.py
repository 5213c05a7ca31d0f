"""Small, randomly initialised models of transformers: the same logits as with sdpa."""

import itertools
import warnings

import gates
import pytest

import flashcore

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import flashcore.transformers  # noqa: E402

PLACES = [pytest.param("cpu", torch.float32, id="cpu")]
if torch.cuda.is_available() and flashcore.build_info()["cuda"]:
    PLACES.append(pytest.param("cuda", torch.bfloat16, id="cuda", marks=pytest.mark.gpu))
place = pytest.mark.parametrize(("device", "dtype"), PLACES)

COMMON = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
TEXT = COMMON | {"vocab_size": 97, "max_position_embeddings": 256, "pad_token_id": 0}


def llama(**options):
    return transformers.LlamaForCausalLM, transformers.LlamaConfig(**TEXT, **options)


def mistral():
    config = transformers.MistralConfig(**TEXT, num_key_value_heads=2, sliding_window=8)
    return transformers.MistralForCausalLM, config


DECODERS = {
    "llama": lambda: llama(num_key_value_heads=4),
    "grouped": lambda: llama(num_key_value_heads=2),
    "one-kv-head": lambda: llama(num_key_value_heads=1),
    "sliding-window": mistral,
}
decoder = pytest.mark.parametrize("make", DECODERS.values(), ids=DECODERS)


@pytest.fixture(autouse=True)
def registered(torch_seeded):
    flashcore.transformers.register()


def pair(make, device, dtype, other="sdpa"):
    """Returns the same model twice: with FlashCore's attention, and with sdpa's or another."""
    kind, config = make()
    config._attn_implementation = "flashcore"
    ours = kind(config).to(device, dtype).eval()
    kind, config = make()
    config._attn_implementation = other
    theirs = kind(config).to(device, dtype).eval()
    theirs.load_state_dict(ours.state_dict())
    assert ours.config._attn_implementation == "flashcore"
    return ours, theirs


def check(actual, expected, dtype):
    # Two layers of rounding lie between attention and the logits, which are small. The limit is
    # twice the relative gate of the type.
    actual, expected = actual.double().cpu(), expected.double().cpu()
    relative = gates.GATES[str(dtype).removeprefix("torch.")][1]
    assert actual.isfinite().all()
    assert (actual - expected).norm() <= 2 * relative * expected.norm()


@pytest.fixture
def seen(calls_of):
    """The calls that reach the library, to notice a model that bypasses it."""
    return calls_of(flashcore.transformers, "attention")


@place
@decoder
def test_logits(make, device, dtype, seen):
    ours, theirs = pair(make, device, dtype)
    tokens = torch.randint(1, 97, (2, 40), device=device)
    check(ours(tokens).logits, theirs(tokens).logits, dtype)
    assert len(seen) == 2


@place
@decoder
@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_batches(make, device, dtype, side):
    ours, theirs = pair(make, device, dtype)
    tokens = torch.randint(1, 97, (3, 40), device=device)
    mask = torch.ones_like(tokens)
    for row, length in enumerate((40, 25, 3)):
        padding = slice(length, None) if side == "right" else slice(None, 40 - length)
        mask[row, padding] = 0
    tokens[mask == 0] = 0
    actual = ours(tokens, attention_mask=mask).logits
    expected = theirs(tokens, attention_mask=mask).logits
    check(actual[mask == 1], expected[mask == 1], dtype)


@place
@decoder
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generation(make, device, dtype, cache):
    ours, theirs = pair(make, device, dtype)
    tokens = torch.randint(1, 97, (2, 12), device=device)
    mask = torch.ones_like(tokens)
    mask[1, :5] = 0
    options = {
        "attention_mask": mask,
        "max_new_tokens": 20,
        "do_sample": False,
        "cache_implementation": cache,
        "return_dict_in_generate": True,
        "output_logits": True,
        "disable_compile": True,
    }
    actual, expected = ours.generate(tokens, **options), theirs.generate(tokens, **options)
    steps = 0
    for step, (a, e) in enumerate(zip(actual.logits, expected.logits, strict=True)):
        check(a, e, dtype)
        steps += 1
        # After a tie that rounding decides the other way, the texts differ.
        position = 12 + step
        if not torch.equal(actual.sequences[:, position], expected.sequences[:, position]):
            break
    assert steps == 20 or dtype is not torch.float32


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


def gemma():
    options = {"num_key_value_heads": 2, "head_dim": 32, "attn_logit_softcapping": 2.0}
    config = transformers.Gemma2Config(**TEXT, **options, sliding_window=8)
    return transformers.Gemma2ForCausalLM, config


def gpt_oss():
    options = {"num_key_value_heads": 2, "head_dim": 32, "sliding_window": 8}
    config = transformers.GptOssConfig(
        **TEXT, **options, num_local_experts=2, num_experts_per_tok=2
    )
    return transformers.GptOssForCausalLM, config


differentiates = pytest.mark.skipif(
    len(PLACES) > 1 and not flashcore.torch._differentiates("cuda", 0, "bfloat16", 32, 32),
    reason="the GPU has no backward pass",
)


@differentiates
@place
@pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "checkpointed"])
@pytest.mark.parametrize(
    "make",
    [*DECODERS.values(), vit, gemma, gpt_oss],
    ids=[*DECODERS, "vit", "softcap", "sinks"],
)
def test_a_training_step(make, device, dtype, checkpointed, seen):
    """The loss, every gradient, and the loss after an AdamW step equal those of sdpa or eager."""
    losses, gradients = [], []
    with torch.enable_grad():
        for model in pair(make, device, dtype, "eager" if make in (gemma, gpt_oss) else "sdpa"):
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
    assert len(seen) == (8 if checkpointed else 4)
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
    kind, config = llama(num_key_value_heads=2)
    model = kind(config).to(device, dtype).eval()
    tokens = torch.randint(1, 97, (1, 30), device=device)
    expected = model(tokens).logits
    model.set_attn_implementation("flashcore")
    check(model(tokens).logits, expected, dtype)


@pytest.mark.compiles
@place
def test_compiled(device, dtype):
    ours, theirs = pair(DECODERS["grouped"], device, dtype)
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

    ours, theirs = pair(DECODERS["grouped"], device, dtype)
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
    ours, theirs = pair(DECODERS["grouped"], device, dtype)
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


@place
@decoder
def test_continuous_batching(make, device, dtype, seen):
    """Requests of several lengths in one batch over a paged cache: each as if it ran alone."""
    if tuple(int(n) for n in transformers.__version__.split(".")[:2]) < (5, 23):
        pytest.skip("this transformers has no continuous batching for names that it does not know")
    kind, config = make()
    config._attn_implementation = "flashcore"
    model = kind(config).to(device, dtype).eval()
    options = transformers.GenerationConfig(
        max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    prompts = [torch.randint(1, 97, (n,)).tolist() for n in (12, 3, 30, 7, 1)]
    results = model.generate_batch(prompts, generation_config=options, progress_bar=False)
    assert len(seen) > 0
    assert all(len(options["cu_seqlens_q"]) > 1 for _, options in seen)
    assert len(results) == len(prompts)
    generated = {tuple(r.prompt_ids): r.generated_tokens for r in results.values()}
    for prompt in prompts:
        tokens = generated[tuple(prompt)]
        assert len(tokens) == 12
        # Each token is the most likely one after its predecessors, except for ties in rounding.
        text = torch.tensor([prompt + tokens], device=device)
        logits = model(text).logits[0, len(prompt) - 1 : -1].float().cpu()
        chosen = logits.gather(1, torch.tensor(tokens)[:, None])[:, 0]
        tie = 1e-5 if dtype is torch.float32 else 2e-2
        assert ((logits.amax(1) - chosen) <= tie * logits.abs().amax()).all()


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
    [DECODERS["grouped"], mistral, gemma, gpt_oss],
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
    kind, config = llama(num_key_value_heads=2)
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
    with pytest.raises(NotImplementedError, match="position_bias"):
        attend(q, q, q, None, position_bias=q)
