"""A load test of server.py: requests that arrive, cancel, time out and make no sense.

    python examples/server_load.py [--seconds 300] [--rate 30] [--clients 48] [--device cuda]

Starts the server on a free port of this machine and sends it requests at random times. In the end
no request may be lost, no page may be taken, and the server's counts must add up. Some answers are
computed again from scratch. Prints the percentiles of latency; the last line is "all is well", or
the exit code 1. With --device the server runs there, and rounds as serving.py says.
"""

import argparse
import asyncio
import collections
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import aiohttp
import numpy as np
import server
import serving

LONGEST = 60  # seconds of a request
BAD = [
    b"{",
    b"[1]",
    b"\xff",
    b"[" * 20000,
    b"{}",
    b'{"prompt": ""}',
    b'{"prompt": "\\u00e9"}',
    b'{"prompt": 7}',
    b'{"prompt": "a", "max_tokens": 0}',
    b'{"prompt": "a", "max_tokens": 1e999}',
    b'{"prompt": "a", "max_tokens": true}',
    b'{"prompt": "a", "max_tokens": 1000000}',
    b'{"prompt": "a", "timeout": NaN}',
    b'{"prompt": "a", "stream": 1}',
    b'{"prompt": "a", "temperature": 0.5}',
    b'{"prompt": "a", "model": "large"}',
    b'{"prompt": "a", "best_of": 2}',
]


class Client:
    """Sends requests, and keeps what became of each."""

    def __init__(self, session, random):
        self.session, self.random = session, random
        self.outcomes = collections.Counter()
        self.answers = []
        self.seconds = {"first token": [], "each further token": [], "whole answer": []}
        self.problems = []

    def some_request(self):
        letters = self.random.integers(len(server.LETTERS), size=int(self.random.integers(1, 120)))
        return {
            "prompt": server.text_of(letters),
            "max_tokens": int(self.random.integers(1, 60)),
            "stream": bool(self.random.uniform() < 0.7),
        }

    async def send(self):
        kinds = ["finish", "cancel", "give up", "time out", "bad"]
        kind = self.random.choice(kinds, p=[0.6, 0.15, 0.1, 0.1, 0.05])
        body = self.some_request()
        try:
            if kind == "bad":
                outcome = await self.refused(BAD[self.random.integers(len(BAD))])
            elif kind == "cancel":
                body["stream"] = True
                outcome = await self.finished(body, leave_after=int(self.random.integers(0, 20)))
            elif kind == "give up":
                outcome = await asyncio.wait_for(self.finished(body), self.random.uniform(0, 0.2))
            elif kind == "time out":
                body["timeout"] = self.random.uniform(0, 0.1)
                outcome = await self.finished(body)
            else:
                outcome = await self.finished(body)
        except asyncio.TimeoutError:
            outcome = kind
        except (aiohttp.ClientError, AssertionError, ValueError, KeyError, IndexError) as error:
            outcome = "lost"
            self.problems.append(f"{kind}: {type(error).__name__}: {error}")
        self.outcomes[outcome] += 1

    async def refused(self, body):
        async with self.session.post("/v1/completions", data=body) as response:
            error = (await response.json())["error"]
        assert response.status == 400, (body, response.status)
        assert re.fullmatch(r"[^\n]+\.", error["message"]), error
        return "refused"

    async def finished(self, body, leave_after=None):
        begin, times, text, reason, usage = time.perf_counter(), [], "", None, None
        async with self.session.post("/v1/completions", json=body) as response:
            if response.status == 429:
                return "too many"
            assert response.status == 200, await response.text()
            if not body["stream"]:
                events = [await response.text()]
            else:
                events = []
                async for line in response.content:
                    if line.startswith(b"data: "):
                        events.append(line[6:].decode().strip())
                        times.append(time.perf_counter() - begin)
                    if leave_after is not None and len(events) > leave_after:
                        response.close()
                        return "cancel"
                assert events.pop() == "[DONE]"
        for event in map(json.loads, events):
            assert reason is None, "an event after the last one"
            choice = event["choices"][0]
            text += choice["text"]
            reason, usage = choice["finish_reason"], event.get("usage")
        new = usage["completion_tokens"]
        assert (len(body["prompt"]), len(text)) == (usage["prompt_tokens"], new)
        if reason == "timeout":
            assert new < body["max_tokens"]
            assert time.perf_counter() - begin >= body.get("timeout", LONGEST)
            return "timeout"
        assert (reason, new) == ("length", body["max_tokens"])
        self.answers.append((body["prompt"], text))
        self.seconds["whole answer"].append(time.perf_counter() - begin)
        if times:
            self.seconds["first token"].append(times[0])
        if new > 1 and times:
            self.seconds["each further token"].append((times[-1] - times[0]) / (new - 1))
        return "length"

    async def health(self):
        async with self.session.get("/health") as response:
            return await response.json()


