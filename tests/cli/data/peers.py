"""A peer for the tests of the engine: attention in plain Python, for fp32, fp16 and tiny shapes.

The environment's PEER_FAULT makes it misbehave: see tests/cli/bench_test.cpp.
"""
import functools
import json
import math
import os
import struct
import sys

FAULT = os.environ.get("PEER_FAULT", "")
CODES = {"f32": "f", "f16": "e"}  # struct's


@functools.cache
def piece_of(path, code):
    with open(path, "rb") as file:
        data = file.read()
    return struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data)


def tensor(request, name, heads, seqlen):
    piece = piece_of(os.path.join(request["folder"], name), CODES[request["dtype"]])
    dim = request["head_dim"]
    rows = [[piece[(row * dim + i) % len(piece)] for i in range(dim)]
            for row in range(request["batch"] * heads * seqlen)]
    return lambda b, h, s: rows[(b * heads + h) * seqlen + s]


def attention(request, batch, head, query):
    q = tensor(request, "q", request["heads_q"], request["seqlen_q"])(batch, head, query)
    k = tensor(request, "k", request["heads_kv"], request["seqlen_kv"])
    v = tensor(request, "v", request["heads_kv"], request["seqlen_kv"])
    kv_head = head // (request["heads_q"] // request["heads_kv"])
    last = request["seqlen_kv"] - request["seqlen_q"] + query if request["causal"] else math.inf
    keys = [j for j in range(request["seqlen_kv"]) if j <= last]
    scale = 1 / math.sqrt(request["head_dim"])
    scores = [scale * sum(a * b for a, b in zip(q, k(batch, kv_head, j))) for j in keys]
    largest = max(scores)
    weights = [math.exp(score - largest) for score in scores]
    total = sum(weights)
    return [sum(w * v(batch, kv_head, j)[i] for w, j in zip(weights, keys)) / total
            for i in range(request["head_dim"])]


def case(request):
    if FAULT == "refuses":
        return {"backends": [{"name": "plain", "version": "1", "error": "not this one"}]}
    with open(os.path.join(request["folder"], "rows.plain"), "wb") as file:
        for batch, head, first, count in request["blocks"]:
            for query in range(first, first + count):
                row = attention(request, batch, head, query)
                if FAULT == "wrong":
                    row[0] += 1
                file.write(struct.pack(f"<{len(row)}{CODES[request['dtype']]}", *row))
        if FAULT == "short":
            file.truncate(4)
    rows = "../rows.plain" if FAULT == "escapes" else "rows.plain"
    return {"backends": [{"name": "plain", "version": "1", "finite": True, "rows": rows}]}


def answer(request):
    if request["do"] == "versions":
        return {"plain": "1"}
    if request["do"] == "case":
        return case(request)
    if request["do"] == "time":
        return {"seconds": [-1] if FAULT == "times" else [2e-3, 3e-3, 4e-3], "calls_a_sample": 7}
    return {"seconds": 1e-3}


if FAULT == "silent":
    sys.exit("peer: no")
for line in sys.stdin:
    request = json.loads(line)
    if FAULT == "ends" and request["do"] == "case":
        sys.exit("peer: ended")
    print("garbage" if FAULT == "garbage" else json.dumps(answer(request)), flush=True)
