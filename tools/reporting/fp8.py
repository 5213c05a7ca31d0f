"""How far the kernels for fp8 are from right, beside their speed, and what amax_o and amax_s cost: from
what `flashcore verify --errors fp8` and `flashcore bench --suite fp8_modes` and `--suite amax` wrote."""
import statistics

from reporting.bench import Bench, implementations, label
from reporting.evidence import Evidence, where
from reporting.text import cell, rate, table, us

ACCURACY, SPEED, AMAX = "fp8-accuracy", "bench-fp8-modes", "bench-fp8-amax"
INPUTS = "inputs"  # the row of what was lost before any kernel
PICTURED_DIM = 128
BY_TERMS = ("forward_fp8_sm90", "forward_fp8_sm90:precise")  # e4m3 probabilities in one term, and in two
WITH = "/amax"  # the end of a case's name that asks for both


class Modes:
    """Kernels by the accuracy's rows, in their order; `speed` may not be there."""

    def __init__(self, accuracy: dict, speed: Bench | None, is_stale):
        self.evidence, self.speed, self.is_stale = accuracy, speed, is_stale
        self.dims = list(dict.fromkeys(row["head_dim"] for row in accuracy["rows"]))
        self.data = list(dict.fromkeys(row["data"] for row in accuracy["rows"]))
        self.modes = list(dict.fromkeys((row["implementation"], row["dtype"]) for row in accuracy["rows"]))

    def error(self, mode: tuple, head_dim: int, data: str, what: str = "relative_error") -> float | None:
        return next((row[what] for row in self.evidence["rows"]
                     if (row["implementation"], row["dtype"], row["head_dim"], row["data"]) ==
                     (*mode, head_dim, data)), None)

    def tflops(self, mode: tuple, head_dim: int, causal: bool) -> float | None:
        name, dtype = mode
        one = next((one for one in self.speed.suite("fp8_modes")
                    if (one["head_dim"], one["causal"], one["dtype"]) == (head_dim, causal, dtype)),
                   None) if self.speed else None
        return self.speed.value(one, name, "tflops") if one else None

    def title(self, mode: tuple) -> str:
        name, dtype = mode
        if name == INPUTS:
            return f"{dtype.removeprefix('f8')} inputs, before any kernel"
        stale = any(self.is_stale(name, row["fingerprint"]) for row in self.evidence["rows"]
                    if row["implementation"] == name)
        stale |= bool(self.speed) and self.speed.stale(name, self.speed.suite("fp8_modes"))
        return label(name, "flashcore", stale)

    def where(self) -> str:
        text = cell(f"Accuracy: {where(self.evidence)} {self.evidence['shape']}.")
        if self.speed:
            text += f"\n\nSpeed, 16,384 tokens, hidden size 2048: {self.speed.where()}"
        return text

    def cells(self, mode: tuple, head_dim: int, what: str) -> list[str]:
        values = (self.error(mode, head_dim, data, what) for data in self.data)
        return ["-" if value is None else f"{value:.1e}" for value in values]

    def of_o(self, head_dim: int) -> str:
        rows = []
        for mode in self.modes:
            speeds = [self.tflops(mode, head_dim, causal) for causal in (False, True)]
            rows.append([self.title(mode), *(rate(speed) if speed else "-" for speed in speeds),
                         *self.cells(mode, head_dim, "relative_error")])
        return table([f"relative error of O, D {head_dim}", "TFLOP/s", "causal", *map(cell, self.data)], rows)

    def of_lse(self, head_dim: int) -> str:
        return table([f"largest error of LSE, D {head_dim}", *map(cell, self.data)],
                     [[self.title(mode), *self.cells(mode, head_dim, "lse_error")] for mode in self.modes])

    def text(self) -> str:
        return "\n\n".join([self.where(), *map(self.of_o, self.dims), *map(self.of_lse, self.dims[:1])])

    def by_terms(self) -> str:
        """What a second term of the probabilities gains, of O and of LSE."""
        rows = [[f"{self.title(mode)}, {name}", *self.cells(mode, PICTURED_DIM, what)]
                for name, what in (("O", "relative_error"), ("LSE", "lse_error"))
                for mode in self.modes if mode[0] in BY_TERMS]
        return table([f"relative error of O, largest of LSE, D {PICTURED_DIM}", *map(cell, self.data)], rows)

    def points(self) -> list | None:
        """[(data, what the e4m3 inputs lost, [(mode, TFLOP/s, relative error)])] of the picture."""
        timed = [(mode, speed) for mode in self.modes if (speed := self.tflops(mode, PICTURED_DIM, False))]
        panels = []
        for data in self.data:
            found = [(mode, speed, error) for mode, speed in timed
                     if (error := self.error(mode, PICTURED_DIM, data))]
            panels.append((data, self.error((INPUTS, "f8e4m3"), PICTURED_DIM, data), found))
        return panels if any(found for _, _, found in panels) else None


def modes_of(all_evidence: Evidence) -> Modes | None:
    accuracy, speed = (all_evidence.files.get(name) for name in (ACCURACY, SPEED))
    is_stale = all_evidence.is_stale
    return Modes(accuracy, Bench(speed, is_stale) if speed else None, is_stale) if accuracy else None


def amax(bench: Bench) -> str:
    """A row a problem and a kernel: without, with, and how much longer that takes."""
    cases = {one["name"]: one for one in bench.suite("amax")}
    kernels = [name for source, name in implementations(list(cases.values()), bench.protocol)
               if source == "flashcore"]
    rows, costs = [], []
    for name, plain in cases.items():
        if name.endswith(WITH):
            continue
        asked = cases.get(name + WITH)
        for kernel in kernels:
            before = bench.value(plain, kernel, "p50_us")
            after = bench.value(asked, kernel, "p50_us") if asked else None
            if not before:
                continue
            if after:
                costs.append(after / before - 1)
            rows.append([cell(name), label(kernel, "flashcore", bench.stale(kernel, list(cases.values()))),
                         us(before), us(after), f"{100 * costs[-1]:+.1f}%" if after else "-"])
    text = bench.where() + "\n\n" + table(
        ["2048 wide, S 2k", "kernel", "without, us", "with amax_o and amax_s, us", "cost"], rows, left=2)
    if costs:
        text += (f"\n\nCost: {100 * statistics.median(costs):+.1f}% in the median, {100 * min(costs):+.1f}% to "
                 f"{100 * max(costs):+.1f}%.")
    return text


def parts(all_evidence: Evidence) -> dict:
    def of_modes(make):
        return all_evidence.part(ACCURACY, lambda _: make(modes_of(all_evidence)))

    return {"fp8 terms": of_modes(Modes.by_terms), "fp8 modes": of_modes(Modes.text),
            "fp8 amax": all_evidence.part(AMAX, lambda file: amax(Bench(file, all_evidence.is_stale)))}