def started(options):
    command = [sys.executable, str(pathlib.Path(__file__).with_name("server.py")), "--port", "0"]
    command += ["--pages", str(options.pages), "--queue", str(options.queue)]
    command += ["--timeout", str(LONGEST)]
    command += ["--device", options.device] if options.device else []
    tiny = {"OPENBLAS_NUM_THREADS": "1"}  # for matrices such as the model's
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | tiny)
    return process, process.stdout.readline().strip()


async def load(address, options):
    """Returns the client, and the server's state before and after."""
    random = np.random.default_rng(options.seed)
    connections = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(address, connector=connections) as session:
        client = Client(session, random)
        for body in BAD:
            await client.refused(body)
        before = await client.health()
        tasks, end = set(), time.monotonic() + options.seconds
        while time.monotonic() < end:
            burst = 20 if random.uniform() < 0.01 else 1
            for _ in range(min(burst, options.clients - len(tasks))):
                task = asyncio.create_task(client.send())
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            await asyncio.sleep(random.exponential(1 / options.rate))
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=LONGEST + 10)
            client.problems += [f"{len(late)} requests have no answer"] if late else []
        for _ in range(100):  # those that the clients left end at the next step
            after = await client.health()
            if after["running"] == after["waiting"] == 0:
                break
            await asyncio.sleep(0.1)
    return client, before, after


def check(client, before, after, last, code, options):
    """Returns what is wrong."""
    found = list(client.problems)
    if after["running"] or after["waiting"]:
        found.append(f"requests are left: {after}")
    for name in ("free_pages", "sequences"):
        if after[name] != before[name]:
            found.append(f"{name}: {before[name]} before, {after[name]} after")
    counts, outcomes = collections.Counter(after["requests"]), client.outcomes
    ends = counts["length"] + counts["timeout"] + counts["cancelled"]
    if counts["error"] or counts["arrived"] != ends:
        found.append(f"the server's counts do not add up: {dict(counts)}")
    for name in ("length", "timeout", "cancelled"):
        if counts[name] == 0:
            found.append(f"no request ended with {name}, wanted some of each kind")
        if outcomes[name] > counts[name]:
            found.append(f"{outcomes[name]} clients have {name}, the server {counts[name]}")
    if code != 0 or last != f"{options.pages} of {options.pages} pages are free":
        found.append(f"the server ended with {code}: {last!r}")
    model = serving.Model(np.random.default_rng(0))
    arrays, prefix = serving.Arrays(options.device), server.tokens_of(server.SYSTEM)
    sample = client.answers[:: max(1, len(client.answers) // 200)]
    for prompt, text in sample:
        tokens = prefix + server.tokens_of(prompt + text)
        if not serving.is_correct(model, arrays, tokens, len(prefix) + len(prompt)):
            found.append(f"wrong tokens after {prompt!r}")
    print(f"{len(sample)} answers computed again from scratch")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--rate", type=float, default=30, help="arrivals per second")
    parser.add_argument("--pages", type=int, default=96, help="too few for bursts of requests")
    parser.add_argument("--clients", type=int, default=48, help="the most at once")
    parser.add_argument("--queue", type=int, default=32, help="more waiting requests get a 429")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device")
    options = parser.parse_args()
    process, address = started(options)
    try:
        client, before, after = asyncio.run(load(address, options))
    finally:
        process.send_signal(signal.SIGTERM)
        last = process.communicate(timeout=60)[0].strip()
    counts = sorted(client.outcomes.items())
    print(f"{client.outcomes.total()} requests: " + ", ".join(f"{n} {k}" for k, n in counts))
    print(f"the server: {after['requests']}")
    print(f"{'milliseconds':20}" + "".join(f"{p:>9}" for p in ("p50", "p90", "p99", "largest")))
    for name, seconds in client.seconds.items():
        row = np.percentile(seconds, [50, 90, 99, 100]) * 1e3 if seconds else []
        print(f"{name:20}" + "".join(f"{x:9.1f}" for x in row))
    problems = check(client, before, after, last, process.returncode, options)
    print("\n".join(problems[:20]) or "all is well")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
