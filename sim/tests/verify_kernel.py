#!/usr/bin/env python3
"""One kernel on a simulated GPU: the gate table's small shape, random problems until enough of them were computed,
and random problems with sequences so long that every ring of buffers is passed several times.

usage: verify_kernel.py COMMAND KERNEL DEVICE PROBLEMS LONG_PROBLEMS

Each problem has an order of threads, blocks and copies of its own, and each third completes copies late, early or at
random; what fails prints the command that repeats it.
"""
import json
import subprocess
import sys

SHORT, LONG = 112, 400  # rows of the usual and of the long sequences
MOST_DRAWS = 400000     # most are refused: a kernel that computes none of so many is not tested
DTYPES = "f32,f16,bf16"


def verify(command, kernel, device, *arguments):
    words = [command, "verify", "--json", "--device", device, "--kernel", kernel, "--threads", "1", *arguments]
    run = subprocess.run(words, capture_output=True, text=True, check=False)
    try:
        found = json.loads(run.stdout)
    except json.JSONDecodeError:
        sys.exit(f"{' '.join(words)}: exit status {run.returncode}\n{run.stderr[-4000:]}")
    if run.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit status {run.returncode}\n{json.dumps(found, indent=1)[-8000:]}")
    return found


def random_problems(command, kernel, device, wanted, first_seed, *arguments):
    """Draws until `wanted` problems were computed; how many were."""
    computed, drawn, draws = 0, 0, wanted
    while computed < wanted:
        if drawn > MOST_DRAWS:
            sys.exit(f"{kernel}: computed {computed} of {drawn} random problems, wanted {wanted}")
        found = verify(command, kernel, device, "--shapes", "none", "--random", str(draws),
                       "--random-seed", str(first_seed + drawn), *arguments)
        computed += sum(one["passed"] for one in found["random"]["kernels"])
        drawn += draws
        # As many more as should be enough, by those so far.
        draws = min((wanted - computed + 1) * drawn // max(computed, 1) + 1, 20 * drawn)
    return computed, drawn


def main():
    command, kernel, device, problems, long_problems = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])
    table = verify(command, kernel, device, "--shapes", "small", "--dtypes", DTYPES, "--seeds", "0",
                   "--random", "0")["table"]
    rows = sum(row["passed"] for row in table)
    computed, drawn = random_problems(command, kernel, device, problems, 0, "--largest-seqlen", str(SHORT))
    long, long_drawn = random_problems(command, kernel, device, long_problems, 10**6, "--largest-seqlen", str(LONG))
    print(f"{kernel} on {device}: {rows} rows of the gate table, {computed} of {drawn} random problems, "
          f"{long} of {long_drawn} long ones")


if __name__ == "__main__":
    main()
