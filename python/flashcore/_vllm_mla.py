"""vLLM: decode of models with latent attention (MLA). Prompts are computed by vLLM's own code."""

from typing import Any, ClassVar

import torch
import vllm.envs
from vllm.model_executor.layers.attention.mla_attention import (
    MLACommonBackend,
    MLACommonImpl,
    MLACommonMetadata,
    MLACommonMetadataBuilder,
    QueryLenSupport,
)
from vllm.platforms import current_platform
from vllm.v1.attention.backend import AttentionCGSupport, MultipleOf

from ._serving import decode

__all__ = ["FlashCoreMLABackend", "FlashCoreMLAImpl", "FlashCoreMLAMetadataBuilder"]

if current_platform.is_cpu():  # what writes the cache and computes prompts there
    from vllm.v1.attention.backends.mla.cpu_mla import CPUMLABackend, CPUMLAImpl

    _Backend: Any = CPUMLABackend
    _Impl: Any = CPUMLAImpl
else:
    _Backend, _Impl = MLACommonBackend, MLACommonImpl


class FlashCoreMLAMetadataBuilder(MLACommonMetadataBuilder[MLACommonMetadata]):
    _cudagraph_support = AttentionCGSupport.UNIFORM_BATCH
    query_len_support = QueryLenSupport.UNIFORM


class FlashCoreMLABackend(_Backend):
    supported_dtypes: ClassVar[Any] = [torch.float16, torch.bfloat16, torch.float32]
    supported_kv_cache_dtypes: ClassVar[Any] = ["auto", "float16", "bfloat16"]

    @staticmethod
    def get_name() -> str:
        return "FLASHCORE_MLA"

    @staticmethod
    def get_impl_cls() -> "type[FlashCoreMLAImpl]":
        return FlashCoreMLAImpl

    @staticmethod
    def get_builder_cls() -> type[FlashCoreMLAMetadataBuilder]:
        return FlashCoreMLAMetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[Any]:
        return [MultipleOf(16)]

    @classmethod
    def supports_block_size(cls, block_size: int | None) -> bool:
        return block_size is None or block_size % 16 == 0

    @classmethod
    def get_supported_head_sizes(cls) -> list[int]:
        return []

    @classmethod
    def supports_batch_invariance(cls) -> bool:
        return True


class FlashCoreMLAImpl(_Impl):
    can_return_lse_for_decode = True

    def forward_mqa(
        self,
        q: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
        kv_c_and_k_pe_cache: torch.Tensor,
        attn_metadata: Any,
        layer: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Decode, with as many queries for each request: [tokens, Hq, 576] to [tokens, Hq, 512]."""
        if isinstance(q, tuple):
            q = torch.cat(q, dim=-1)
        lengths = attn_metadata.decode.seq_lens
        pages = kv_c_and_k_pe_cache.unsqueeze(1)
        out, lse = decode(
            q.unflatten(0, (len(lengths), -1)).transpose(1, 2),
            pages,
            pages[..., : self.kv_lora_rank],
            page_table=attn_metadata.decode.block_table,
            seqlens_kv=lengths,
            softmax_scale=self.scale,
            batch_invariant=bool(vllm.envs.VLLM_BATCH_INVARIANT),
            return_lse=True,
        )
        return out.transpose(1, 2).flatten(0, 1), lse.transpose(1, 2).flatten(0, 1)
