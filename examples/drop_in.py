"""Three ways to use FlashCore in a PyTorch program that was not written for it.

    python examples/drop_in.py

Needs PyTorch; the last part needs transformers, and prints a message if it is missing.
"""

import torch
import torch.nn.functional as F

import flashcore
import flashcore.torch

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() and flashcore.build_info()["cuda"] else "cpu"
dtype = torch.float16 if device == "cuda" else torch.float32


class Block(torch.nn.Module):
    """Self-attention as in most programs."""

    def __init__(self, width: int = 256, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(o.transpose(1, 2).flatten(2))


def difference(a: torch.Tensor, b: torch.Tensor) -> str:
    return f"largest difference {(a - b).abs().max().item():.1e}"


with torch.no_grad():
    block = Block().to(device, dtype)
    x = torch.randn(2, 100, 256, device=device, dtype=dtype)
    expected = block(x)

    # 1. Temporarily: every call of F.scaled_dot_product_attention runs FlashCore.
    with flashcore.torch.replace_sdpa():
        print("replace_sdpa:   ", difference(block(x), expected))

        # 2. The same under torch.compile, in one graph.
        compiled = torch.compile(block, fullgraph=True)
        print("torch.compile:  ", difference(compiled(x), expected))

    # 3. By name, in transformers.
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError:
        print("transformers is not installed")
    else:
        import flashcore.transformers

        flashcore.transformers.register()
        config = LlamaConfig(
            vocab_size=1000,
            hidden_size=256,
            intermediate_size=512,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
        )
        model = LlamaForCausalLM(config).to(device, dtype).eval()
        tokens = torch.randint(1000, (1, 50), device=device)
        expected = model(tokens).logits
        model.set_attn_implementation("flashcore")
        print("transformers:   ", difference(model(tokens).logits, expected))
