"""The parts that come from the evidence that `flashcore bench` wrote on a GPU."""
import statistics

import kernel_folders

from reporting.evidence import NOT_MEASURED, STALE, Evidence, where
from reporting.text import ceilings_text, cell, code, cut_short, length, rate, ratio, table, us

MAIN = "bench"  # docs/evidence/bench.json
ON_CPU = "bench-cpu"
BACKWARD_ON_CPU = "backward-cpu"
CPU_DECODE = "bench-cpu-decode"  # what its files' names begin with, one for each machine
FP8 = "bench-fp8"
FP8_KERNELS = "bench-fp8-kernels"  # all that compute e4m3, together
FP8_PEERS = "bench-fp8-peers"  # together with cuDNN
FP8_WIDE, FP8_WIDE_CONVERTED = "bench-fp8-wide", "bench-fp8-wide-converted"  # at head dimension 256
SERVING = "bench-serving"  # few queries against caches, by suite
SERVING_SUITES = {"decode": "One query, caches in one piece",
                  "rotated": "Caches that come from memory at each call",
                  "paged": "Pages, and fp8", "ragged": "64 sequences of 100 to 8k keys",
                  "speculative": "Several queries, causal and as a tree"}
FEW_KEYS = "few-keys"  # cross attention over few keys
MLA = "decode-mla"  # rows of 576 elements, V their first 512
OPTIONS = "options"  # bias, masks, ALiBi and dropout, together with peers that have them
HEAD_DIMS = "head-dims"  # head dimensions between the powers of two
PREFILL = "bench-prefill"  # chunks of a prompt, in one piece and in pages
PREFILL_SM80 = "bench-prefill-sm80"  # the same by the kernels for Ampere
# The backward pass, deterministic and with atomic sums.
BACKWARD = {"backward-gpu": "### Deterministic",
            "backward-gpu-any-order": "### With atomic sums",
            "backward-options": "### Options, compared with `backward_sm80`",
            "backward-peers": "### Options that peers have too",
            "backward-few-tiles": "### Few tiles",
            "backward-packed": "### Packed batches, compared with dense ones",
            "backward-flex": "### Compared with FlexAttention"}
# Tables of one kernel, for the pages that show them.
TABLES_OF_KERNELS = {"kernel": ("forward_sm80_throughput", "forward_sm90_throughput", "forward_sm90_latency"),
                     "features": ("forward_sm80_throughput", "forward_sm90_throughput")}
# What stands for the whole in the README: bf16, 16384 tokens.
HEADLINE_LENGTHS = (512, 2048, 8192, 16384)
HEADLINE_PEERS = ("cudnn", "flash", "fa3", "fa4")
PYTORCH = ("cudnn", "flash", "efficient", "math")  # backends of its scaled_dot_product_attention
KERNELS = {name: said for folder in kernel_folders.folders() for name, said in folder.kernels.items()}
# Kernels for problems that do not fill the GPU, which the sweep's do.
FOR_SMALL = tuple(name for name, said in KERNELS.items() if not said.get("fills_the_gpu", True))


def headline(evidence: dict) -> str:
    """The protocol of the tables: the first."""
    return next(iter(evidence["protocols"]), "sustained")


def time_of(row: dict, protocol: str) -> dict | None:
    return row["times"].get(protocol)


def implementations(cases: list[dict], protocol: str) -> list[tuple[str, str]]:
    """(source, name) of all that have a time, ours first, in the order they appear."""
    found: dict[tuple[str, str], None] = {}
    for one in cases:
        for row in one["rows"]:
            if time_of(row, protocol):
                found[(row["source"], row["implementation"])] = None
    return sorted(found, key=lambda item: item[0] != "flashcore")


def row_of(one: dict, name: str) -> dict | None:
    return next((row for row in one["rows"] if row["implementation"] == name), None)


def label(name: str, source: str, stale: bool = False) -> str:
    return code(name, stale) if source == "flashcore" else cell(peer_name(name)) + (STALE if stale else "")


