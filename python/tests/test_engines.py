"""The backends for vLLM and SGLang, over recorded steps, where neither engine is installed.

The engines' classes are replaced by what the backends use of them. scripts/engines.sh runs both
engines.
"""

import importlib
import sys
from enum import Enum
from types import ModuleType, SimpleNamespace

import pytest
from test_serving_batch import FIRST, HEADS, HEADS_KV, OPTIONS, PAGE, SECOND, THIRD, WIDTH, Requests

import flashcore

torch = pytest.importorskip("torch")

STEPS = (FIRST, SECOND, THIRD)


def modules(monkeypatch, contents):
    """Puts modules with these contents in place, and their packages."""
    for name, content in contents.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            path = ".".join(parts[:end])
            if path not in sys.modules:
                monkeypatch.setitem(sys.modules, path, ModuleType(path))
        vars(sys.modules[name]).update(content)
        if len(parts) > 1:
            monkeypatch.setattr(
                sys.modules[name.rsplit(".", 1)[0]], parts[-1], sys.modules[name], raising=False
            )


def fresh(monkeypatch, name):
    monkeypatch.delitem(sys.modules, name, raising=False)
    module = importlib.import_module(name)
    monkeypatch.setitem(sys.modules, name, module)  # taken out again
    return module


class Registry(Enum):
    CPU_ATTN = "own"
    CPU_MLA = "latent"


class Generic:
    """A base class that is subscripted and keeps what its constructor gets."""

    def __class_getitem__(cls, _):
        return cls

    def __init__(self, *given):
        self.given = given


@pytest.fixture
def vllm(monkeypatch):
    registered = {}
    types = Enum("AttentionType", {"DECODER": "decoder"})
    bases = {
        name: type(name, (Generic,), {})
        for name in ("AttentionBackend", "AttentionImpl", "AttentionMetadataBuilder")
    }
    modules(
        monkeypatch,
        {
            "vllm.envs": {"VLLM_BATCH_INVARIANT": False, "VLLM_PLUGINS": None},
            "vllm.platforms": {"current_platform": SimpleNamespace(is_cpu=lambda: True)},
            "vllm.v1.attention.backend": bases
            | {
                "AttentionCGSupport": SimpleNamespace(ALWAYS=3),
                "AttentionType": types,
                "CommonAttentionMetadata": object,
                "MultipleOf": int,
            },
            "vllm.v1.attention.backends.registry": {
                "AttentionBackendEnum": Registry,
                "register_backend": registered.__setitem__,
            },
        },
    )
    module = fresh(monkeypatch, "flashcore.vllm")
    module.registered = registered
    return module


def common(batch, counts, **changes):
    """vLLM's description of a step."""
    return SimpleNamespace(
        **{
            "query_start_loc": batch.cu_seqlens_q,
            "seq_lens": batch.seqlens_kv,
            "num_reqs": len(counts),
            "num_actual_tokens": sum(counts),
            "max_query_len": max(counts),
            "block_table_tensor": batch.page_table,
            "causal": True,
        }
        | changes
    )


def builder(vllm, device):
    scheduler = SimpleNamespace(max_num_seqs=6, max_num_batched_tokens=64)
    config = SimpleNamespace(scheduler_config=scheduler)
    return vllm.FlashCoreMetadataBuilder(None, [], config, device)


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("name", OPTIONS)
def test_vllm(vllm, torch_device, name, layout):
    requests = Requests(torch_device)
    # vLLM's cache has K and V of a row side by side.
    both = torch.cat(requests.cache, dim=-1)
    if layout == "NHD":
        both = both.transpose(1, 2).contiguous().transpose(1, 2)
    requests.cache = [both[..., :WIDTH], both[..., WIDTH:]]
    options = {"softmax_scale": WIDTH**-0.5} | OPTIONS[name]
    impl = vllm.FlashCoreImpl(
        HEADS,
        WIDTH,
        options["softmax_scale"],
        HEADS_KV,
        options["alibi_slopes"].tolist() if "alibi_slopes" in options else None,
        options["window"][0] + 1 if "window" in options else None,
        "auto",
        options.get("softcap"),
        sinks=torch.tensor(options["sinks"]).to(torch_device) if "sinks" in options else None,
    )
    impl.process_weights_after_loading(requests.dtype)
    if "alibi_slopes" in impl.options:  # vLLM makes a model with its device as the default
        impl.options["alibi_slopes"] = impl.options["alibi_slopes"].to(torch_device)
    build = builder(vllm, torch_device).build
    for counts in STEPS:
        batch, rows = requests.step(counts)
        metadata = build(0, common(batch, counts))
        # Padding behind the tokens, as for a graph.
        q, k, v = (torch.cat([x, torch.full_like(x[:3], float("nan"))]) for x in rows)
        out = torch.zeros_like(q)
        assert impl.forward(None, q, k, v, both, metadata, out) is out
        _, lse = batch.attend(rows[0], *requests.cache, return_lse=True, **impl.options)
        requests.check(out[: sum(counts)], lse, rows[0], counts, **options)
        assert (out[sum(counts) :] == 0).all()


