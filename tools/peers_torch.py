#!/usr/bin/env python3
"""Other implementations of attention, for `flashcore bench` and `flashcore ladder`.

    peers_torch.py --serve [--device cpu|cuda:N]     answers requests, one line of JSON each way

Runs where python3 has PyTorch. Peers (tools/peers_backends.py): PyTorch's
scaled_dot_product_attention backends, FlexAttention, and FlashAttention 2, 3 and 4, FlashInfer and
xFormers if they can be imported.

A case comes with pieces of N(0, 1) inputs that are repeated to the tensors' sizes, so inputs equal the other
process's; rows of the result are judged there. For the backward pass ("pass": "backward") the forward pass
runs once, untimed. Device time per call: a CUDA graph of calls back to back, between events. CPU: wall time.
"""
import argparse
import contextlib
import ctypes
import itertools
import json
import math
import os
import pathlib
import platform
import sys
import time

from peers_backends import FEATURES, TENSORS, backends, first_line

MOST_CALLS = 4000


class CudaTimer:
    """Times a call by CUDA graphs on a separate stream."""

    def __init__(self, torch):
        self.torch = torch
        self.stream = torch.cuda.Stream()

    def context(self):
        """Within it, work goes to the timed stream: autograd runs a backward pass on the stream of
        the forward pass."""
        self.torch.cuda.synchronize()
        return self.torch.cuda.stream(self.stream)

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

    def samples(self, call, protocol):
        """Returns seconds per call, one sample per replay; and the number of calls per replay."""
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
        return [self._replay_seconds(graph) / calls for _ in range(protocol["samples"])], calls

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


class CpuTimer:
    """Wall time, or processor time of a thread, as in bench/time/timing.cpp."""

    context = contextlib.nullcontext

    def samples(self, call, limits):
        threads = limits.get("processor_threads", 0)
        clock = (lambda: time.process_time() / threads) if threads else time.perf_counter

        def measure(calls):
            start = clock()
            for _ in range(calls):
                call()
            return clock() - start

        shortest, warm = math.inf, 0.0
        while warm < limits["warm_up_seconds"] or shortest == math.inf:
            seconds = measure(1)
            shortest, warm = min(shortest, seconds), warm + seconds
        calls = max(1, math.ceil(limits["sample_seconds"] / max(shortest, 1e-9)))
        seconds = []
        while len(seconds) < limits["max_samples"] and (
                len(seconds) < limits["min_samples"] or sum(seconds) * calls < limits["seconds"]):
            seconds.append(measure(calls) / calls)
        return seconds, calls

    def host_seconds(self, _call):
        return 0.0


def round_robin(calls):
    """Alternates between the calls: caches that come from memory have several copies."""
    turns = itertools.cycle(calls)
    return lambda: next(turns)()


def entries_of(tensor, starts):
    """Yields [heads, seqlen, head_dim] of each batch entry; for a packed batch from the starts of entries."""
    if starts is None:
        return tensor
    return [tensor[begin:end].transpose(0, 1) for begin, end in itertools.pairwise(starts)]


