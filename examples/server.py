"""A server of completions in the form of OpenAI's API, with continuous batching.

    pip install aiohttp
    python examples/server.py [--port 8000] [--pages 512] [--device cuda]
    curl localhost:8000/v1/completions -d '{"prompt": "Once", "max_tokens": 20, "stream": true}'

The model is the tiny one of serving.py, with random weights, and so are the cache in pages and the
batches. A token is a printable ASCII character or a newline. The likeliest token is always taken.
Besides OpenAI's fields, `timeout` is the seconds that a request may take: after them it ends with
what it has, and the finish_reason "timeout". A client that leaves ends its request. Ctrl-C stops
the server, which then counts its pages. server_load.py tests it.
"""

import argparse
import asyncio
import collections
import contextlib
import json
import socket
import time

import numpy as np
import serving
from aiohttp import web

NAME = "tiny"
LETTERS = [chr(code) for code in range(32, 127)] + ["\n"]
SYSTEM = "Continue the text.\n"  # shared by all requests


def tokens_of(text):
    return [LETTERS.index(letter) for letter in text]


def text_of(tokens):
    return "".join(LETTERS[token] for token in tokens)


class BadRequest(ValueError):
    """One sentence for the client."""


class Request(serving.Request):
    def __init__(self, prompt, wanted, deadline, number):
        super().__init__(prompt, wanted)
        self.deadline, self.number = deadline, number
        self.sent = self.prompt
        self.parts = asyncio.Queue()  # (text, None), and at the end (text, reason)
        self.is_gone = False  # its client

    def publish(self, reason=None):
        if reason or self.sent < len(self.tokens):
            self.parts.put_nowait((text_of(self.tokens[self.sent :]), reason))
            self.sent = len(self.tokens)


class Engine(serving.Server):
    """The steps run in a thread, one after the other. Everything else happens between them."""

    def __init__(self, device, pages, longest_queue):
        model = serving.Model(np.random.default_rng(0))
        arrays = serving.Arrays(device)
        super().__init__(model, arrays, pages, page_size=16, prefix=tokens_of(SYSTEM), chunk=32)
        # The system prompt's last page is shared, and copied by who writes to it.
        self.room = (pages - 1) * self.cache.page_size - len(self.prefix)
        self.longest_queue = longest_queue
        self.arrived = []
        self.counts = collections.Counter()
        self.wake = asyncio.Event()
        self.is_stopping = False
        self.broken = None

    def submit(self, prompt, wanted, timeout):
        self.counts["arrived"] += 1
        end = time.monotonic() + timeout
        request = Request(self.prefix + prompt, wanted, end, self.counts["arrived"])
        self.arrived.append(request)
        self.wake.set()
        return request

    def queued(self):
        return len(self.arrived) + len(self.waiting)

    def end(self, request, reason):
        """Ends a request early; its pages are free again."""
        if request in self.running:
            self.running.remove(request)
            self.cache.free(request.sequence)
            self.full = False
        else:
            self.waiting.remove(request)
        self.counts[reason] += 1
        request.publish(reason)

    async def run(self):
        try:
            while not self.is_stopping:
                self.waiting[:0] = reversed(self.arrived)
                self.arrived.clear()
                now = time.monotonic()
                for request in [*self.waiting, *self.running]:
                    if request.is_gone:
                        self.end(request, "cancelled")
                    elif now > request.deadline:
                        self.end(request, "timeout")
                if not self.waiting and not self.running:
                    self.wake.clear()
                    await self.wake.wait()
                    continue
                await asyncio.to_thread(self.step)
                for request in self.running:
                    request.publish()
                for request in self.done:
                    self.counts["length"] += 1
                    request.publish("length")
                self.done.clear()
        except Exception as error:
            self.broken = f"{type(error).__name__}: {error}"
            raise
        finally:
            self.waiting += self.arrived
            for request in [*self.waiting, *self.running]:
                self.end(request, "error")
            self.cache.free(self.root)


def number(body, name, default, low, high, kinds=(int, float)):
    value = body.get(name, default)
    if type(value) not in kinds or not low <= value <= high:
        kind = "a number" if float in kinds else "an integer"
        raise BadRequest(f"{name}: is {value!r:.40}, wanted {kind} from {low} to {high}.")
    return value


