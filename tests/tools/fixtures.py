"""Made-up evidence, for tests only: it is never published."""

SHAPES = [("(1,8,512,64)", 1, 512, 64, False), ("(1,8,512,64)/causal", 1, 512, 64, True),
          ("(2,8,2048,64)", 2, 2048, 64, False), ("(2,8,2048,64)/causal", 2, 2048, 64, True),
          ("(2,8,2048,128)", 2, 2048, 128, False)]
NAMES = [shape[0] for shape in SHAPES]


def timing(us, **more):
    return {"p50_us": us, "p90_us": us * 1.02, "samples": 20, "calls_per_sample": 10, **more}


def common(kind):
    return {"schema": "flashcore-evidence", "version": 1, "kind": kind, "complete": True,
            "created": "2026-01-02T03:04:05Z",
            "library": {"version": "0.0.0", "commit": "0123456789abcdef", "modified": False,
                        "compiler": "none"},
            "host": {"processor": "A processor", "threads": 4},
            "device": {"name": "A GPU", "driver": "1.2", "toolkit": "13.0"}, "notes": []}


def rung(name, us, print_of, passed=True):
    times = {shape: {"sustained": timing(us), "speedup_over_before": None,
                     "speedup_over_unfused": 1.0} for shape in NAMES} if passed else {}
    return {"name": name, "adds": "something", "prediction": "faster", "input": "f16",
            "min_compute_capability": 80, "fingerprint": print_of,
            "gate": {"passed": passed, "failure": "" if passed else "o[0] is nan",
                     "max_scaled_error": 5e-4,
                     "table": [{"passed": 3, "failed": 0 if passed else 1}],
                     "tails": {"passed": 9, "failed": 0}, "repeats": {"equal": 8, "different": 0}},
            "sanitizers": {"memcheck": {"passed": True}}, "times": times,
            "launches": {"a": [{"registers": 64, "shared_bytes": 2048}]} if passed else {}}


def ladder(rungs):
    return common("ladder") | {
        "protocols": {"sustained": "a fixture"},
        "shapes": [{"name": name, "batch": batch, "heads": 8, "seqlen": seqlen,
                    "head_dim": head_dim, "causal": causal, "flop": 1e9}
                   for name, batch, seqlen, head_dim, causal in SHAPES],
        "ceilings": {"idle": {"empty_kernel": timing(1.15), "copy_bytes_per_second": 4.3e12,
                              "matrix_product": {"f16": {"tflops": 758.4}, "bf16": None}}},
        "peers": {"shapes": {NAMES[0]: [{"backend": "flash", "max_scaled_error": 4e-4,
                                         "sustained": timing(10.2)}]}},
        "rungs": rungs}


def verify(kernel, print_of, failed=0):
    judged = {"max_scaled_error": 5e-4, "relative_error": 3e-4, "lse_error": 1e-6}
    return common("verify") | {
        "fingerprints": {kernel: print_of},
        "table": [{"shape": "small", "dtype": "f16", "causal": False, "kernel": kernel,
                   "passed": True, "refusal": "", "failure": "", **judged}],
        "scores": {"problems": 30, "failures": [],
                   "kernels": [{"kernel": kernel, "passed": 20 - failed, "failed": failed,
                                "refused": 10, **judged}]},
        "random": {"problems": 50, "first_seed": 7, "largest_seqlen": 160,
                   "largest_head_dim": 136, "failures": [],
                   "kernels": [{"kernel": kernel, "passed": 40 - failed, "failed": failed,
                                "refused": 10, **judged}]},
        "sanitizers": {kernel: {"memcheck": {"passed": True, "ran": True},
                                "racecheck": {"passed": failed == 0, "ran": failed == 0}}}}


