#!/usr/bin/env python3
"""Runs the tests of kernels on the simulator (CTest label `kernels`) and says what processor time each takes.

usage: run_kernels.py --build DIRECTORY [--exhaustive] [--jobs N] [PATTERN]

Each problem of a test has an order of threads and blocks and a mode of completion of its own. With --exhaustive each has
all of ten orders in each of the three modes: the tests run 30 times, with the seeds 0 to 29. PATTERN chooses tests by
their names. The exit status is 1 when one fails.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ORDERS, COMPLETIONS = 10, 3
SEED = "FLASHCORE_SIM_SEED"


def tests(build, pattern):
    listed = subprocess.run(["ctest", "--test-dir", str(build), "--show-only=json-v1", "-L", "^kernels$"],
                            capture_output=True, text=True, check=True).stdout
    return [test for test in json.loads(listed)["tests"] if re.search(pattern, test["name"])]


def run(test, seed):
    """The exit status, what it printed, and its processor seconds."""
    environment = dict(os.environ, **({} if seed is None else {SEED: str(seed)}))
    with subprocess.Popen(test["command"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env=environment) as process:
        text = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, text, used.ru_utime + used.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True, help="a build folder with the simulator")
    parser.add_argument("--exhaustive", action="store_true", help="every order and mode of completion for each problem")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("pattern", nargs="?", default="")
    options = parser.parse_args()
    seeds = range(ORDERS * COMPLETIONS) if options.exhaustive else [None]
    chosen = [(test, seed) for seed in seeds for test in tests(options.build, options.pattern)]
    if not chosen:
        sys.exit(f"no test of kernels has {options.pattern} in its name")
    began, total, failed = time.monotonic(), 0.0, 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for (test, seed), (status, text, seconds) in zip(chosen, pool.map(lambda one: run(*one), chosen)):
            total += seconds
            failed += status != 0
            name = test["name"] + ("" if seed is None else f", {SEED}={seed}")
            print(f"{'passed' if status == 0 else 'FAILED'} {seconds:7.1f} s  {name}", flush=True)
            if status != 0:
                print(text[-8000:], flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed, {total:.0f} s of processor time, "
          f"{time.monotonic() - began:.0f} s in all")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