def peer_name(name: str) -> str:
    names = {"flash": "PyTorch flash (FA2)", "cudnn": "PyTorch cuDNN",
             "cudnn_direct": "cuDNN from C++", "efficient": "PyTorch efficient",
             "math": "PyTorch math", "flex": "FlexAttention", "openblas": "OpenBLAS, unfused",
             "openblas_by_operator": "OpenBLAS, operator by operator",
             "onednn": "oneDNN, unfused",
             "fa2": "FlashAttention-2", "fa3": "FlashAttention-3", "fa4": "FlashAttention-4",
             "flashinfer": "FlashInfer", "xformers": "xFormers"}
    mode = "_deterministic"
    return names.get(name.removesuffix(mode), name.removesuffix(mode)) + (
        ", deterministic" if name.endswith(mode) else "")


class Bench:
    def __init__(self, evidence: dict, is_stale):
        self.evidence, self.is_stale = evidence, is_stale
        self.protocol = headline(evidence)

    def ceiling(self, name: str):
        """By the protocol of the tables; empty when it was not measured."""
        return self.evidence["ceilings"].get(self.protocol, {}).get(name) or {}

    def suite(self, name: str) -> list[dict]:
        return [one for one in self.evidence["cases"] if one["suite"] == name]

    def fastest(self, one: dict) -> dict | None:
        """Our row of the least time."""
        ours = [row for row in one["rows"]
                if row["source"] == "flashcore" and time_of(row, self.protocol)]
        return min(ours, key=lambda row: time_of(row, self.protocol)["p50_us"], default=None)

    def own_label(self, row: dict) -> str:
        return label(row["implementation"], "flashcore", self.is_stale_row(row))

    def is_stale_row(self, row: dict) -> bool:
        """What did not run has nothing to be stale."""
        return (row["source"] == "flashcore" and bool(row["gate"] or row["times"]) and
                self.is_stale(row["implementation"], row["fingerprint"]))

    def beside_piece(self, row: dict | None, whole: dict | None) -> str:
        """A time in pages, over that in one piece."""
        if not row or not whole:
            return "-"
        time, piece = (time_of(one, self.protocol)["p50_us"] for one in (row, whole))
        return f"{us(time)} ({time / piece:.3f}x, {self.own_label(row)})"

    def serving(self) -> str:
        tables = [f"**{title}**\n\n{self.against_peer(suite)}"
                  for suite, title in SERVING_SUITES.items() if self.suite(suite)]
        return "\n\n".join([self.where(), *tables])

    def of_suite(self, suite: str) -> str:
        return f"{self.where()}\n\n{self.against_peer(suite)}"

    def prefill(self) -> str:
        """Chunks in pages beside one piece: cases are named after the piece, then /pageN."""
        chunks: dict[str, dict[str, dict | None]] = {}
        for one in self.suite("prefill"):
            name, _, size = one["name"].partition("/page")
            chunks.setdefault(name, {})[size] = self.fastest(one)
        sizes = sorted({size for found in chunks.values() for size in found if size}, key=int,
                       reverse=True)
        rows = []
        for name, found in chunks.items():
            whole = found.get("")
            piece = ([self.own_label(whole), us(time_of(whole, self.protocol)["p50_us"])] if whole
                     else ["-", "-"])
            rows.append([cell(name), *piece,
                         *[self.beside_piece(found.get(size), whole) for size in sizes]])
        header = ["chunk", "kernel", "in one piece, us",
                  *[f"pages of {size}, us (over one piece)" for size in sizes]]
        return f"{where(self.evidence)}\n\n{table(header, rows)}"

    def cpu_decode(self) -> str:
        """The time of each case, and what share of the read rate of the same run it is."""
        read = self.evidence["ceilings"][self.protocol]["read_bytes_per_second"]
        rows = []
        for one in self.evidence["cases"]:
            time = self.value(one, "cpu_simd", "p50_us")
            rate = one["bytes"] / time * 1e6 if time else 0
            rows.append([cell(one["name"]), *([f"{time / 1e3:.2f}", f"{rate / 1e9:.1f}", f"{rate / read:.0%}"]
                                              if time else ["-", "-", "-"])])
        name = label("cpu_simd", "flashcore", self.stale("cpu_simd", self.evidence["cases"]))
        return (f"{where(self.evidence)} All threads together read {read / 1e9:.1f} GB/s.\n\n" +
                table([f"{name}, case", "ms", "GB/s", "of the read rate"], rows))

    def stale(self, name: str, cases: list[dict]) -> bool:
        return any(self.is_stale_row(row) for one in cases if (row := row_of(one, name)))

    def value(self, one: dict, name: str, what: str) -> float | None:
        row = row_of(one, name)
        time = time_of(row, self.protocol) if row else None
        return time.get(what) if time else None

    def worst_error(self, name: str, cases: list[dict]) -> str:
        errors = [row["gate"]["max_scaled_error"] for one in cases
                  if (row := row_of(one, name)) and row["gate"]
                  and row["gate"].get("max_scaled_error") is not None]
        return f"{max(errors):.1e}" if errors else "-"

    def where(self) -> str:
        text = where(self.evidence)
        if self.evidence.get("pass") == "backward":
            text += " The backward pass."
        peers = self.evidence["peers"] or {}
        versions = [f"{name} {peers[name]}" for name in ("torch", "cudnn", "cuda") if peers.get(name)]
        versions += [f"{peers[name]} from C++" for name in ("cudnn_direct", "openblas", "onednn")
                     if peers.get(name)]
        if versions:
            text += " Peers: " + cell(", ".join(versions)) + "."
        text += f" {len(self.evidence['cases'])} cases, {cell(self.protocol)}."
        return text + cut_short(self.evidence, "cases")

    def ceilings(self) -> str:
        return ceilings_text(self.evidence["ceilings"])

    def five(self) -> str:
        cases = self.suite("five")
        if not cases:
            return "Not in this run."
        rows = []
        for source, name in implementations(cases, self.protocol):
            rows.append([label(name, source, self.stale(name, cases)),
                         *(us(self.value(one, name, "p50_us")) for one in cases),
                         self.worst_error(name, cases)])
        return table(["us per call", *(cell(one["name"]) for one in cases), "scaled error"], rows)

    def sweep_rows(self, cases: list[dict], lengths: list[int], names) -> list[list[str]]:
        rows = []
        for head_dim in sorted({one["head_dim"] for one in cases}):
            for causal in (False, True):
                block = {one["seqlen_q"]: one for one in cases
                         if one["head_dim"] == head_dim and one["causal"] == causal}
                for source, name in names:
                    values = [self.value(block[s], name, "tflops") if s in block else None
                              for s in lengths]
                    if any(value is not None for value in values):
                        rows.append([f"{head_dim} {'causal' if causal else 'full'}",
                                     label(name, source, self.stale(name, list(block.values()))),
                                     *("-" if v is None else f"{v:.0f}" for v in values)])
        return rows

    def sweep(self, lengths: tuple[int, ...] = (), peers: tuple[str, ...] = ()) -> str:
        """Of all implementations, or of the fastest of our kernels and some peers."""
        cases = self.suite("sweep")
        if not cases:
            return "Not in this run."
        shown = [s for s in sorted({one["seqlen_q"] for one in cases}) if not lengths or s in lengths]
        fastest = {row["implementation"] for one in cases if one["seqlen_q"] in shown and (row := self.fastest(one))}
        names = [item for item in implementations(cases, self.protocol)
                 if (not peers or item[1] in (fastest if item[0] == "flashcore" else peers)) and
                 item[1] not in FOR_SMALL]
        rows = self.sweep_rows(cases, shown, names)
        return table(["head_dim, TFLOP/s", "", *map(length, shown)], rows, left=2)

    def headline(self) -> str:
        """The sweep, or what a shorter run has."""
        if self.suite("sweep"):
            return ("bf16, 16384 tokens, hidden size 2048. " + self.where() + "\n\n" +
                    self.sweep(HEADLINE_LENGTHS, peers=HEADLINE_PEERS))
        return "(B, H, S, D), fp16. " + self.where() + "\n\n" + self.five()

    def by_case(self, cases: list[dict], what: list[str], cell_of, protocol: str = "") -> str:
        """A row a case, a column an implementation; `what`: the headings of the case's name, and of its type."""
        names = implementations(cases, protocol or self.protocol)
        header = [label(name, source, self.stale(name, cases)) for source, name in names]
        rows = [[*[cell(one["name"]), cell(one["dtype"])][:len(what)],
                 *(cell_of(one, (row_of(one, name) or {"times": {}})["times"]) for _, name in names)] for one in cases]
        return table([*what, *header], rows, left=len(what))

    def against_peer(self, suite: str) -> str:
        """Ours in us, and how many times faster than the fastest peer that is."""
        def time_and_ratio(_, times: dict) -> str:
            time = times.get(self.protocol, {"p50_us": None})
            speedup = time.get("speedup_over_fastest_peer")
            return us(time["p50_us"]) + (f" ({ratio(speedup)})" if speedup else "")

        cases = self.suite(suite)
        return self.by_case(cases, ["case, us per call (over the fastest peer)", "type"],
                            time_and_ratio) if cases else "Not in this run."

    def kernel(self, name: str) -> str:
        """One kernel's own tables, for its deep dive."""
        suites = [suite for suite in (("small",) if name in FOR_SMALL else
                                      ("sweep", "five", "small", "decode"))
                  if any(row and row["times"] for one in self.suite(suite)
                         if (row := row_of(one, name)))]
        if not suites:
            return "Not in the evidence yet."
        return "\n\n".join([self.where(), self.by_length(name, suites[0]),
                            self.speeds(name, suites)])

    def by_length(self, name: str, suite: str) -> str:
        """A cell per length: the kernel's rate or time, and how many times the fastest peer's speed."""
        what, unit = ("tflops", "TFLOP/s") if suite == "sweep" else ("p50_us", "us per call")
        cases = [one for one in self.suite(suite) if self.value(one, name, "p50_us")]
        lengths = sorted({one["seqlen_q"] for one in cases})
        rows: dict[str, dict[int, str]] = {}
        for one in sorted(cases, key=lambda one: (one["head_dim"], one["causal"], one["heads_q"])):
            title = f"{one['head_dim']} {'causal' if one['causal'] else 'full'}"
            if suite != "sweep":
                title += f", {one['heads_q']} heads"
            time = time_of(row_of(one, name), self.protocol)
            text = f"{time[what]:.0f}" if suite == "sweep" else us(time[what])
            if time.get("speedup_over_fastest_peer"):
                text += f" ({ratio(time['speedup_over_fastest_peer'])})"
            rows.setdefault(title, {})[one["seqlen_q"]] = text
        stale = STALE if self.stale(name, cases) else ""
        return table([f"head_dim, {unit} (over the fastest peer){stale}", *map(length, lengths)],
                     [[title, *(row.get(s, "-") for s in lengths)] for title, row in rows.items()])

    def speeds(self, name: str, suites: list[str]) -> str:
        """How many times faster one kernel is than each peer, a column a suite."""
        peers = {peer_name(peer): [peer] for source, peer
                 in implementations(self.evidence["cases"], self.protocol) if source == "peer"}
        within = [peer for (peer,) in peers.values() if peer in PYTORCH]
        groups = ({"the fastest of PyTorch's backends": within} if len(within) > 1 else {}) | peers
        rows = [[cell(label), *(self.ratios(name, group, suite) for suite in suites)]
                for label, group in groups.items()]
        return table(["speedup: geometric mean (least, most; cases)", *suites],
                     [row for row in rows if set(row[1:]) != {"-"}])

    def ratios(self, name: str, peers: list[str], suite: str) -> str:
        ratios = []
        for one in self.suite(suite):
            ours = self.value(one, name, "p50_us")
            theirs = [time for peer in peers if (time := self.value(one, peer, "p50_us"))]
            if ours and theirs:
                ratios.append(min(theirs) / ours)
        if not ratios:
            return "-"
        return f"{statistics.geometric_mean(ratios):.2f} ({min(ratios):.2f}, {max(ratios):.2f}; {len(ratios)})"

    def head_dim_ratios(self, peer: str) -> dict[str, list[float]]:
        """Of the sweep, by head dimension: how many times faster our fastest kernel is than one peer."""
        ratios: dict[str, list[float]] = {}
        for one in self.suite("sweep"):
            theirs = self.value(one, peer, "p50_us")
            if theirs and (ours := self.fastest(one)):
                ratios.setdefault(str(one["head_dim"]), []).append(
                    theirs / time_of(ours, self.protocol)["p50_us"])
        return ratios

    def features(self, name: str) -> str:
        """What a feature costs: TFLOP/s of one kernel, a row a head_dim."""
        cases = [one for one in self.suite("features")
                 if (row := row_of(one, name)) and time_of(row, self.protocol)]
        if not cases:
            return "Not in the evidence yet."
        split = {one["name"]: one["name"].split("/", 1) for one in cases}
        names = list(dict.fromkeys(part[1] for part in split.values()))
        rows = []
        for head_dim in dict.fromkeys(part[0] for part in split.values()):
            values = {part[1]: self.value(one, name, "tflops") for one in cases
                      if (part := split[one["name"]])[0] == head_dim}
            rows.append([cell(head_dim.removeprefix("d")),
                         *(f"{values[key]:.0f}" if key in values else "-" for key in names)])
        stale = STALE if self.stale(name, cases) else ""
        return table([f"head_dim, TFLOP/s{stale}", *map(cell, names)], rows)

    def backward(self) -> str:
        """All tables of a backward run."""
        parts = [self.where(), self.ceilings()]
        suites = [suite for suite in ("sweep", "five", "backward") if self.suite(suite)]
        found = implementations(self.evidence["cases"], self.protocol)
        if any(source == "peer" for source, _ in found):
            parts += [f"`{cell(name)}`, how many times faster than each peer:\n\n" + self.speeds(name, suites)
                      for source, name in found if source == "flashcore"]
        if self.suite("sweep"):
            parts += ["bf16, 16384 tokens in all, hidden size 2048:", self.sweep()]
        parts += [self.against_peer(suite) for suite in ("five", "backward") if self.suite(suite)]
        return "\n\n".join(parts)

    def fp8(self) -> str:
        """TFLOP/s of the fastest of our kernels for each type, a row a shape."""
        cases = {one["name"]: one for one in self.suite("fp8")}
        shapes = dict.fromkeys(name.rsplit("/", 1)[0] for name in cases)
        kernels = [name for source, name in implementations(self.evidence["cases"], self.protocol)
                   if source == "flashcore"]
        rows, used = [], {}
        for shape in shapes:
            found = []
            for inputs in ("bf16", "f8e4m3", "f8e4m3, V^T"):
                one = cases.get(f"{shape}/{inputs}")
                rates = {name: rate for name in kernels
                         if one and (rate := self.value(one, name, "tflops"))}
                best = max(rates, key=rates.get, default=None)
                used |= {best: None} if best else {}
                found.append(rates.get(best))
            bf16, *others = found
            rows.append([cell(shape), *(f"{rate:.0f}" if rate else "-" for rate in found),
                         *(f"{rate / bf16:.2f}" if rate and bf16 else "-" for rate in others)])
        names = [label(name, "flashcore", self.stale(name, self.evidence["cases"])) for name in used]
        return (self.where() + "\n\n" + table(["16,384 tokens, hidden size 2048; TFLOP/s", "bf16", "e4m3",
                                              "e4m3, V transposed", "e4m3 over bf16",
                                              "V transposed over bf16"], rows) +
                f"\n\nOf {', '.join(names)}, the fastest for each shape.")

    def rates(self, first: str, cases: list, name_of) -> str:
        """TFLOP/s, a row for cases of one name, a column an implementation, which has one of them at most."""
        used = implementations(cases, self.protocol)
        named: dict[str, list] = {}
        for one in cases:
            named.setdefault(name_of(one), []).append(one)

        def speed(alike: list, name: str) -> str:
            found = (self.value(one, name, "tflops") for one in alike)
            return next((rate(value) for value in found if value), "-")

        rows = [[cell(title), *(speed(alike, name) for _, name in used)] for title, alike in named.items()]
        header = [first, *(label(name, source, self.stale(name, cases)) for source, name in used)]
        return self.where() + "\n\n" + table(header, rows)

    def fp8_kernels(self) -> str:
        cases = [one for one in self.suite("fp8") if one["name"].endswith("/f8e4m3")]
        return self.rates("16,384 tokens, hidden size 2048; TFLOP/s", cases,
                          lambda one: one["name"].rsplit("/", 1)[0])

    def fp8_peers(self) -> str:
        return self.rates("16,384 tokens, hidden size 2048, no scales, O of e4m3; TFLOP/s",
                          self.evidence["cases"], lambda one: one["name"].removesuffix("/O f8e4m3"))

    def fp8_wide(self) -> str:
        """A row a problem, whatever type each kernel takes it in: the last word of a case's name."""
        return self.rates("16,384 tokens, 8 heads, no scales, O of bf16; TFLOP/s",
                          [one for one in self.evidence["cases"] if one["rows"]],
                          lambda one: one["name"].rpartition("/")[0])

    def on_cpu(self) -> str:
        """A CPU's cases: ms of a call, and the rate."""
        def time_and_rate(_, times: dict) -> str:
            time = times.get(self.protocol)
            return f"{time['p50_us'] * 1e-3:.2f} ({time['tflops'] * 1e3:.0f})" if time else "-"

        # PyTorch's flash kernel of the CPU is no FlashAttention-2.
        return self.by_case(self.evidence["cases"], ["ms per call (GFLOP/s)"], time_and_rate).replace(" (FA2)", "")

    def idle(self) -> str:
        """Both protocols side by side, where both were measured."""
        others = [name for name in self.evidence["protocols"] if name != self.protocol]
        cases = [one for one in self.evidence["cases"]
                 if any(others and row["times"].get(others[0]) for row in one["rows"])]
        if not cases:
            return "Not in this run."
        both = self.protocol, others[0]

        def rates(one: dict, times: dict) -> str:
            return " / ".join(f"{one['flop'] / times[protocol]['p50_us'] * 1e-6:.0f}"
                              for protocol in both) if times.keys() >= set(both) else "-"

        return self.by_case(cases, [f"TFLOP/s, {' / '.join(both)}", "type"], rates, others[0])