def small_grid(kernel, print_of):
    cells = [{"kernel": kernel, "fingerprint": print_of, "us": 4.0, "p90_us": 4.1, "eager_us": 5.0},
             {"kernel": f"{kernel} early", "fingerprint": print_of, "us": 3.0, "p90_us": 3.1}]
    peers = [{"kernel": "PyTorch flash", "us": 6.0}, {"kernel": "PyTorch cudnn", "us": 5.0}]
    return common("small_grid") | {"timing": "a fixture's timing", "rows": [
        {"heads": 8, "seqlen": 512, "head_dim": 64, "causal": False, "kernels": cells},
        {"dtype": "f16", "heads": 8, "seqlen": 512, "head_dim": 128, "causal": False,
         "chosen": kernel, "kernels": cells + peers},
        {"dtype": "f16", "heads": 8, "seqlen": 256, "head_dim": 128, "causal": False,
         "chosen": f"{kernel} early", "kernels": cells + peers[:1]},
        {"heads": 8, "seqlen": 512, "head_dim": 64, "causal": True,
         "kernels": [cells[0], {"kernel": f"{kernel} early", "error": "no"}]}]}


def packed(kernel, print_of):
    def row(batch, lengths, dense, causal, us):
        return {"batch": batch, "head_dim": 64, "causal": causal,
                "lengths": [{"entries": entries, "seqlen": seqlen} for entries, seqlen in lengths],
                "dense": [{"entries": entries, "seqlen": seqlen} for entries, seqlen in dense],
                "points": [{"form": form, "kernel": kernel, "fingerprint": print_of, "p50_us": one,
                            "p90_us": one, "samples": 27}
                           for form, one in zip(("dense", "max_seqlen", "no max_seqlen"), us)]}

    equal = [(4, 100)], [(4, 100)]
    return common("packed") | {
        "protocol": "a fixture", "heads": 32, "dtype": "bf16",
        "rows": [row("4 x 100", *equal, False, (100.0, 100.0, 103.0)),
                 row("4 x 100", *equal, True, (100.0, 100.0, 104.0)),
                 # 100^2 + 3 * 10^2 pairs compared with 100^2: 1.03 of the work
                 row("1 x 100 among 3 x 10", [(3, 10), (1, 100)], [(1, 100)], False,
                     (100.0, 206.0, 103.0))]}


def python_tests(print_of, complete=True):
    return common("python_tests") | {
        "complete": complete, "versions": {"python": "3.12.0", "torch": "2.11.0"},
        "fingerprint": print_of, "counts": {"passed": 7, "failed": 1, "skipped": 2},
        "outcomes": {"test_torch.py::test_one": "passed",  # wherever pytest was started
                     "python/tests/test_torch.py::test_two[a/b.c]": "passed"}}


def python_call(print_of):
    def rows(ours, theirs):
        return [{"implementation": name, "p50_us": us, "p90_us": us, "samples": 9}
                for name, us in (("torch sdpa", theirs), ("flashcore.attention", ours))]

    return common("python_call") | {
        "versions": {"torch": "2.11.0"}, "fingerprint": print_of, "protocol": "a fixture",
        "parts": [{"part": "output", "us": 1.5}, {"part": "launch", "us": 4.25}],
        "cases": [{"case": name, "kernel": "forward_sm80_throughput", "rows": rows(us, us + 4)}
                  for name, us in (("(1,8,512,64)", 12.5), ("(1,8,512,64)/causal", 13.25))]}


def row(name, us, flop, source="flashcore", print_of="", **more):
    gate = {"passed": True, "failure": "", "max_scaled_error": 5e-4, "relative_error": 3e-4}
    return {"implementation": name, "source": source, "fingerprint": print_of, "gate": gate,
            "times": {"sustained": timing(us, tflops=flop / us * 1e-6, percent_of_bound=50.0),
                      "idle": timing(us * 0.9)}, "host_us": us + 3, **more}


