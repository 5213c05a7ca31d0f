#!/usr/bin/env python3
"""Times PyTorch's scaled_dot_product_attention backends by the protocol of `flashcore ladder`.

    python3 tools/peers_torch.py --out peers.json

Runs where python3 has PyTorch and a GPU. Inputs are N(0, 1); each backend's output is compared with
an fp64 computation on the same inputs, and one that is far off has no time. Device time of a call: a
CUDA graph of calls back to back, events around its replays, quantiles of the replays.
"""
import argparse
import json
import math
import sys
import time

PROTOCOLS = {  # as in bench/cuda_timer.hpp
    "sustained": {"graph_seconds": 5e-3, "warm_ups": 15, "samples": 20, "pause_seconds": 0.0},
    "idle": {"graph_seconds": 5e-3, "warm_ups": 3, "samples": 20, "pause_seconds": 0.3},
}
FIVE = [  # name, batch, heads, seqlen, head_dim, causal; as in bench/cases.cpp
    ("(1,8,512,64)", 1, 8, 512, 64, False),
    ("(1,8,512,64)/causal", 1, 8, 512, 64, True),
    ("(2,8,2048,64)", 2, 8, 2048, 64, False),
    ("(2,8,2048,64)/causal", 2, 8, 2048, 64, True),
    ("(2,8,2048,128)", 2, 8, 2048, 128, False),
]
MOST_CALLS = 4000
LARGEST_SCALED_ERROR = 1e-2  # past this a result is wrong, not merely rounded


def quantile(values, q):
    """Nearest rank."""
    ordered = sorted(values)
    return ordered[max(math.ceil(q * len(ordered)), 1) - 1]


class Timer:
    """Times a call by CUDA graphs on a stream of its own."""

    def __init__(self, torch):
        self.torch = torch
        self.stream = torch.cuda.Stream()

    def _graph(self, call, calls):
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, stream=self.stream):
            for _ in range(calls):
                call()
        return graph

    def _replay_seconds(self, graph):
        begin = self.torch.cuda.Event(enable_timing=True)
        end = self.torch.cuda.Event(enable_timing=True)
        with self.torch.cuda.stream(self.stream):
            begin.record()
            graph.replay()
            end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3

    def time(self, call, protocol):
        with self.torch.cuda.stream(self.stream):
            for _ in range(3):
                call()
        self.stream.synchronize()
        probe = self._graph(call, 4)
        self._replay_seconds(probe)
        estimate = self._replay_seconds(probe) / 4
        calls = min(max(math.ceil(protocol["graph_seconds"] / estimate), 1), MOST_CALLS)
        graph = self._graph(call, calls)
        time.sleep(protocol["pause_seconds"])
        with self.torch.cuda.stream(self.stream):
            for _ in range(protocol["warm_ups"]):
                graph.replay()
        seconds = [self._replay_seconds(graph) / calls for _ in range(protocol["samples"])]
        return {"p50_us": quantile(seconds, 0.5) * 1e6, "p90_us": quantile(seconds, 0.9) * 1e6,
                "samples": len(seconds), "calls_a_sample": calls}

    def host_seconds(self, call, calls=300):
        best = math.inf
        with self.torch.cuda.stream(self.stream):
            for _ in range(3):
                start = time.perf_counter()
                for _ in range(calls):
                    call()
                self.stream.synchronize()
                best = min(best, (time.perf_counter() - start) / calls)
        return best


def reference(torch, q, k, v, causal):
    """In fp64, a head at a time."""
    q, k, v = (t.double() for t in (q, k, v))
    out = torch.empty_like(q)
    hidden = None
    if causal:
        hidden = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(1)
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            scores = q[b, h] @ k[b, h].T / math.sqrt(q.shape[3])
            if hidden is not None:
                scores.masked_fill_(hidden, -math.inf)
            out[b, h] = torch.softmax(scores, -1) @ v[b, h]
    return out


def measure(torch, timer, shape, name, backend):
    from torch.nn.attention import sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention
    _, batch, heads, seqlen, head_dim, causal = shape
    torch.manual_seed(0)
    q, k, v = (torch.randn(batch, heads, seqlen, head_dim, device="cuda", dtype=torch.float16)
               for _ in range(3))
    want = reference(torch, q, k, v, causal)

    def call():
        return scaled_dot_product_attention(q, k, v, is_causal=causal)

    with torch.no_grad(), sdpa_kernel(backend):
        error = ((call().double() - want).abs() / want.abs().clamp(min=1)).max().item()
        row = {"backend": name, "max_scaled_error": error,
               "passed": error <= LARGEST_SCALED_ERROR}
        if not row["passed"]:
            return row
        for protocol_name, protocol in PROTOCOLS.items():
            row[protocol_name] = timer.time(call, protocol)
        row["host_us"] = timer.host_seconds(call) * 1e6
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--suite", choices=["five"], default="five")
    options = parser.parse_args()
    try:
        import torch
        from torch.nn.attention import SDPBackend
    except ImportError as error:
        print(f"peers: python3 has no PyTorch ({error})", file=sys.stderr)
        return 3
    if not torch.cuda.is_available():
        print("peers: PyTorch sees no GPU", file=sys.stderr)
        return 3
    backends = [("flash", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION),
                ("efficient", SDPBackend.EFFICIENT_ATTENTION), ("math", SDPBackend.MATH)]
    timer = Timer(torch)
    shapes = {}
    for shape in FIVE:
        shapes[shape[0]] = []
        for name, backend in backends:
            print(f"peers: {shape[0]} {name}", file=sys.stderr)
            try:
                row = measure(torch, timer, shape, name, backend)
            except RuntimeError as error:  # a backend that refuses the shape
                row = {"backend": name, "passed": False, "error": str(error).splitlines()[0]}
            shapes[shape[0]].append(row)
    result = {"torch": torch.__version__, "cuda": torch.version.cuda,
              "cudnn": torch.backends.cudnn.version(), "device": torch.cuda.get_device_name(),
              "shapes": shapes}
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