def main_of(all_evidence: Evidence) -> Bench | None:
    evidence = all_evidence.files.get(MAIN)
    return Bench(evidence, all_evidence.is_stale) if evidence else None


def backward_ratios(all_evidence: Evidence) -> str:
    """Beside FlashAttention-4, in both modes."""
    files = [all_evidence.files.get(name) for name in ("backward-gpu-any-order", "backward-gpu")]
    if not all(files):
        return NOT_MEASURED
    benches = [Bench(one, all_evidence.is_stale) for one in files]
    modes = [bench.head_dim_ratios(peer)
             for bench, peer in zip(benches, ("fa4", "fa4_deterministic"), strict=True)]
    stale = [STALE if any(bench.stale(name, bench.suite("sweep")) for name in KERNELS) else ""
             for bench in benches]

    def text(ratios: list[float]) -> str:
        if not ratios:
            return "-"
        mean = statistics.geometric_mean(ratios)
        below = sum(ratio < 0.95 for ratio in ratios)
        return f"{mean:.2f} ({min(ratios):.2f} to {max(ratios):.2f}); {below} of {len(ratios)}"

    rows = [["all", *(text(sum(mode.values(), [])) for mode in modes)]]
    rows += [[dim, *(text(mode.get(dim, [])) for mode in modes)] for dim in modes[0]]
    modes = [f"in any order{stale[0]}", f"the same bits{stale[1]}"]
    said = "\n\n".join(f"{name[0].upper()}{name[1:]}: {bench.where()}" for name, bench in zip(modes, benches, strict=True))
    return said + "\n\n" + table(["head dimension: mean (least to most); below 0.95", *modes], rows)


