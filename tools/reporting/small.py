"""The parts that come from `flashcore bench` on the lists of tools/tuning/off_grid.py: problems of one batch entry."""
import statistics

from reporting.evidence import STALE, Evidence, where
from reporting.text import cell, cut_short, table, us

GRID, EAGER, EARLY = "small-grid-h200", "small-eager-h200", "small-eager-early-h200"  # docs/evidence


def cells(one: dict) -> list[dict]:
    """A case's kernels and peers, and their times."""
    found = []
    for row in one["rows"]:
        peer = row["source"] == "peer"
        cell_ = {"kernel": f"PyTorch {row['implementation']}" if peer else row["implementation"],
                 "fingerprint": row["fingerprint"]}
        if "sustained" in row["times"]:
            cell_["us"] = row["times"]["sustained"]["p50_us"]
        if "host_us" in row and not peer:
            cell_["eager_us"] = row["host_us"]
        found.append(cell_)
    return found


def of_bench(evidence: dict) -> list[dict]:
    """As rows of a file from before `flashcore bench` had these cases; the library's choice is marked."""
    return [{"heads": one["heads_q"], "seqlen": one["seqlen_q"], "head_dim": one["head_dim"], "causal": one["causal"],
             "dtype": one["dtype"], "kernels": cells(one),
             "chosen": next((row["implementation"] for row in one["rows"] if row.get("default")), "")}
            for one in evidence["cases"]]


class Grid:
    def __init__(self, evidence: dict, is_stale, early: dict | None = None):
        """`early`: the same cases, each call started early."""
        self.evidence, self.is_stale = evidence, is_stale
        self.rows = of_bench(evidence) if evidence["kind"] == "bench" else evidence["rows"]
        for row, other in zip(self.rows, of_bench(early) if early else [], strict=False):
            row["kernels"] += [one | {"kernel": one["kernel"] + " early"} for one in other["kernels"]]

    def kernels(self) -> list[str]:
        """Those with a time, in the order they appear."""
        names = {one["kernel"]: None for row in self.rows for one in row["kernels"] if "us" in one}
        return list(names)

    def header(self, kernel: str) -> str:
        """A recording from before the sources were noted cannot be known to be of these."""
        name, _, how = kernel.partition(" ")
        cells = [one for row in self.rows for one in row["kernels"]
                 if one["kernel"] == kernel and "us" in one]
        stale = any(self.is_stale(name, one.get("fingerprint", "")) for one in cells)
        return f"`{cell(name)}`" + (f", {cell(how)}" if how else "") + (STALE if stale else "")

    def where(self) -> str:
        return cell(f"{where(self.evidence)} {self.timing()}.") + cut_short(self.evidence, "cases")

    def timing(self) -> str:
        protocols = self.evidence.get("protocols", {})
        return self.evidence["timing"] if "timing" in self.evidence else protocols["sustained"]

    def lines(self) -> list[list[str]]:
        """Device time of a call; where it was measured, that of a call of an eager loop after it."""
        rows = []
        for row in self.rows:
            times = {one["kernel"]: one for one in row["kernels"] if "us" in one}
            shape = f"{row['heads']}, {row['seqlen']}, {row['head_dim']}"
            shape += ", causal" if row["causal"] else ""
            shape += f", {cell(row['dtype'])}" if "dtype" in row else ""
            rows.append([shape, *(self.time(times.get(kernel)) for kernel in self.kernels())])
        return rows

    def table(self) -> str:
        return table(["heads, length, head_dim", *map(self.header, self.kernels())], self.lines())

    def ahead(self) -> str:
        """How many times as fast as the fastest peer the kernel is that the choice took."""
        found: dict[tuple, list[float]] = {}
        goal: list[float] = []
        for row in self.rows:
            times = {one["kernel"]: one["us"] for one in row["kernels"] if "us" in one}
            peers = [us for kernel, us in times.items() if kernel.startswith("PyTorch ")]
            if row.get("chosen") in times and peers:
                key = (row.get("dtype", ""), row["causal"])
                ratio = min(peers) / times[row["chosen"]]
                found.setdefault(key, []).append(ratio)
                if 8 <= row["heads"] <= 32 and 128 <= row["seqlen"] <= 1024:
                    goal.append(ratio)
        named = [(cell(dtype) + (", causal" if causal else ""), ratios)
                 for (dtype, causal), ratios in sorted(found.items())]
        if goal:
            named.append(("all of 8 to 32 heads and 128 to 1024 keys", goal))
        rows = [[name, str(len(ratios)),
                 f"{statistics.geometric_mean(ratios):.2f}",
                 f"{min(ratios):.2f}", f"{max(ratios):.2f}", str(sum(r < 1 for r in ratios))]
                for name, ratios in named]
        return table(["type", "shapes", "geometric mean", "least", "most", "behind"], rows)

    @staticmethod
    def time(one: dict | None) -> str:
        if one is None:
            return "-"
        return us(one["us"]) + (f" / {us(one['eager_us'])}" if "eager_us" in one else "")


def parts(all_evidence: Evidence) -> dict:
    def of(name, make):
        early = all_evidence.files.get(EARLY) if name == EAGER else None
        return all_evidence.part(name, lambda file: make(Grid(file, all_evidence.is_stale, early)))

    return {"small eager": of(EAGER, Grid.table), "small eager where": of(EAGER, Grid.where),
            "small grid where": of(GRID, Grid.where),
            "small grid ahead": of(GRID, Grid.ahead)}