class Server:
    def __init__(self, torch, options):
        device = options.device
        if options.threads > 0:
            torch.set_num_threads(options.threads)
        if device != "cpu":
            if not torch.cuda.is_available():
                sys.exit("peers: PyTorch sees no GPU")
            torch.cuda.set_device(device)
        self.torch, self.device = torch, device
        self.backends, self.missing = backends(torch, device, options.backends)
        self.timer = CpuTimer() if device == "cpu" else CudaTimer(torch)
        self.calls = {}

    def versions(self, _request):
        torch = self.torch
        answer = {"python": platform.python_version(), "torch": torch.__version__,
                  "threads": torch.get_num_threads(),
                  "backends": [backend.name for backend in self.backends],
                  "missing": self.missing}
        if self.device != "cpu":
            answer |= {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
                       "device": torch.cuda.get_device_name(self.device)}
        return answer

    def tensor(self, request, name, heads, seqlen):
        """Returns a piece repeated to the tensor's size."""
        batch, head_dim = request["batch"], request["head_dim"]
        packed = "starts_q" in request
        shape = (batch * seqlen, heads, head_dim) if packed else (batch, heads, seqlen, head_dim)
        return self.repeated(request["folder"], name, request["dtype"], shape)

    def repeated(self, folder, name, dtype, shape):
        dtypes = {"f32": self.torch.float32, "f16": self.torch.float16, "bf16": self.torch.bfloat16,
                  "boolean": self.torch.bool}
        data = bytearray((pathlib.Path(folder) / name).read_bytes())
        piece = self.torch.frombuffer(data, dtype=dtypes[dtype]).to(self.device)
        out = self.torch.empty(math.prod(shape), dtype=piece.dtype, device=self.device)
        whole = out.numel() // piece.numel() * piece.numel()
        out[:whole].view(-1, piece.numel()).copy_(piece)
        out[whole:].copy_(piece[:out.numel() - whole])
        return out.view(shape)

    def case(self, request):
        if request["dtype"] not in ("f32", "f16", "bf16"):
            raise ValueError(f"peers take f32, f16 and bf16, not {request['dtype']}")
        self.calls.clear()
        if self.device != "cpu":
            self.torch.cuda.empty_cache()
        q = self.tensor(request, "q", request["heads_q"], request["seqlen_q"])
        k, v = (self.tensor(request, name, request["heads_kv"], request["seqlen_kv"])
                for name in ("k", "v"))
        copies = [(k, v)] + [(k.clone(), v.clone()) for _ in range(1, request.get("copies", 1))]
        d_o = None
        if request.get("pass") == "backward":
            d_o = self.tensor(request, "d_o", request["heads_q"], request["seqlen_q"])
        features = {name: request[name] for name in FEATURES if name in request}
        features |= {name: self.repeated(request["folder"], name, **features[name])
                     for name in TENSORS if name in features}
        return {"backends": [self.computed(request, backend, q, copies, d_o, features)
                             for backend in self.backends if backend.computes(request)]}

    def computed(self, request, backend, q, copies, d_o, features):
        answer = {"name": backend.name, "version": backend.version}
        try:
            with backend.context(), self.timer.context():
                if d_o is None:
                    with self.torch.no_grad():
                        call = round_robin([backend.make(q, k, v, request["causal"], **features)
                                        for k, v in copies])
                        parts = [(call(), request["blocks"])]
                else:
                    call = backend.make_backward(q, *copies[0], d_o, request["causal"], **features)
                    blocks = request["blocks_q"], request["blocks_kv"], request["blocks_kv"]
                    starts = [request.get(f"starts_{side}") for side in ("q", "kv", "kv")]
                    parts = [(entries_of(out, one), rows)
                             for out, rows, one in zip(call(), blocks, starts)]
                answer["finite"] = all(bool(self.torch.isfinite(one).all().item())
                                       for out, _ in parts for one in out)
                answer["rows"] = f"rows.{backend.name}"
                self.write_rows(parts, request, answer["rows"])
            self.calls[backend.name] = backend, call
        except Exception as error:  # a refusal, in any form that a package raises
            answer["error"] = first_line(error)
        return answer

    def write_rows(self, parts, request, name):
        """Writes the requested blocks of the tensors."""
        with open(pathlib.Path(request["folder"]) / name, "wb") as file:
            for out, blocks in parts:
                for batch, head, first, count in blocks:
                    rows = out[batch][head, first:first + count].contiguous().cpu()
                    file.write(ctypes.string_at(rows.data_ptr(),
                                                rows.numel() * rows.element_size()))

    def time(self, request):
        backend, call = self.calls[request["backend"]]
        with self.torch.no_grad(), backend.context():
            seconds, calls = self.timer.samples(call, request["protocol"])
        return {"seconds": seconds, "calls_per_sample": calls}

    def host(self, request):
        backend, call = self.calls[request["backend"]]
        with self.torch.no_grad(), backend.context():
            return {"seconds": self.timer.host_seconds(call)}

    def answer(self, line):
        try:
            request = json.loads(line)
            handlers = {"versions": self.versions, "case": self.case, "time": self.time,
                        "host": self.host}
            return handlers[request["do"]](request)
        except Exception as error:
            return {"error": first_line(error)}


def serve(torch, options):
    # Libraries print to stdout; answers use a private copy of it.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    server = None  # the device is not used before the first request
    for line in sys.stdin:
        server = server or Server(torch, options)
        answers.write(json.dumps(server.answer(line)) + "\n")
        answers.flush()
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true", required=True)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--backends", default="auto")
    options = parser.parse_args()
    try:
        import torch
    except ImportError as error:
        print(f"peers: python3 has no PyTorch ({error})", file=sys.stderr)
        return 3
    return serve(torch, options)


if __name__ == "__main__":
    sys.exit(main())
