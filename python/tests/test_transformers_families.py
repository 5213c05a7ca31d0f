"""Families of models in transformers: caches, batching, compilation and training as with eager."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import ranks_models  # noqa: E402
from transformers_models import (  # noqa: E402
    DECODERS,
    FAMILIES,
    TOKENS,
    TRANSLATORS,
    build,
    causal,
    check,
    check_generation,
    check_text,
    gemma,
    gpt_oss,
    grouped,
    mistral,
    padded,
    pair,
    place,
)

import flashcore.transformers  # noqa: E402

IS_NEW = tuple(int(n) for n in transformers.__version__.split(".")[:2]) >= (5, 23)
family = pytest.mark.parametrize("make", FAMILIES.values(), ids=FAMILIES)


@pytest.fixture(autouse=True)
def registered(torch_seeded, one_thread):
    flashcore.transformers.register()


def with_reference(make, device, dtype):
    """Returns a model, and eager's in float32 with the same weights."""
    ours, theirs = pair(make, device, dtype, "eager")
    return ours, theirs.float()


@place
@family
@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_batches(make, side, device, dtype, calls_of):
    ours, theirs = with_reference(make, device, dtype)
    tokens, mask = padded((40, 25, 3), side, device)
    options = {"attention_mask": mask}
    seen_rows = mask == 1
    if make in TRANSLATORS.values():
        options["decoder_input_ids"] = torch.randint(3, 97, (3, 20), device=device)
        seen_rows = ...
    seen = calls_of(flashcore.transformers, "attention")
    actual, expected = (m(tokens, **options).logits for m in (ours, theirs))
    check(actual[seen_rows], expected[seen_rows], dtype)
    assert len(seen) == (6 if make in TRANSLATORS.values() else 2)


@place
@family
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generation(make, cache, device, dtype):
    if cache == "static" and make is DECODERS["llama4"] and not IS_NEW:
        pytest.skip("this transformers makes no mask in chunks for a static cache")
    ours, theirs = with_reference(make, device, dtype)
    tokens, mask = padded((12, 7), "left", device)
    options = {"attention_mask": mask, "cache_implementation": cache, "disable_compile": True}
    check_generation(ours, theirs, tokens, dtype, 12, **options)


# transformers quantises caches of decoders without windows.
QUANTISED = ["llama", "qwen3", "phi3", "gpt-neox", "gpt2", "opt", "deepseek-v3", "mixtral"]


@place
@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_cache(name, device, dtype, monkeypatch):
    layer = getattr(transformers.cache_utils, "Fp8QuantizedLayer", None)
    if layer is None:
        pytest.skip("this transformers has no cache in fp8")
    # Room for keys larger than the prompt's, which become NaN otherwise, with eager too.
    monkeypatch.setattr(layer, "fp8_max", 224.0)
    # With one layer both caches hold the same bits, so quantisation rounds the same way.
    ours, theirs = pair(FAMILIES[name], device, dtype, "eager", num_hidden_layers=1)
    tokens, mask = padded((12, 7), "left", device)
    options = {"cache_implementation": "quantized", "cache_config": {"backend": "fp8"}}
    check_generation(ours, theirs, tokens, dtype, 12, attention_mask=mask, **options)


