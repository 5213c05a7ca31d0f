#!/usr/bin/env python3
"""One kernel on a simulated GPU: the gate table's small shape, and problems of several kinds.

usage: verify_kernel.py COMMAND KERNEL DEVICE [--backward [--any-order]] PROBLEMS...

PROBLEMS is one of
  200x112          200 random problems that the kernel computes, of sequences up to 112 long
  20x112x256       the same, of head dimensions up to 256
  narrow/20x112    20 problems, drawn anew with fewer features where the kernel refuses them
  e4m3/20x112      the same, all of them e4m3
  20x112/4         the same, of at most 4 heads of queries in all sequences together
  paged/20x112     the same over caches: pages, flat lists, padding on the left, fp8 keys and values
  latent/20x112    the same as narrow/, of one head of 576 columns, whose first 512 are V; latent/paged/20x112 over caches
  transposed/20x112  the same, of an fp8 V that is stored transposed
  scores/PREFIX    the problems with hard scores whose names begin so

Sequences are so long in some that every ring of buffers is passed several times. Each random problem has an order of
threads, blocks and copies of its own, and each third completes copies late, early or at random; what fails prints the
command that repeats it.
"""
import json
import math
import os
import subprocess
import sys

MOST_DRAWS = 400000  # most are refused: a kernel that computes none of so many is not tested
DTYPES = "f32,f16,bf16"
SEEDS_APART = 10**6  # of two kinds of random problems
# A part of each number of random problems, the first of the same seeds.
SHARE = float(os.environ.get("FLASHCORE_SIMULATED_SHARE", "1"))


def verify(kernel, *arguments):
    words = [*kernel, "--json", "--threads", "1", *arguments]
    run = subprocess.run(words, capture_output=True, text=True, check=False)
    try:
        found = json.loads(run.stdout)
    except json.JSONDecodeError:
        sys.exit(f"{' '.join(words)}: exit status {run.returncode}\n{run.stderr[-4000:]}")
    if run.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit status {run.returncode}\n{json.dumps(found, indent=1)[-8000:]}")
    return found


def random_problems(kernel, wanted, first_seed, *arguments):
    """Draws until `wanted` problems were computed; what was."""
    computed, drawn, draws = 0, 0, wanted
    while computed < wanted:
        if drawn > MOST_DRAWS:
            sys.exit(f"computed {computed} of {drawn} random problems, wanted {wanted}")
        found = verify(kernel, "--shapes", "none", "--random", str(draws), "--random-seed", str(first_seed + drawn),
                       *arguments)
        computed += sum(one["passed"] for one in found["random"]["kernels"])
        drawn += draws
        # As many more as should be enough, by those so far.
        draws = min((wanted - computed + 1) * drawn // max(computed, 1) + 1, 20 * drawn)
    return f"{computed} of {drawn} random problems"


def problems(kernel, kind, first_seed):
    if kind.startswith("scores/"):
        found = verify(kernel, "--shapes", kind, "--random", "0")
        computed = sum(one["passed"] for one in found["scores"]["kernels"])
        if computed == 0:
            sys.exit(f"computed no problem of {kind}")
        return f"{computed} of {kind}"
    sizes = kind
    for prefix in ("latent/", "narrow/", "paged/", "e4m3/", "transposed/"):
        sizes = sizes.removeprefix(prefix)
    sizes, _, heads = sizes.partition("/")
    wanted, *largest = sizes.split("x")
    options = [word for pair in zip(("--largest-seqlen", "--largest-head-dim"), largest) for word in pair]
    if heads:
        options += ["--most-heads", heads]
    if kind.startswith(("narrow/", "e4m3/")):
        options.append("--narrow")
    if kind.startswith("e4m3/"):
        options += ["--dtypes", "f8e4m3"]
    if "paged/" in kind:
        options.append("--paged")
    if "latent/" in kind:
        options += ["--latent", "--narrow"]
    if kind.startswith("transposed/"):
        options.append("--v-transposed")
    return random_problems(kernel, math.ceil(int(wanted) * SHARE), first_seed, *options)


def main():
    command, name, device, *kinds = sys.argv[1:]
    kernel = [command, "verify", "--device", device, "--kernel", name]
    while kinds[0] in ("--backward", "--any-order"):
        kernel.append(kinds.pop(0))
    dtypes = DTYPES if "--backward" in kernel else DTYPES + ",f8e4m3"  # which have no gradients
    table = verify(kernel, "--shapes", "small", "--dtypes", dtypes, "--seeds", "0", "--random", "0")["table"]
    rows = sum(row["passed"] for row in table)
    told = [problems(kernel, kind, number * SEEDS_APART) for number, kind in enumerate(kinds)]
    print(f"{name} on {device}: {', '.join([f'{rows} rows of the gate table', *told])}")


if __name__ == "__main__":
    main()
