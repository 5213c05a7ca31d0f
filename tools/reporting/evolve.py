"""The parts of docs/evolve.md, from the exports of its runs (docs/evidence/evolve-*.jsonl)."""
import json
import pathlib

from reporting.evidence import Evidence, Failure
from reporting.text import cell, table, us

# For each file, where it ran and how.
RUNS = {"evolve-params": "`params` from the plain seed, one thread of an EPYC with AVX-512 that other work shared",
        "evolve-climb": "the ladder as a replay, H200",
        "evolve-rung12": "`params` over rung 12, H200",
        "evolve-forward-sm80": "`params:random` over `forward_sm80_throughput`'s configuration, H200"}


def attempts_of(path: pathlib.Path) -> list[dict]:
    try:
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    except ValueError as error:
        raise Failure(f"{path}: cannot be read: {error}") from error


def row(title: str, name: str, attempts: list[dict]) -> list[str]:
    seed, others = attempts[0], attempts[1:]
    valid = [one for one in others if one["outcome"] == "valid"]
    times = seed["evidence"]["times"]
    shapes = ", ".join(f"({one['shape']})" for one in times)
    start = ", ".join(us(one["seconds"] * 1e6) for one in times)
    best = max(valid, key=lambda one: one["score"], default=None)
    found = ["-", "-", "-"] if best is None else [cell(best["name"]), f"{best['score']:.2f}",
                                                  f"{100 * best['noise']:.1f}%"]
    return [f"[{title}](evidence/{name}.jsonl)", shapes, f"{len(valid)} of {len(others)}", start, *found,
            f"{attempts[-1]['seconds']:.0f}"]


def runs(root: pathlib.Path) -> str:
    found = {name: root / f"docs/evidence/{name}.jsonl" for name in RUNS}
    rows = [row(RUNS[name], name, attempts_of(path)) for name, path in found.items() if path.exists()]
    if not rows:
        return "Not run yet."
    return table(["run", "shape", "valid", "seed, us", "best of the others", "score", "noise", "seconds"], rows, left=2)


def parts(all_evidence: Evidence) -> dict:
    return {"evolve runs": lambda: runs(all_evidence.root)}
