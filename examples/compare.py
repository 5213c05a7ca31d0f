#!/usr/bin/env python3
"""Compares causal attention from its definition, in NumPy, with `flashcore run --causal`.

usage: compare.py INPUTS.safetensors RESULT.safetensors
"""

import json
import sys

import numpy as np

TYPES = {"F16": np.float16, "F32": np.float32, "F64": np.float64}


def read(path):
    """Reads a .safetensors file: 8 bytes of header length, a JSON header, the tensors' data."""
    with open(path, "rb") as file:
        header_size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(header_size))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        array = np.frombuffer(data[begin:end], TYPES[entry["dtype"]])
        tensors[name] = array.reshape(entry["shape"]).astype(np.float64)
    return tensors


def attention(q, k, v, sinks):
    """softmax(q k^T / sqrt(d)) v over the keys up to each query; a sink adds to the denominator."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat(group, axis=1), v.repeat(group, axis=1)
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3])
    queries, keys = scores.shape[2:]
    hidden = np.arange(keys) > np.arange(queries)[:, None] + keys - queries
    weights = np.exp(np.where(hidden, -np.inf, scores))
    denominator = weights.sum(axis=3, keepdims=True) + np.exp(sinks)[None, :, None, None]
    return weights @ v / denominator


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    inputs, result = read(sys.argv[1]), read(sys.argv[2])
    sinks = inputs.get("sinks", np.full(inputs["q"].shape[1], -np.inf))
    expected = attention(inputs["q"], inputs["k"], inputs["v"], sinks)
    error = np.abs(result["o"] - expected).max()
    print(f"o {list(expected.shape)}: largest difference {error:.1e}")
    sys.exit(0 if error < 2e-3 else 1)


if __name__ == "__main__":
    main()