@place
@family
@pytest.mark.parametrize("assistant", ["draft", "lookup"])
def test_assisted_generation(make, assistant, device, dtype):
    """Several drafted tokens are checked at once, and rejected ones leave the cache."""
    model = build(make, device, dtype, "flashcore")
    options = {"prompt_lookup_num_tokens": 3}
    if assistant == "draft":
        fewer = {"num_hidden_layers": 1, "num_decoder_layers": 1}
        kinds = getattr(model.config, "layer_types", None)
        fewer |= {"layer_types": kinds[:1]} if kinds else {}
        options = {"assistant_model": build(make, device, dtype, "flashcore", **fewer)}
    tokens = torch.randint(3, 97, (1, 12), device=device)
    options |= {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    with_help = model.generate(tokens, **options)
    model.set_attn_implementation("eager")
    if make in TRANSLATORS.values():
        for name in ("assistant_model", "prompt_lookup_num_tokens"):
            options.pop(name, None)
        assert torch.equal(with_help, model.generate(tokens, **options)) or device == "cuda"
    else:
        check_text(model, tokens[0].tolist(), with_help[0, 12:].tolist(), dtype)


# transformers' paged cache has one width for keys and values, and no chunks.
NOT_BATCHED = ("deepseek-v3", "llama4")
BATCHED = {name: make for name, make in DECODERS.items() if name not in NOT_BATCHED}


@place
@pytest.mark.parametrize("make", BATCHED.values(), ids=BATCHED)
def test_continuous_batching(make, device, dtype, calls_of):
    """Requests of several lengths, in chunks, over a paged cache: each as if it ran alone."""
    if not IS_NEW:
        pytest.skip("this transformers has no continuous batching for names that it does not know")
    ours, theirs = with_reference(make, device, dtype)
    options = transformers.GenerationConfig(
        max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    small = transformers.ContinuousBatchingConfig(page_size=16, num_blocks=64, max_batch_tokens=32)
    prompts = [torch.randint(3, 97, (n,)).tolist() for n in (12, 3, 40, 7, 1)]
    seen = calls_of(flashcore.transformers, "attention")
    results = ours.generate_batch(
        prompts, generation_config=options, continuous_batching_config=small, progress_bar=False
    )
    assert len(seen) > 0
    assert all(len(options["cu_seqlens_q"]) > 1 for _, options in seen)
    generated = {tuple(r.prompt_ids): r.generated_tokens for r in results.values()}
    assert len(generated) == len(prompts)
    for prompt in prompts:
        assert len(generated[tuple(prompt)]) == 12
        check_text(theirs, prompt, generated[tuple(prompt)], dtype)


@pytest.mark.compiles
@place
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(make, id=name, marks=() if name in ("gemma3", "t5") else pytest.mark.slow)
        for name, make in FAMILIES.items()
        if name != "llama4"  # transformers compiles no cache in chunks
    ],
)
def test_static_cache_in_one_graph(make, device, dtype):
    """`generate` compiles its steps with fullgraph, over a static cache, once."""
    ours, theirs = with_reference(make, device, dtype)
    graphs = []

    def backend(graph, inputs):
        graphs.append(str(graph.graph))
        return graph

    torch._dynamo.reset()
    tokens, mask = padded((12, 7), "left", device)
    compiled = transformers.CompileConfig(fullgraph=True, backend=backend, mode=None)
    compiled._compile_all_devices = True
    options = {"attention_mask": mask, "cache_implementation": "static"}
    check_generation(ours, theirs, tokens, dtype, 6, compile_config=compiled, **options)
    # transformers' cache with a window counts its tokens in Python, which makes a second graph.
    own = 2 if getattr(ours.config, "sliding_window", None) else 1
    assert ["flashcore.attention" in graph for graph in graphs] == [True] * own + [False]


FSDP = {"llama": grouped, "mistral": mistral, "gemma2": gemma, "gpt-oss": gpt_oss}


@pytest.mark.parametrize("make", FSDP.values(), ids=FSDP)
def test_training_with_fsdp(make, pool):
    """Two processes train on half of a batch each, with checkpointing; eager on all of it."""
    found = pool.run(ranks_models.trained, make, "flashcore", world=2)
    wanted = pool.run(ranks_models.trained, make, "eager", world=1)
    assert found[0] == found[1]
    assert found[0] == pytest.approx(wanted[0], rel=1e-4)
    assert wanted[0][-1] < wanted[0][0]


OTHERS = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4} | TOKENS


@pytest.mark.parametrize(
    ("name", "options"),
    [("Bloom", {"n_layer": 2, "n_head": 4, "hidden_size": 128} | TOKENS), ("Falcon", OTHERS)],
)
def test_models_that_compute_attention_themselves_are_refused(name, options):
    """They would take the mask for another kind, and compute something else."""
    with pytest.raises(NotImplementedError, match=f"models of {name}Config compute attention"):
        build(causal(name, options), "cpu", torch.float32, "flashcore")(torch.ones(1, 5).long())