def accept(engine, text, longest):
    """Returns the request in a body, and whether its answer is a stream."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        raise BadRequest("body: is not JSON, wanted an object.") from None
    if not isinstance(body, dict):
        raise BadRequest("body: is no object, wanted one with a prompt.")
    known = ("model", "prompt", "max_tokens", "stream", "temperature", "timeout")
    for name in body:
        if name not in known:
            raise BadRequest(f"{name!r:.40}: is not known, wanted one of {', '.join(known)}.")
    if body.get("model", NAME) != NAME:
        raise BadRequest(f"model: is {body['model']!r:.40}, wanted {NAME!r}.")
    prompt, stream = body.get("prompt"), body.get("stream", False)
    if not isinstance(prompt, str) or not prompt or not set(prompt) <= set(LETTERS):
        raise BadRequest("prompt: is something else, wanted text of printable ASCII and newlines.")
    if type(stream) is not bool:
        raise BadRequest(f"stream: is {stream!r:.40}, wanted true or false.")
    number(body, "temperature", 0, 0, 0)
    timeout = number(body, "timeout", longest, 0, longest)
    wanted = number(body, "max_tokens", 16, 1, engine.room, kinds=(int,))
    if len(prompt) + wanted > engine.room:
        raise BadRequest(
            f"max_tokens: is {wanted} with a prompt of {len(prompt)}, wanted a sum of at most "
            f"{engine.room}."
        )
    if engine.broken or engine.is_stopping:
        raise web.HTTPServiceUnavailable(text=engine.broken or "The server is stopping.")
    if engine.queued() >= engine.longest_queue:
        raise web.HTTPTooManyRequests(text=f"{engine.queued()} requests wait already.")
    return engine.submit(tokens_of(prompt), wanted, timeout), stream


def answer(request, text, reason):
    choice = {"index": 0, "text": text, "finish_reason": reason, "logprobs": None}
    found = {
        "id": f"cmpl-{request.number}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": NAME,
        "choices": [choice],
    }
    if reason:
        prompt = request.prompt - len(tokens_of(SYSTEM))
        new = len(request.tokens) - request.prompt
        found["usage"] = {
            "prompt_tokens": prompt,
            "completion_tokens": new,
            "total_tokens": prompt + new,
        }
    return found


async def complete(http):
    engine = http.app[ENGINE]
    request, is_stream = accept(engine, await http.read(), http.app[LONGEST])
    try:
        if is_stream:
            return await send_stream(http, request)
        text, reason = "", None
        while reason is None:
            part, reason = await request.parts.get()
            text += part
        if reason == "error":
            raise web.HTTPInternalServerError(text=engine.broken or "The server is stopping.")
        return web.json_response(answer(request, text, reason))
    finally:
        request.is_gone = True
        engine.wake.set()


async def send_stream(http, request):
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    with contextlib.suppress(ConnectionError):  # the client has left
        await response.prepare(http)
        reason = None
        while reason is None:
            part, reason = await request.parts.get()
            event = json.dumps(answer(request, part, reason))
            await response.write(f"data: {event}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
    return response


async def models(http):
    model = {"id": NAME, "object": "model", "created": 0, "owned_by": "flashcore"}
    return web.json_response({"object": "list", "data": [model]})


async def health(http):
    engine = http.app[ENGINE]
    state = {
        "status": engine.broken or "ok",
        "running": len(engine.running),
        "waiting": engine.queued(),
        "pages": engine.cache.num_pages,
        "free_pages": engine.cache.free_pages,
        "sequences": len(engine.cache),  # with the system prompt
        "requests": dict(engine.counts),
    }
    return web.json_response(state, status=503 if engine.broken else 200)


@web.middleware
async def errors_as_json(http, handler):
    try:
        return await handler(http)
    except BadRequest as error:
        status, text = 400, str(error)
    except web.HTTPException as error:
        status, text = error.status, error.text
    error = {"message": text, "type": "server_error" if status >= 500 else "invalid_request_error"}
    return web.json_response({"error": error | {"param": None, "code": None}}, status=status)


async def engine_of(app):
    """Runs the engine while the server runs, and counts its pages at the end."""
    engine = app[ENGINE] = Engine(*app[OPTIONS])
    task = asyncio.create_task(engine.run())
    yield
    engine.is_stopping = True
    engine.wake.set()
    with contextlib.suppress(Exception):  # health has told of it
        await task
    print(f"{engine.cache.free_pages} of {engine.cache.num_pages} pages are free", flush=True)


ENGINE, OPTIONS = web.AppKey("engine", Engine), web.AppKey("options", tuple)
LONGEST = web.AppKey("longest", float)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0: one that is free")
    parser.add_argument("--pages", type=int, default=512)
    parser.add_argument("--queue", type=int, default=256, help="more waiting requests get a 429")
    parser.add_argument("--timeout", type=float, default=60, help="the most seconds of a request")
    parser.add_argument("--device", help="cache and attention there: cuda; default: NumPy")
    options = parser.parse_args()
    app = web.Application(middlewares=[errors_as_json], client_max_size=1 << 16)
    app[OPTIONS] = (options.device, options.pages, options.queue)
    app[LONGEST] = options.timeout
    app.cleanup_ctx.append(engine_of)
    app.router.add_post("/v1/completions", complete)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/health", health)
    listener = socket.create_server((options.host, options.port), backlog=1024)
    print(f"http://{options.host}:{listener.getsockname()[1]}", flush=True)
    web.run_app(app, sock=listener, handler_cancellation=True, shutdown_timeout=5, print=None)


if __name__ == "__main__":
    main()