def case(suite, name, batch, heads, seqlen, head_dim, causal, rows, dtype="bf16", keys=None):
    keys = keys or seqlen
    flop = 4.0 * batch * heads * seqlen * keys * head_dim / (2 if causal else 1)
    size = 2.0 * batch * heads * head_dim * (2 * seqlen + 2 * keys)
    return {"name": name, "suite": suite, "dtype": dtype, "batch": batch, "heads_q": heads,
            "heads_kv": heads, "seqlen_q": seqlen, "seqlen_kv": keys, "head_dim": head_dim,
            "causal": causal, "flop": flop, "bytes": size, "judged": "1024 of 4096 rows",
            "state": {}, "rows": [row(*one[:1], one[1], flop, *one[2:]) for one in rows]}


def bench(cases):
    for one in cases:
        peers = [r["times"]["sustained"]["p50_us"] for r in one["rows"] if r["source"] == "peer"]
        for r in one["rows"]:
            if r["source"] == "flashcore" and peers:
                time = r["times"]["sustained"]
                time["speedup_over_fastest_peer"] = min(peers) / time["p50_us"]
    return common("bench") | {
        "protocols": {"sustained": "a fixture", "idle": "a fixture after a pause"},
        "ceilings": {"sustained": {"empty_kernel": timing(0.51), "copy_bytes_per_second": 4.3e12,
                                   "matrix_product": {"f16": {"tflops": 650.0},
                                                      "bf16": {"tflops": 680.0}}}},
        "peers": {"torch": "0.0", "cudnn": 0}, "cases": cases}


def standard(print_of):
    """A case with everything that a standard report has, by a formula."""
    def both(us):
        return [("forward_sm80_throughput", us, "flashcore", print_of), ("flash", us * 1.2, "peer"),
                ("cudnn", us * 0.7, "peer")]

    cases = [case("five", name, batch, 8, seqlen, head_dim, causal,
                  both(8e-7 * batch * seqlen**2 * head_dim * 0.05 + 8), "f16")
             for name, batch, seqlen, head_dim, causal in SHAPES]
    for head_dim in (64, 128, 256):
        for causal in (False, True):
            for seqlen in (512, 1024, 2048, 4096, 8192, 16384):
                flop = 4.0 * 16384 * 2048 * seqlen / (2 if causal else 1)
                rate = (300 + head_dim / 4) * seqlen / (seqlen + (600 if causal else 200)) * 1e6
                name = f"d{head_dim}/s{seqlen}{'/causal' if causal else ''}"
                cases.append(case("sweep", name, 16384 // seqlen, 2048 // head_dim, seqlen,
                                  head_dim, causal, both(flop / rate)))
    for heads in (8, 16, 32):
        for seqlen in (128, 256, 512, 1024):
            cases.append(case("small", f"(1,{heads},{seqlen},64)", 1, heads, seqlen, 64, False,
                              both(3 + heads * seqlen**2 * 2e-6), "f16"))
    for batch, keys in ((1, 8192), (16, 8192), (64, 4096)):
        cases.append(case("decode", f"b{batch}/{keys // 1024}k/hkv8", batch, 32, 1, 128, False,
                          both(5 + batch * keys * 6e-4), keys=keys))
    return bench(cases)


def fp8_accuracy(kernels):
    """`kernels`: (name, type of the inputs, fingerprint). Two kinds of data, at two head dimensions."""
    return common("fp8_accuracy") | {"shape": "a fixture's heads", "seqlen": 2048, "rows": [
        {"data": data, "head_dim": dim, "dtype": dtype, "implementation": name, "fingerprint": print_of,
         "relative_error": 0.001 * number + at, "max_scaled_error": 0.0, "lse_error": 0.25}
        for dim in (128, 64) for data, at in (("normal", 1e-4), ("sink", 2e-4))
        for number, (name, dtype, print_of) in enumerate([("inputs", "f8e4m3", ""), *kernels])]}


def picture(shown):
    """A picture that states its contents, and shows nothing."""
    return f"<svg><dc:description>shows {shown}</dc:description></svg>"