def test_vllm_fp8_cache(vllm, torch_device):
    requests = Requests(torch_device, cache=torch.float8_e4m3fn)
    both = torch.cat([x.view(torch.uint8) for x in requests.cache], dim=-1)
    requests.cache = [x.view(torch.float8_e4m3fn) for x in (both[..., :WIDTH], both[..., WIDTH:])]
    scale = {name: torch.tensor(0.5, device=torch_device) for name in ("_k_scale", "_v_scale")}
    impl = vllm.FlashCoreImpl(HEADS, WIDTH, 0.125, HEADS_KV, kv_cache_dtype="fp8")
    batch, (q, k, v) = requests.step(FIRST)
    out = torch.empty_like(q)
    metadata = builder(vllm, torch_device).build(0, common(batch, FIRST))
    impl.forward(SimpleNamespace(**scale), q, k, v, both, metadata, out)
    scales = {name[1:]: value.view(1, 1, 1) for name, value in scale.items()}
    _, lse = batch.attend(q, *requests.cache, return_lse=True, softmax_scale=0.125, **scales)
    requests.check(out, lse, q, FIRST, (0.5, 0.5), softmax_scale=0.125)


def test_vllm_leaves_alone_what_it_should(vllm):
    requests = Requests("cpu")
    both = torch.cat(requests.cache, dim=-1)
    batch, (q, k, v) = requests.step([1] * 6)
    metadata = builder(vllm, "cpu").build(0, common(batch, [1] * 6))
    shares = vllm.FlashCoreImpl(
        HEADS, WIDTH, 1.0, HEADS_KV, kv_sharing_target_layer_name="another layer"
    )
    shares.forward(None, q, k, v, both, metadata, torch.empty_like(q))
    assert both.isnan().all()
    assert (shares.forward(None, q, k, v, both, None, torch.ones_like(q)) == 0).all()
    with pytest.raises(flashcore.UnsupportedError, match="output_scale: is given"):
        shares.forward(None, q, k, v, both, metadata, q, output_scale=q)
    with pytest.raises(flashcore.UnsupportedError, match="causal: is not True"):
        builder(vllm, "cpu").build(0, common(batch, [1] * 6, causal=False))


def test_vllm_plugin(vllm, monkeypatch):
    vllm.register()
    paths = "flashcore.vllm.FlashCoreBackend", "flashcore._vllm_mla.FlashCoreMLABackend"
    assert vllm.registered == dict(zip(("FLASHCORE", "FLASHCORE_MLA"), paths, strict=True))
    monkeypatch.setattr(sys.modules["vllm.envs"], "VLLM_PLUGINS", ["flashcore"])
    vllm.register()
    assert (vllm.registered[Registry.CPU_ATTN], vllm.registered[Registry.CPU_MLA]) == paths
    assert vllm.FlashCoreBackend.get_builder_cls() is vllm.FlashCoreMetadataBuilder


class Mode(Enum):
    DECODE, EXTEND, MIXED, TARGET_VERIFY = range(4)

    def is_decode_or_idle(self):
        return self is Mode.DECODE

    def is_extend_or_draft_extend_or_mixed(self):
        return self in (Mode.EXTEND, Mode.MIXED)


class Pool:
    """One layer's cache of tokens, written at the slots of `out_cache_loc`."""

    def __init__(self, requests, buffers):
        self.requests, self.buffers = requests, buffers

    def get_kv_buffer(self, layer_id):
        return self.buffers

    def set_kv_buffer(self, layer, where, k, v, k_scale=1.0, v_scale=1.0):
        pages, rows = where // PAGE, where % PAGE
        for cache, new, scale in zip(self.requests.cache, (k, v), (k_scale, v_scale), strict=True):
            cache.transpose(1, 2)[pages, rows] = new.div_(scale).to(cache.dtype)


@pytest.fixture
def sglang(monkeypatch):
    deterministic = SimpleNamespace(enable_deterministic_inference=False)
    location = SimpleNamespace(for_layer=lambda forward_batch, layer: forward_batch.out_cache_loc)
    names = {
        "layers.attention.base_attn_backend": {"AttentionBackend": type("Base", (), {})},
        "layers.radix_attention": {"AttentionType": Enum("Type", "DECODER ENCODER_ONLY")},
        "mem_cache.base_swa_memory_pool": {"BaseSWAKVPool": type("SWA", (), {})},
        "mem_cache.memory_pool": {"KVWriteLoc": location},
        "runtime_context": {"get_exec": lambda: SimpleNamespace(deterministic=deterministic)},
        "arg_groups.choices": {"add_attention_backend_choices": lambda names: None},
        "layers.attention.attention_registry": {},
    }
    modules(monkeypatch, {f"sglang.srt.{name}": content for name, content in names.items()})
    return fresh(monkeypatch, "flashcore.sglang")


