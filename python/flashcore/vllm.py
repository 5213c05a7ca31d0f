"""vLLM: a backend of its v1 engine, found as a plugin once FlashCore is installed.

    vllm serve MODEL --attention-backend FLASHCORE

Models with latent attention take FLASHCORE_MLA, for decode.
vLLM has no choice of backends on the CPU. There, VLLM_PLUGINS=flashcore puts this one in place of
vLLM's own.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import vllm.envs
from vllm.platforms import current_platform
from vllm.v1.attention.backend import (
    AttentionBackend,
    AttentionCGSupport,
    AttentionImpl,
    AttentionMetadataBuilder,
    AttentionType,
    CommonAttentionMetadata,
    MultipleOf,
)
from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

from ._errors import UnsupportedError
from .serving import Batch

__all__ = ["FlashCoreBackend", "FlashCoreImpl", "FlashCoreMetadata", "FlashCoreMetadataBuilder"]

_NAME = "FLASHCORE"
_FP8 = {
    "fp8": torch.float8_e4m3fn,
    "fp8_e4m3": torch.float8_e4m3fn,
    "fp8_e5m2": torch.float8_e5m2,
}


class FlashCoreBackend(AttentionBackend):
    supported_dtypes: ClassVar[Any] = [torch.float16, torch.bfloat16, torch.float32]
    supported_kv_cache_dtypes: ClassVar[Any] = ["auto", "float16", "bfloat16", *_FP8]
    forward_includes_kv_cache_update = True

    @staticmethod
    def get_name() -> str:
        return _NAME

    @staticmethod
    def get_impl_cls() -> "type[FlashCoreImpl]":
        return FlashCoreImpl

    @staticmethod
    def get_builder_cls() -> "type[FlashCoreMetadataBuilder]":
        return FlashCoreMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[Any]:
        return [MultipleOf(16)]

    @classmethod
    def supports_sink(cls) -> bool:
        return True

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return True

    @classmethod
    def supports_batch_invariance(cls) -> bool:
        return True


@dataclass
class FlashCoreMetadata:
    batch: Batch
    tokens: int  # without padding


class FlashCoreMetadataBuilder(AttentionMetadataBuilder[FlashCoreMetadata]):
    _cudagraph_support = AttentionCGSupport.ALWAYS

    def __init__(self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: Any):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        scheduler = vllm_config.scheduler_config
        most = max(scheduler.max_num_seqs, scheduler.max_num_batched_tokens)
        # A captured graph reads the lengths before a step here.
        self._before = torch.zeros(most, dtype=torch.int32, device=device)

    def build(
        self,
        common_prefix_len: int,
        common_attn_metadata: CommonAttentionMetadata,
        fast_build: bool = False,
    ) -> FlashCoreMetadata:
        common = common_attn_metadata
        if common.causal is not True:
            raise UnsupportedError("causal: is not True, wanted a decoder's attention")
        starts, seqlens = common.query_start_loc, common.seq_lens
        before = self._before[: common.num_reqs]
        torch.sub(seqlens, starts[1:], out=before).add_(starts[:-1])
        batch = Batch(
            common.block_table_tensor,
            seqlens,
            starts,
            max_seqlen_q=common.max_query_len,
            seqlens_before=before,
        )
        return FlashCoreMetadata(batch, common.num_actual_tokens)


class FlashCoreImpl(AttentionImpl[FlashCoreMetadata]):
    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int | None = None,
        alibi_slopes: list[float] | None = None,
        sliding_window: int | None = None,
        kv_cache_dtype: str = "auto",
        logits_soft_cap: float | None = None,
        attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None,
        sinks: torch.Tensor | None = None,
    ):
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads or num_heads
        self.head_size = head_size
        self.scale = float(scale)
        self.kv_cache_dtype = kv_cache_dtype
        self.writes = kv_sharing_target_layer_name is None
        self.sinks = sinks
        self.options: dict[str, Any] = {
            "softmax_scale": self.scale,
            "softcap": logits_soft_cap or 0.0,
            "window": (-1 if sliding_window is None else sliding_window - 1, -1),
            "batch_invariant": bool(vllm.envs.VLLM_BATCH_INVARIANT),
        }
        if alibi_slopes is not None:
            self.options["alibi_slopes"] = torch.tensor(alibi_slopes, dtype=torch.float32)

    def process_weights_after_loading(self, act_dtype: torch.dtype) -> None:
        if self.sinks is not None:
            self.options["sinks"] = self.sinks.float()

    def forward(
        self,
        layer: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        attn_metadata: FlashCoreMetadata | None,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Writes key and value into the cache and attends.

        query, output: [tokens, Hq, D]; key, value: [tokens, Hkv, D]; kv_cache: [blocks, Hkv,
        block_size, D of K and D of V], in any of vLLM's layouts.
        """
        if output_scale is not None or output_block_scale is not None:
            raise UnsupportedError("output_scale: is given, wanted an output that is not quantised")
        if attn_metadata is None:  # vLLM measures its memory
            return output.zero_()
        batch, tokens = attn_metadata.batch, attn_metadata.tokens
        scales: dict[str, Any] = {}
        if self.kv_cache_dtype in _FP8:
            kv_cache = kv_cache.view(_FP8[self.kv_cache_dtype])
            scales["k_scale"] = layer._k_scale.view(1, 1, 1)
            scales["v_scale"] = layer._v_scale.view(1, 1, 1)
        k_cache, v_cache = kv_cache[..., : self.head_size], kv_cache[..., self.head_size :]
        if self.writes and key is not None:
            batch.append(key[:tokens], value[:tokens], k_cache, v_cache, **scales)
        options = self.options | scales
        batch.attend(query[:tokens], k_cache, v_cache, out=output[:tokens], **options)
        return output


def register() -> None:
    """What vLLM calls in each of its processes, more than once."""
    on_cpu = current_platform.is_cpu() and "flashcore" in (vllm.envs.VLLM_PLUGINS or ())
    for name, path, own in (
        (_NAME, f"{__name__}.{FlashCoreBackend.__name__}", "CPU_ATTN"),
        (f"{_NAME}_MLA", "flashcore._vllm_mla.FlashCoreMLABackend", "CPU_MLA"),
    ):
        if name not in AttentionBackendEnum.__members__:
            register_backend(name, path)
        if on_cpu:
            register_backend(AttentionBackendEnum[own], path)
