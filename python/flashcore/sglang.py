"""SGLang: a backend for its attention, found as a plugin once FlashCore is installed.

python -m sglang.launch_server --model-path MODEL --attention-backend flashcore --page-size 16
"""

from typing import Any

import torch
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.mem_cache.base_swa_memory_pool import BaseSWAKVPool
from sglang.srt.mem_cache.memory_pool import KVWriteLoc
from sglang.srt.runtime_context import get_exec

from ._errors import UnsupportedError
from .serving import Batch, pages

__all__ = ["FlashCoreAttnBackend"]

_FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)


class FlashCoreAttnBackend(AttentionBackend):
    needs_cpu_seq_lens = False

    def __init__(self, model_runner: Any):
        super().__init__()
        self.pool = model_runner.token_to_kv_pool
        for name, given, wanted in (
            ("use_mla_backend", model_runner.use_mla_backend, "a model without latent attention"),
            (
                "token_to_kv_pool",
                isinstance(self.pool, BaseSWAKVPool),
                "one pool of pages for all layers (--disable-hybrid-swa-memory)",
            ),
        ):
            if given:
                raise UnsupportedError(f"{name}: is not supported, wanted {wanted}")
        self.page_size = model_runner.page_size
        self.device = model_runner.device
        # The first slot of each page.
        self.slots = model_runner.req_to_token_pool.req_to_token[:, :: self.page_size]
        # --enable-deterministic-inference
        self.batch_invariant = bool(get_exec().deterministic.enable_deterministic_inference)
        self.batch: Any = None

    def init_forward_metadata(self, forward_batch: Any) -> None:
        mode, lengths = forward_batch.forward_mode, forward_batch.seq_lens
        if mode.is_decode_or_idle():
            starts = torch.arange(len(lengths) + 1, dtype=torch.int32, device=lengths.device)
            most = 1
        elif mode.is_extend_or_draft_extend_or_mixed() and forward_batch.spec_info is None:
            counts = forward_batch.extend_seq_lens
            starts = torch.zeros(len(counts) + 1, dtype=torch.int32, device=counts.device)
            torch.cumsum(counts, 0, dtype=torch.int32, out=starts[1:])
            most = max(forward_batch.extend_seq_lens_cpu, default=0)
        else:
            raise UnsupportedError(f"forward_mode: is {mode.name}, wanted EXTEND, MIXED or DECODE")
        table = self.slots.index_select(0, forward_batch.req_pool_indices)
        self.batch = Batch(
            table.floor_divide_(self.page_size), lengths.int(), starts, max_seqlen_q=most
        )

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        """Arrays for the largest batch; graphs of all batches share them."""
        self._table, self._lengths, self._starts = (
            torch.zeros(shape, dtype=torch.int32, device=self.device)
            for shape in ((max_bs, self.slots.shape[1]), max_bs, max_bs + 1)
        )
        torch.arange(max_bs + 1, out=self._starts)

    def init_forward_metadata_out_graph(self, forward_batch: Any, in_capture: bool = False) -> None:
        mode, size = forward_batch.forward_mode, forward_batch.batch_size
        if not mode.is_decode_or_idle() or forward_batch.spec_info is not None:
            raise UnsupportedError(f"forward_mode: is {mode.name} in a graph, wanted DECODE")
        table, lengths, starts = self._table[:size], self._lengths[:size], self._starts[: size + 1]
        self.batch = Batch(table, lengths, starts, max_seqlen_q=1)

    def init_forward_metadata_in_graph(self, forward_batch: Any) -> None:
        size = forward_batch.batch_size
        requests = forward_batch.req_pool_indices[:size]
        torch.index_select(self.slots, 0, requests, out=self._table[:size])
        self._table[:size].floor_divide_(self.page_size)
        self._lengths[:size].copy_(forward_batch.seq_lens[:size])

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        return 1

    def forward_decode(
        self,
        q: torch.Tensor,
        k: torch.Tensor | None,
        v: torch.Tensor | None,
        layer: Any,
        forward_batch: Any,
        save_kv_cache: bool = True,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Writes k and v into the pool and attends: [tokens, Hq * D] in and out."""
        if layer.is_cross_attention or layer.xai_temperature_len > 0:
            raise UnsupportedError("layer: is not self-attention with a softmax as usual")
        scales = {}
        if save_kv_cache and k is not None and v is not None:
            given = () if layer.k_scale is None else (layer.k_scale, layer.v_scale)
            if given:  # the pool divides in place
                k, v = k.clone(), v.clone()
            self.pool.set_kv_buffer(layer, KVWriteLoc.for_layer(forward_batch, layer), k, v, *given)
        cache = self.pool.get_kv_buffer(layer.layer_id)
        if cache[0].dtype in _FP8 and layer.k_scale is not None:
            for name in ("k_scale", "v_scale"):
                scales[name] = getattr(layer, name).detach().view(1, 1, 1)
        if cache[0].dim() == 3:
            cache = tuple(pages(x, self.page_size) for x in cache)
        q = q.reshape(-1, layer.tp_q_head_num, layer.qk_head_dim)
        out = self.batch.attend(
            q,
            *cache,
            causal=layer.attn_type != AttentionType.ENCODER_ONLY,
            softmax_scale=layer.scaling,
            softcap=layer.logit_cap,
            window=(layer.sliding_window_size, -1),
            sinks=None if sinks is None else sinks.float(),
            batch_invariant=self.batch_invariant,
            **scales,
        )
        return out.reshape(len(q), -1)

    forward_extend = forward_decode

    def support_triton(self) -> bool:
        return torch.device(self.device).type == "cuda"


def register() -> None:
    """What SGLang calls in each of its processes."""
    from sglang.srt.arg_groups.choices import add_attention_backend_choices
    from sglang.srt.layers.attention.attention_registry import register_attention_backend

    add_attention_backend_choices(["flashcore"])
    register_attention_backend("flashcore")(FlashCoreAttnBackend)
