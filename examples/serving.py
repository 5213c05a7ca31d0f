"""Continuous batching over a paged cache: requests arrive, grow by a token per step, and leave.

    python examples/serving.py [--requests 24] [--longest 40] [--pages 48] [--device cuda]

The model is tiny and has random weights: two layers with grouped heads and RoPE, in NumPy. All
requests begin with the same system prompt, which is computed once and forked. Every step passes one
batch to the model: chunks of new prompts, and one token of each active request. At the end every
token is compared with one that is computed from scratch, without a cache, by attention over the
whole text. Prints tokens per second; the last line says whether all tokens are equal.

With --device (PyTorch's name of a GPU) cache and attention are there, in float16. The two
computations then round differently: a token is equal if its logit is within 0.1% of the largest.
"""

import argparse
import time

import numpy as np

import flashcore

VOCABULARY, WIDTH, LAYERS, HEADS, HEADS_KV, HEAD_DIM = 96, 64, 2, 4, 2, 16
ROPE = {"rope_base": 10000.0}


class Model:
    """Weights, and one pass over packed rows; `attend` differs between its two users."""

    def __init__(self, random):
        def weights(*shape):
            return random.normal(size=shape) / np.sqrt(shape[0])

        self.embedding = random.normal(size=(VOCABULARY, WIDTH))
        self.head = weights(WIDTH, VOCABULARY)
        self.layers = [
            {
                "q": weights(WIDTH, HEADS * HEAD_DIM),
                "k": weights(WIDTH, HEADS_KV * HEAD_DIM),
                "v": weights(WIDTH, HEADS_KV * HEAD_DIM),
                "out": weights(HEADS * HEAD_DIM, WIDTH),
                "up": weights(WIDTH, 4 * WIDTH),
                "down": weights(4 * WIDTH, WIDTH),
            }
            for _ in range(LAYERS)
        ]

    def logits(self, tokens, attend):
        """Runs packed tokens [rows]; attend(layer, q, k, v) takes and returns [rows, heads, D]."""
        x = self.embedding[tokens]
        for n, layer in enumerate(self.layers):
            normed = x / np.sqrt((x**2).mean(axis=1, keepdims=True))
            q, k, v = (
                (normed @ layer[name]).reshape(len(tokens), -1, HEAD_DIM).astype(np.float32)
                for name in "qkv"
            )
            x = x + attend(n, q, k, v).reshape(len(tokens), -1) @ layer["out"]
            x = x + np.maximum(x @ layer["up"], 0) @ layer["down"]
        return x @ self.head


class Arrays:
    """Converts between NumPy's float32 and the arrays of attention: float16 on a device."""

    def __init__(self, device):
        self.device = device
        self.dtype = "float16" if device else "float32"

    def give(self, array):
        if self.device is None:
            return array
        import torch

        return torch.from_numpy(array).to(self.device, torch.float16)

    def take(self, array):
        return array if self.device is None else array.float().cpu().numpy()


class Request:
    def __init__(self, prompt, wanted):
        self.tokens = list(prompt)
        self.prompt = len(prompt)
        self.end = len(prompt) + wanted
        self.sequence = None  # in the cache
        self.cached = 0