def device(bench: Bench) -> str:
    return cell(bench.evidence["device"]["name"])


def untrained(bench: Bench) -> str:
    """The options whose gradients on Hopper a kernel of another GPU computes, beside a pass without one."""
    cases = {one["name"]: one for one in bench.suite("backward")}
    plain = bench.fastest(cases.get("4k", {"rows": []}))
    ours = {name.removeprefix("4k/").split()[0]: row for name, one in cases.items()
            if name.startswith("4k/") and (row := bench.fastest(one))}
    slow = {name: row for name, row in ours.items() if not row["implementation"].startswith("backward_sm90")}
    if not plain or not slow:
        return ""
    times = [time_of(row, bench.protocol)["p50_us"] / time_of(plain, bench.protocol)["p50_us"] for row in slow.values()]
    used = [cases["4k"], *(one for name, one in cases.items() if name.removeprefix("4k/").split()[0] in slow)]
    names = " or ".join(filter(None, [", ".join([*slow][:-1]), [*slow][-1]]))
    # The front page has no figures of code that has changed since.
    if any(bench.stale(row["implementation"], used) for row in [plain, *slow.values()]):
        said = "take longer than without them"
    else:
        said = f"take {min(times):.1f} to {max(times):.1f} times as long as without them on {device(bench)}"
    return (f"- **Training with {cell(names)}**: on Hopper these gradients\n"
            f"  run on the kernel for Ampere, and {said}\n  ([table](docs/results.md#the-backward-pass)).")