def runner(requests, pool, **changes):
    """SGLang's runner of a model whose requests 1, 2, ... have the pages of `requests`."""
    slots = requests.table[:, :, None] * PAGE + torch.arange(PAGE, device=requests.device)
    table = torch.cat([torch.zeros_like(slots[:1]), slots]).flatten(1).int()
    return SimpleNamespace(
        **{
            "token_to_kv_pool": pool,
            "req_to_token_pool": SimpleNamespace(req_to_token=table),
            "page_size": PAGE,
            "device": requests.device,
            "use_mla_backend": False,
        }
        | changes
    )


def forward_batch(requests, counts, before, table, mode):
    chosen = [b for b, count in enumerate(counts) if count]
    locations = [table[b + 1, before[b] : before[b] + counts[b]] for b in chosen]
    return SimpleNamespace(
        forward_mode=mode,
        batch_size=len(chosen),
        req_pool_indices=torch.tensor(chosen, device=requests.device) + 1,
        seq_lens=torch.tensor([before[b] + counts[b] for b in chosen], device=requests.device),
        extend_seq_lens=requests.integers([counts[b] for b in chosen]),
        extend_seq_lens_cpu=[counts[b] for b in chosen],
        out_cache_loc=torch.cat(locations).long(),
        spec_info=None,
    )


@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("name", ["plain", "window", "sinks", "softcap"])
def test_sglang(sglang, torch_device, name, layout, fp8):
    requests = Requests(torch_device, layout=layout, cache=torch.float8_e4m3fn if fp8 else None)
    pool = Pool(requests, requests.buffers)
    engine = runner(requests, pool)
    backend = sglang.FlashCoreAttnBackend(engine)
    backend.init_cuda_graph_state(8, 8)
    options = OPTIONS[name]
    scale = torch.full((1,), 0.5, device=torch_device) if fp8 else None
    layer = SimpleNamespace(
        layer_id=0,
        tp_q_head_num=HEADS,
        qk_head_dim=WIDTH,
        scaling=0.125,
        logit_cap=options.get("softcap", 0.0),
        sliding_window_size=options.get("window", (-1, -1))[0],
        is_cross_attention=False,
        xai_temperature_len=-1,
        attn_type=sglang.AttentionType.DECODER,
        k_scale=scale,
        v_scale=scale,
    )
    sinks = {"sinks": torch.tensor(options["sinks"]).to(torch_device)} if "sinks" in options else {}
    table = engine.req_to_token_pool.req_to_token
    for turn, counts in enumerate((*STEPS, THIRD)):
        before = list(requests.lengths)
        _, (q, k, v) = requests.step(counts)
        mode = (Mode.EXTEND, Mode.MIXED, Mode.DECODE, Mode.DECODE)[turn]
        given = forward_batch(requests, counts, before, table, mode)
        if turn < 3:
            backend.init_forward_metadata(given)
            forward = backend.forward_decode if turn == 2 else backend.forward_extend
        else:  # as for a graph
            backend.init_forward_metadata_out_graph(given, in_capture=True)
            backend.init_forward_metadata_in_graph(given)
            forward = backend.forward_decode
        kept = k.clone(), v.clone()
        out = forward(q.flatten(1), k, v, layer, given, **sinks)
        assert torch.equal(k, kept[0])
        assert torch.equal(v, kept[1])
        out = out.view(-1, HEADS, WIDTH)
        scales = {n: scale.view(1, 1, 1) for n in ("k_scale", "v_scale")} if fp8 else {}
        _, lse = backend.batch.attend(
            q,
            *requests.cache,
            return_lse=True,
            softmax_scale=0.125,
            **{**options, **sinks},
            **scales,
        )
        numbers = (0.5, 0.5) if fp8 else (1.0, 1.0)
        requests.check(out, lse, q, counts, numbers, softmax_scale=0.125, **options)


def test_sglang_refuses(sglang):
    requests = Requests("cpu")
    pool = Pool(requests, requests.buffers)
    with pytest.raises(flashcore.UnsupportedError, match="use_mla_backend: is not supported"):
        sglang.FlashCoreAttnBackend(runner(requests, pool, use_mla_backend=True))
    with pytest.raises(flashcore.UnsupportedError, match="disable-hybrid-swa-memory"):
        sglang.FlashCoreAttnBackend(runner(requests, sglang.BaseSWAKVPool()))
    engine = runner(requests, pool)
    backend = sglang.FlashCoreAttnBackend(engine)
    table = engine.req_to_token_pool.req_to_token
    given = forward_batch(requests, [1] * 6, [0] * 6, table, Mode.TARGET_VERIFY)
    for start in (backend.init_forward_metadata, backend.init_forward_metadata_out_graph):
        with pytest.raises(flashcore.UnsupportedError, match="forward_mode: is TARGET_VERIFY"):
            start(given)
