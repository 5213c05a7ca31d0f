"""Attention maps of a few options, and times of the backends: a script in cells, like a notebook.

    python examples/attention_maps.py [--out DIRECTORY]

Needs NumPy; draws with matplotlib if installed, and compares PyTorch's backends with
FlashCore if PyTorch is installed, on the CPU and on a GPU. Cells begin with `# %%`, which
editors and Jupyter understand.
"""

# %% A row of V per key, so that O is the attention map itself
import argparse
import pathlib
import statistics
import time

import numpy as np

import flashcore

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--out", default=".", help="where attention_maps.png goes")
out_directory = pathlib.Path(parser.parse_args().out)

LENGTH = 48
rng = np.random.default_rng(0)
# Neighbouring positions are similar, so that the maps show structure.
steps = rng.normal(size=(1, 1, LENGTH, 32)).cumsum(axis=2).astype(np.float32)
q = k = steps / np.sqrt(1 + np.arange(LENGTH, dtype=np.float32))[:, None]
identity = np.eye(LENGTH, dtype=np.float32)[None, None]


def attention_map(**options):
    """softmax(Q K^T): attention over the unit vectors."""
    return flashcore.attention(q, k, identity, **options)[0, 0]


# %% The maps
blocks = np.arange(LENGTH) // 12
maps = {
    "full": {},
    "causal": {"causal": True},
    "window (8, 0)": {"window": (8, 0)},
    "ALiBi": {"alibi_slopes": np.array([0.3], np.float32), "causal": True},
    "softcap 2": {"softcap": 2.0},
    "sink": {"sinks": np.array([4.0], np.float32), "causal": True},
    "mask: blocks": {"mask": (blocks[:, None] == blocks[None, :])[None, None]},
    "24 keys in use": {"seqlens_kv": np.array([24], np.int32)},
}
drawn = {name: attention_map(**options) for name, options in maps.items()}
for name, weights in drawn.items():
    print(
        f"{name:16} rows sum to {weights.sum(axis=1).min():.3f} ... {weights.sum(axis=1).max():.3f}"
    )

try:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
except ImportError:
    print("matplotlib is not installed: no picture")
else:
    figure, axes = plt.subplots(2, 4, figsize=(12, 6.4), layout="constrained")
    for axis, (name, weights) in zip(axes.flat, drawn.items(), strict=True):
        image = axis.imshow(weights, cmap="magma", norm="log", vmin=1e-3, vmax=1)
        axis.set(title=name, xticks=[], yticks=[], xlabel="keys", ylabel="queries")
        axis.set_facecolor("black")  # keys that a query does not see
    figure.colorbar(image, ax=axes, label="weight", shrink=0.6)
    path = out_directory / "attention_maps.png"
    figure.savefig(path, dpi=120)
    print(f"wrote {path}")


# %% Times, each after its result was checked
def milliseconds(call, repeats=7):
    call()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)


def naive(q, k, v):
    scores = q @ k.swapaxes(-1, -2) / np.float32(np.sqrt(q.shape[-1]))
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ v


q, k, v = (rng.normal(size=(1, 8, 512, 64)).astype(np.float32) for _ in range(3))
exact = flashcore.attention(q, k, v, kernel="reference")
contestants = {
    "NumPy, unfused": lambda: naive(q, k, v),
    "flashcore": lambda: flashcore.attention(q, k, v),
    "flashcore, bfloat16": None,
}
try:
    import ml_dtypes

    halves = [x.astype(ml_dtypes.bfloat16) for x in (q, k, v)]
    contestants["flashcore, bfloat16"] = lambda: flashcore.attention(*halves)
except ImportError:
    del contestants["flashcore, bfloat16"]
try:
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel
except ImportError:
    torch = None
else:
    tensors = [torch.from_numpy(x) for x in (q, k, v)]
    contestants["PyTorch sdpa, CPU"] = lambda: F.scaled_dot_product_attention(*tensors).numpy()

print("\n(1, 8, 512, 64) on the CPU")
for name, call in contestants.items():
    error = np.abs(np.asarray(call(), np.float32) - exact).max()
    print(f"{name:22} {milliseconds(call):8.2f} ms   largest error {error:.1e}")


# %% The same on a GPU: a captured graph of 20 calls, so that only the device's time counts
def microseconds(call, calls=20, repeats=9):
    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1e3 * begin.elapsed_time(end) / calls)
    return statistics.median(times)


def by_backend(backend, *tensors):
    with sdpa_kernel(backend):
        return F.scaled_dot_product_attention(*tensors)


if torch is None or not torch.cuda.is_available() or not flashcore.build_info()["cuda"]:
    print("\nno PyTorch with a GPU here: no times of it")
else:
    for shape in ((1, 8, 512, 64), (2, 8, 2048, 64)):
        tensors = [torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(3)]
        exact = by_backend(SDPBackend.MATH, *(x.double() for x in tensors))
        calls = {"flashcore": lambda x=tensors: flashcore.attention(*x)}
        for name in ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION"):
            backend = getattr(SDPBackend, name)
            calls[f"PyTorch {name.lower()}"] = lambda b=backend, x=tensors: by_backend(b, *x)
        print(f"\n{shape} on {torch.cuda.get_device_name()}, float16")
        for name, call in calls.items():
            try:
                error = (call().double() - exact).abs().max().item()
                print(f"{name:28} {microseconds(call):8.2f} us   largest error {error:.1e}")
            except RuntimeError as reason:
                print(f"{name:28}        -      {str(reason).splitlines()[0]}")
