"""A peer for the tests of the engine: attention in plain Python, for fp32, fp16 and tiny shapes.

The environment variable PEER_FAULT makes it misbehave: see tests/cli/bench_test.cpp.
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
    starts = request.get("starts_q" if name in ("q", "d_o") else "starts_kv")
    if starts:
        return lambda b, h, s: rows[(starts[b] + s) * heads + h]
    return lambda b, h, s: rows[(b * heads + h) * seqlen + s]


def lengths(request, side, entry):
    starts = request.get(f"starts_{side}")
    return starts[entry + 1] - starts[entry] if starts else request[f"seqlen_{side}"]


def visible(request, queries, keys, i):
    """Returns the keys that query i of an entry sees, aligned bottom right."""
    left, right = request.get("window", (-1, -1))
    if request["causal"]:
        right = 0
    at = keys - queries + i
    return [j for j in range(keys)
            if (left < 0 or j >= at - left) and (right < 0 or j <= at + right)]


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


def gradients(request):
    """Returns dQ, dK and dV, as functions of a batch entry, a head and a row."""
    dim, group = request["head_dim"], request["heads_q"] // request["heads_kv"]
    q, d_o = (tensor(request, name, request["heads_q"], request["seqlen_q"])
              for name in ("q", "d_o"))
    k, v = (tensor(request, name, request["heads_kv"], request["seqlen_kv"])
            for name in ("k", "v"))
    scale, softcap = 1 / math.sqrt(dim), request.get("softcap", 0)
    sums = [{}, {}, {}]

    def add(which, place, weight, row):
        to = sums[which].setdefault(place, [0.0] * dim)
        for i in range(dim):
            to[i] += weight * row[i]

    def dot(a, b):
        return sum(x * y for x, y in zip(a, b))

    for b in range(request["batch"]):
        for h in range(request["heads_q"]):
            for i in range(lengths(request, "q", b)):
                keys = visible(request, lengths(request, "q", b), lengths(request, "kv", b), i)
                scores = [scale * dot(q(b, h, i), k(b, h // group, j)) for j in keys]
                # The softcap's value for a score, and its slope there.
                tanhs = [math.tanh(score / softcap) if softcap else 0 for score in scores]
                if softcap:
                    scores = [softcap * tanh for tanh in tanhs]
                weights = [math.exp(score) for score in scores]
                p = [weight / sum(weights) for weight in weights]
                dp = [dot(d_o(b, h, i), v(b, h // group, j)) for j in keys]
                delta = dot(p, dp)
                for j, p_j, dp_j, tanh in zip(keys, p, dp, tanhs):
                    ds = scale * p_j * (dp_j - delta) * (1 - tanh * tanh)
                    add(0, (b, h, i), ds, k(b, h // group, j))
                    add(1, (b, h // group, j), ds, q(b, h, i))
                    add(2, (b, h // group, j), p_j, d_o(b, h, i))
    return sums


def backward_case(request):
    with open(os.path.join(request["folder"], "rows.plain"), "wb") as file:
        blocks = request["blocks_q"], request["blocks_kv"], request["blocks_kv"]
        for of_gradient, rows in zip(gradients(request), blocks):
            for batch, head, first, count in rows:
                for i in range(first, first + count):
                    row = of_gradient.get((batch, head, i), [0.0] * request["head_dim"])
                    if FAULT == "wrong":
                        row[0] += 1
                    file.write(struct.pack(f"<{len(row)}{CODES[request['dtype']]}", *row))
    return {"backends": [{"name": "plain", "version": "1", "finite": True, "rows": "rows.plain"}]}


def case(request):
    if FAULT == "refuses":
        return {"backends": [{"name": "plain", "version": "1", "error": "not this one"}]}
    if request.get("pass") == "backward":
        return backward_case(request)
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
        return {"seconds": [-1] if FAULT == "times" else [2e-3, 3e-3, 4e-3], "calls_per_sample": 7}
    return {"seconds": 1e-3}


if FAULT == "silent":
    sys.exit("peer: no")
for line in sys.stdin:
    request = json.loads(line)
    if FAULT == "ends" and request["do"] == "case":
        sys.exit("peer: ended")
    print("garbage" if FAULT == "garbage" else json.dumps(answer(request)), flush=True)
