#!/usr/bin/env python3
"""Replaces the worker process of `flashcore bench`: acts like the real one, until it begins the
step HANG_AT; then it hangs, with a child of its own, or crashes (HANG_HOW=fall). After the point is
abandoned, it finishes normally."""
import json
import os
import signal
import subprocess
import sys
import time

with open(sys.argv[sys.argv.index("--worker") + 1], encoding="utf-8") as file:
    lost = {(one["name"], one["implementation"]) for one in json.load(file)["lost"]}

real = subprocess.Popen([os.environ["FLASHCORE_COMMAND"], *sys.argv[1:]], stdout=subprocess.PIPE,
                        text=True)
for line in real.stdout:
    step = json.loads(line)
    at_end = step.get("begins") == os.environ["HANG_AT"]
    if at_end and (step["name"], step["implementation"]) not in lost:
        print(line, end="", flush=True)
        real.kill()
        if os.environ.get("HANG_HOW") == "fall":
            os.kill(os.getpid(), signal.SIGSEGV)
        child = subprocess.Popen(["sleep", "1000"])
        with open(os.environ["HANG_PIDS"], "a", encoding="utf-8") as file:
            file.write(f"{os.getpid()} {child.pid}\n")
        time.sleep(1000)
    print(line, end="", flush=True)
sys.exit(real.wait())