class Server:
    def __init__(self, model, arrays, pages, page_size, prefix, chunk):
        self.model, self.arrays, self.prefix, self.chunk = model, arrays, prefix, chunk
        self.cache = flashcore.KVCache(
            pages,
            page_size,
            heads_kv=HEADS_KV,
            head_dim=HEAD_DIM,
            layers=LAYERS,
            dtype=arrays.dtype,
            device=arrays.device,
        )
        self.waiting, self.running, self.done = [], [], []
        self.tokens = self.batched = self.put_back = 0
        self.full = False  # until a request ends
        self.root = self.cache.add()
        self.forward([(self.root, prefix)])

    def forward(self, work):
        """Runs one pass over some sequences' tokens; returns the logits of each one's last one."""
        counts = [len(tokens) for _, tokens in work]
        step = self.cache.extend([one for one, _ in work], counts)

        def attend(layer, *qkv):
            q, k, v = map(self.arrays.give, qkv)
            turned = step.append(k, v, layer=layer, q=q, **ROPE)
            return self.arrays.take(step.decode(turned, layer=layer))

        logits = self.model.logits(np.concatenate([tokens for _, tokens in work]), attend)
        return logits[np.cumsum(counts) - 1]

    def admit(self):
        while self.waiting and not self.full:
            request = self.waiting.pop()
            request.sequence = self.cache.fork(self.root)
            request.cached = len(self.prefix)
            self.running.append(request)

    def step(self):
        """If pages run out, the newest request starts again later."""
        self.admit()
        while self.running:
            work = [
                (one.sequence, one.tokens[one.cached : one.cached + self.chunk])
                for one in self.running
            ]
            try:
                logits = self.forward(work)
                break
            except flashcore.OutOfPagesError:
                if len(self.running) == 1:
                    raise
                last = self.running.pop()
                self.cache.free(last.sequence)
                self.waiting.append(last)
                self.put_back += 1
                self.full = True
        else:
            return
        self.batched = max(self.batched, len(work))
        for one, (_, tokens), row in zip(list(self.running), work, logits, strict=True):
            one.cached += len(tokens)
            if one.cached < len(one.tokens):
                continue  # its prompt is not complete yet
            one.tokens.append(int(row.argmax()))
            self.tokens += 1
            if len(one.tokens) == one.end:
                self.cache.free(one.sequence)
                self.running.remove(one)
                self.done.append(one)
                self.full = False


def from_scratch(model, arrays, tokens):
    """Returns the logits after each token of the whole text: no cache, and RoPE in NumPy."""
    angle = np.arange(len(tokens))[:, None] * ROPE["rope_base"] ** (
        -2 * np.arange(HEAD_DIM // 2) / HEAD_DIM
    )
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]

    def turn(x):
        low, high = np.split(x, 2, axis=-1)
        return np.concatenate([low * cos - high * sin, low * sin + high * cos], axis=-1)

    def attend(_, q, k, v):
        heads_first = [
            arrays.give(np.ascontiguousarray(x.transpose(1, 0, 2)[None], np.float32))
            for x in (turn(q), turn(k), v)
        ]
        o = flashcore.attention(*heads_first, causal=True)
        return arrays.take(o)[0].transpose(1, 0, 2)

    return model.logits(tokens, attend)


def is_correct(model, arrays, tokens, prompt):
    """Returns whether every token after the prompt is the likeliest, computed from scratch."""
    tokens = np.array(tokens)
    logits = from_scratch(model, arrays, tokens[:-1])[prompt - 1 :]
    best = logits.max(axis=1)
    chosen = np.take_along_axis(logits, tokens[prompt:, None], axis=1)[:, 0]
    return bool((best - chosen <= (1e-3 * abs(best) if arrays.device else 0)).all())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--longest", type=int, default=40, help="new tokens of a request")
    parser.add_argument("--pages", type=int, default=48, help="too few for all requests at once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", help="cache and attention there: cuda; default: NumPy")
    options = parser.parse_args()
    random = np.random.default_rng(options.seed)
    model = Model(random)
    prefix = random.integers(VOCABULARY, size=21).tolist()
    arrays = Arrays(options.device)
    server = Server(model, arrays, options.pages, page_size=8, prefix=prefix, chunk=16)

    arrivals = []
    for _ in range(options.requests):
        own = random.integers(VOCABULARY, size=int(random.integers(1, 40))).tolist()
        arrivals.append(Request(prefix + own, int(random.integers(1, options.longest + 1))))
    start = time.perf_counter()
    steps = 0
    while arrivals or server.waiting or server.running:
        if arrivals and random.uniform() < 0.5:
            server.waiting.insert(0, arrivals.pop())
        server.step()
        steps += 1
    seconds = time.perf_counter() - start
    print(
        f"{len(server.done)} requests, {server.tokens} tokens in {steps} steps, up to "
        f"{server.batched} at once, {server.put_back} put back for want of pages"
    )
    print(f"{server.tokens / seconds:.0f} tokens per second")

    equal = sum(is_correct(model, arrays, one.tokens, one.prompt) for one in server.done)
    print(f"{equal} of {len(server.done)} requests have the tokens of a computation from scratch")
    return 0 if equal == len(server.done) == options.requests else 1


if __name__ == "__main__":
    raise SystemExit(main())