def decoded_behind(bench: Bench) -> str:
    """How far decode_sm90 is behind cuDNN with one query, where it is."""
    times = [(ours / peer, one) for one in bench.evidence["cases"] if one["seqlen_q"] == 1
             and (ours := bench.value(one, "decode_sm90", "p50_us"))
             and (peer := bench.value(one, "cudnn", "p50_us"))]
    worst, one = max(times, key=lambda item: item[0], default=(0, {}))
    if worst <= 1:
        return ""
    where_worst = (f"{one['batch']} sequences of {length(one['seqlen_kv'])} keys, {one['heads_q']} heads over "
                   f"{one['heads_kv']}")
    least = min(ratio for ratio, _ in times)
    if bench.stale("decode_sm90", bench.evidence["cases"]):
        return ("- **Decode of one query**, where cuDNN has the options that are needed\n"
                "  ([table](docs/decode.md#what-was-measured)).")
    return (f"- **Decode of one query**, where cuDNN has the options that are needed: on {device(bench)}\n"
            f"  it takes {least:.2f} to {worst:.2f} times cuDNN's time ({worst:.2f}: {where_worst};\n  [table](docs/decode.md#what-was-measured)).")


def parts(all_evidence: Evidence) -> dict:
    def of(name, make):
        return all_evidence.part(name, lambda file: make(Bench(file, all_evidence.is_stale)))

    found = {f"bench {part}": of(name, make) for part, name, make in (
        ("where", MAIN, Bench.where), ("ceilings", MAIN, Bench.ceilings), ("five", MAIN, Bench.five),
        ("sweep", MAIN, Bench.sweep), ("small", MAIN, lambda b: b.against_peer("small")),
        ("decode", MAIN, lambda b: b.against_peer("decode")), ("idle", MAIN, Bench.idle),
        ("headline", MAIN, Bench.headline), ("behind training", "backward-options", untrained),
        ("behind decode", SERVING, decoded_behind), ("serving", SERVING, Bench.serving),
        ("serving decode", SERVING, lambda b: b.of_suite("decode")), ("few keys", FEW_KEYS, lambda b: b.of_suite("file")), ("options", OPTIONS, lambda b: b.of_suite("features")),
        ("head dims", HEAD_DIMS, lambda b: b.of_suite("head_dims")),
        ("mla", MLA, lambda b: b.of_suite("mla")), ("prefill", PREFILL, Bench.prefill), ("prefill sm80", PREFILL_SM80, Bench.prefill),
        ("fp8", FP8, Bench.fp8),
        ("fp8 kernels", FP8_KERNELS, Bench.fp8_kernels), ("fp8 peers", FP8_PEERS, Bench.fp8_peers),
        ("fp8 wide", FP8_WIDE, Bench.fp8_wide), ("fp8 wide converted", FP8_WIDE_CONVERTED, Bench.fp8_wide),
        ("cpu", ON_CPU, Bench.on_cpu), ("cpu where", ON_CPU, Bench.where),
        ("cpu backward", BACKWARD_ON_CPU, lambda b: f"{b.where()}\n\n{b.on_cpu()}"))}
    for make, kernels in TABLES_OF_KERNELS.items():
        found |= {f"{make} {name}": of(MAIN, lambda b, name=name, make=make: getattr(Bench, make)(b, name)) for name in kernels}

    def backward() -> str:
        """Nothing, the heading included, where it was not measured."""
        there = {name: title for name, title in BACKWARD.items() if name in all_evidence.files}
        return "\n\n".join(["## The backward pass"] * bool(there) + [
            f"{title}\n{of(name, Bench.backward)()}" for name, title in there.items()])

    decodes = [name for name in sorted(all_evidence.files) if name.startswith(CPU_DECODE)]
    return found | {
        "backward": backward, "backward ratios": lambda: backward_ratios(all_evidence),
        "bench cpu decode": lambda: "\n\n".join(of(name, Bench.cpu_decode)() for name in decodes) or NOT_MEASURED}
