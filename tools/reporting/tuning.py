"""The parts that come from the evidence of `flashcore tune`: winners, and the regret of the default."""
import json
import statistics

from reporting.evidence import NOT_MEASURED, STALE, Evidence, where
from reporting.text import cell, table, us

# docs/evidence: what each file is of.
FILES = {"tuning-suites": "standard suites", "tuning-off-grid": "40 shapes off the grid",
         "tuning-off-grid-limited": "the same 40, told of {} SMs",
         "tuning-few-queries": "60 shapes of few queries, off the grid",
         "tuning-cpu": "suite `cpu`, on a CPU"}
GRID, LIMITED = "tuning-off-grid", "tuning-off-grid-limited"


class Tuned:
    def __init__(self, evidence: dict, is_stale):
        self.evidence = evidence
        self.cases = [one for one in evidence["cases"] if "tuned" in one]
        rows = [row for one in evidence["cases"] for row in one["rows"]]
        self.stale = any(is_stale(row["implementation"].partition(":")[0], row["fingerprint"])
                         for row in rows if row["times"])
        self.rows = len(rows)
        self.failed = sum(not row["times"] for row in rows)

    def regrets(self) -> list[float]:
        """Of the default to the winner: 0 where none is ahead by more than 2% and its noise."""
        return [one["tuned"]["gain"] for one in self.cases]

    def apart(self) -> list[float]:
        """The same to the fastest median, noise included."""
        return [one["tuned"]["default_us"] / one["tuned"]["fastest_us"] - 1 for one in self.cases]

    def line(self, name: str) -> list[str]:
        regrets, apart = self.regrets(), self.apart()
        title = name.format(self.evidence.get("grid_limit", 0)) + (STALE if self.stale else "")
        title += "" if self.evidence["complete"] else " (cut short)"
        if not self.cases:
            return [title, "0", str(self.rows), "-", "-", "-", "-"]
        return [title, str(len(self.cases)), f"{self.rows} ({self.failed})",
                str(sum(regret > 0 for regret in regrets)), mean_and_worst(regrets),
                mean_and_worst(apart), f"{self.evidence['seconds'].get('all', 0):.0f}"]


def told(whole: Tuned, limited: Tuned) -> list[str]:
    """The choice of a model that was told of fewer SMs, by the times of all of them."""
    choices = {one["name"]: one["tuned"]["default"] for one in limited.cases}
    regrets = []
    for one in whole.cases:
        times = {row["implementation"]: next(iter(row["times"].values()))["p50_us"]
                 for row in one["rows"] if row["times"]}
        if (chosen := choices.get(one["name"])) in times:
            regrets.append(max(times[chosen] / one["tuned"]["us"] - 1, 0))
    if not regrets:
        return ["-", "0", "-", "-", "-", "-", "-"]
    title = "what it chose there, by the times of all SMs of the run without a limit"
    return [title, str(len(regrets)), "-", "-", mean_and_worst(regrets), "-", "-"]


def percent(part: float, digits: int = 1) -> str:
    return f"{100 * part:.{digits}f}%"


def mean_and_worst(values: list[float]) -> str:
    return f"{percent(statistics.fmean(values))} ({percent(max(values))})"


def summary(files: dict[str, Tuned]) -> str:
    lines = []
    for name, title in FILES.items():
        if name in files:
            lines.append(files[name].line(title))
        if name == LIMITED and GRID in files and LIMITED in files:
            lines.append(told(files[GRID], files[LIMITED]))
    if not lines:
        return NOT_MEASURED
    return table(["problems", "number", "candidates (without a time)", "winners", "regret, mean (worst)",
                  "to the fastest median", "seconds"], lines)


def wheres(files: dict[str, Tuned]) -> str:
    texts = {}
    for name, title in FILES.items():
        if name in files:
            text = cell(where(files[name].evidence).rpartition(", ")[0] + ".")
            texts.setdefault(text, []).append(title.format(files[name].evidence.get("grid_limit", 0)))
    return "\n".join(f"{text} ({', '.join(titles)})" for text, titles in texts.items()) or \
        NOT_MEASURED


def choice(one: dict | None) -> list[str]:
    """Default, its time, and what was ahead of it."""
    if one is None:
        return ["-", "-", "-"]
    tuned = one["tuned"]
    winner = "" if tuned["winner"] == tuned["default"] else \
        f"`{cell(tuned['winner'])}` {percent(tuned['gain'])}"
    return [f"`{cell(tuned['default'])}`", us(tuned["default_us"]), winner or "stays"]


def by_case(files: dict[str, Tuned]) -> str:
    if GRID not in files:
        return NOT_MEASURED
    limited = {one["name"]: one for one in files[LIMITED].cases} if LIMITED in files else {}
    rows = [[cell(one["name"]), cell(one["dtype"]), *choice(one),
             *(choice(limited.get(one["name"]))[i] for i in (0, 2))] for one in files[GRID].cases]
    limit = files[LIMITED].evidence["grid_limit"] if LIMITED in files else "fewer"
    return table(["(batch, heads, queries/keys, D)", "type", "default", "us", "winner, ahead by",
                  f"told of {limit} SMs", "winner, ahead by"], rows)


def model(all_evidence: Evidence) -> str:
    """The regret of the cost model's choices, as the fit wrote it into each GPU's constants."""
    tables = []
    for path in sorted((all_evidence.root / "src/tuning/gpus").glob("*/constants.json")):
        constants = json.loads(path.read_text(encoding="utf-8"))
        rows = [[cell(one["choice"]), str(one["fitted"]["problems"]),
                 *(f"{percent(one[how]['mean'], 2)} ({percent(one[how]['worst'])})" for how in ("fitted", "held_out"))]
                for one in constants["regret"]]
        tables.append(table([cell(constants["gpu"]["name"]), "problems", "mean (worst)", "held out"], rows) +
                      f"\n\nHeld-out times are off by {percent(constants['fit']['error'])} on average.")
    return "\n\n".join(tables) or "Not fitted yet."


def parts(all_evidence: Evidence) -> dict:
    files = {name: Tuned(all_evidence.files[name], all_evidence.is_stale)
             for name in FILES if name in all_evidence.files}
    return {"tuning summary": lambda: summary(files), "tuning where": lambda: wheres(files),
            "tuning off grid": lambda: by_case(files), "tuning model": lambda: model(all_evidence)}
