"""Trains a small GPT from scratch on generated text: with FlashCore, and with sdpa.

    python examples/train_gpt.py                 # both, one after the other
    python examples/train_gpt.py --steps 20      # a short run

The text is lines like "tom has 3 plums and 4 pears, so tom has 7 fruits."; a token is a character.
Each run is a separate process, with the same model, data and order of batches; only the attention
differs. Prints losses, time and memory side by side. Needs PyTorch.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

import flashcore
import flashcore.torch

NAMES = ("tom", "anna", "li", "omar", "eve", "jan")
FRUITS = ("plums", "pears", "figs", "dates", "limes", "kiwis")
ALPHABET = sorted(set("".join((*NAMES, *FRUITS, " has and, so fruits.\n0123456789"))))
ATTENTION = {
    "flashcore": flashcore.torch.scaled_dot_product_attention,
    "sdpa": F.scaled_dot_product_attention,
}


def make_text(characters: int, generator: torch.Generator) -> torch.Tensor:
    """Generates lines, as character indices."""
    lines: list[str] = []
    length = 0
    while length < characters:
        who, what, other = torch.randint(0, 6, (3,), generator=generator).tolist()
        a, b = torch.randint(1, 10, (2,), generator=generator).tolist()
        name = NAMES[who]
        has = f"{name} has {a} {FRUITS[what]} and {b} {FRUITS[other]}"
        lines.append(f"{has}, so {name} has {a + b} fruits.\n")
        length += len(lines[-1])
    return torch.tensor([ALPHABET.index(c) for c in "".join(lines)[:characters]])


class Block(nn.Module):
    def __init__(self, width: int, heads: int, attention: str):
        super().__init__()
        self.heads, self.attention = heads, ATTENTION[attention]
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.norm_1(x)).chunk(3, dim=-1)
        )
        o = self.attention(q, k, v, is_causal=True)
        x = x + self.out(o.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class Gpt(nn.Module):
    def __init__(self, attention: str, context: int, width: int = 64, layers: int = 2):
        super().__init__()
        self.tokens = nn.Embedding(len(ALPHABET), width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, 2, attention) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, len(ALPHABET))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def peak_memory(device: str) -> int:
    """Returns memory in bytes: of the GPU's tensors, or of the whole process."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def train(attention: str, steps: int, context: int, batch: int) -> dict[str, object]:
    device = "cuda" if torch.cuda.is_available() and flashcore.build_info()["cuda"] else "cpu"
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    text = make_text(100_000, generator)
    model = Gpt(attention, context).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    before = peak_memory(device)
    begin, begin_processor = time.perf_counter(), time.process_time()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * min(1.0, (step + 1) / 20)
        starts = torch.randint(0, len(text) - context - 1, (batch,), generator=generator)
        rows = torch.stack([text[i : i + context + 1] for i in starts.tolist()]).to(device)
        with torch.autocast(device, torch.float16, enabled=device == "cuda"):
            loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {
        "device": device,
        "losses": losses,
        "seconds": time.perf_counter() - begin,
        "processor": time.process_time() - begin_processor,
        "memory": peak_memory(device) - before,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--context", type=int, default=256, help="characters in a row")
    parser.add_argument("--batch", type=int, default=8, help="rows in a step")
    parser.add_argument("--only", choices=ATTENTION, help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = (options.steps, options.context, options.batch)
    if options.only:
        print(json.dumps(train(options.only, *sizes)))
        return
    found = {}
    for name in ATTENTION:
        asked = [
            f"--{n}={value}" for n, value in zip(("steps", "context", "batch"), sizes, strict=True)
        ]
        command = [sys.executable, __file__, "--only", name, *asked]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found[name] = json.loads(done.stdout.splitlines()[-1])
    print(f"on {found['sdpa']['device']:12}", *(f"{name:>12}" for name in found))
    for step in sorted({*range(0, options.steps, max(1, options.steps // 6)), options.steps - 1}):
        print(f"loss, step {step:4}", *(f"{run['losses'][step]:12.4f}" for run in found.values()))
    for name, label in (("seconds", "seconds"), ("processor", "processor s")):
        print(f"{label:15}", *(f"{run[name]:12.1f}" for run in found.values()))
    print("memory, MB     ", *(f"{run['memory'] / 2**20:12.0f}" for run in found.values()))


if __name__ == "__main__":
    main()
