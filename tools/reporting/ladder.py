"""The parts of docs/ladder.md, from the evidence that `flashcore ladder` wrote."""
from reporting.evidence import Evidence, where
from reporting.text import ceilings_text, cell, code, ratio, table, us

PROTOCOL = "sustained"


def p50(rung: dict, shape: str) -> float | None:
    time = rung["times"].get(shape)
    return time[PROTOCOL]["p50_us"] if time else None


def most(rung: dict, what: str) -> int | None:
    values = [launch[what] for launches in rung["launches"].values() for launch in launches]
    return max(values) if values else None


def times_table(evidence: dict, stale: set[str]) -> str:
    shapes = [shape["name"] for shape in evidence["shapes"]]
    mission = shapes[0]
    rows = []
    for rung in evidence["rungs"]:
        time = rung["times"].get(mission, {})
        shared = most(rung, "shared_bytes")
        rows.append([code(rung["name"], rung["name"] in stale),
                     *(us(p50(rung, shape)) for shape in shapes),
                     ratio(time.get("speedup_over_before")), ratio(time.get("speedup_over_unfused")),
                     str(most(rung, "registers") or "-"),
                     "-" if shared is None else f"{shared / 1024:.1f}",
                     f"{rung['gate']['max_scaled_error']:.1e}" if rung["gate"] else "-"])
    for backend, times in peer_times(evidence).items():
        rows.append([f"PyTorch {backend}", *(us(times.get(shape)) for shape in shapes),
                     "", "", "", "", us_error(evidence, backend)])
    header = ["us per call", *shapes, "over the row above", "over unfused", "registers",
              "shared KB", "scaled error"]
    return table(header, rows)


def us_error(evidence: dict, backend: str) -> str:
    errors = [row["max_scaled_error"] for rows in evidence["peers"]["shapes"].values()
              for row in rows if row["backend"] == backend and "max_scaled_error" in row]
    return f"{max(errors):.1e}" if errors else "-"


def peer_times(evidence: dict) -> dict[str, dict[str, float]]:
    peers = evidence.get("peers") or {"shapes": {}}
    times: dict[str, dict[str, float]] = {}
    for shape, rows in peers["shapes"].items():
        for row in rows:
            if PROTOCOL in row:
                times.setdefault(row["backend"], {})[shape] = row[PROTOCOL]["p50_us"]
    return times


# What the best rung of sm_80 instructions is to reach of PyTorch's flash backend, by shape.
FLASH_GOALS = {"(1,8,512,64)": 1.0, "(2,8,2048,64)": 0.9, "(2,8,2048,128)": 0.9}
CLIMB_GOAL = 72  # from the slowest rung to the best, on the first shape


def goals_text(evidence: dict) -> str:
    def met(value: float, goal: float) -> str:
        return "met" if value >= goal else "not met"

    mission = evidence["shapes"][0]["name"]
    times = {rung["name"]: p50(rung, mission) for rung in evidence["rungs"] if p50(rung, mission)}
    lines = []
    if times:
        slowest, best = max(times, key=times.get), min(times, key=times.get)
        climb = times[slowest] / times[best]
        lines.append(f"- From the slowest rung (`{slowest}`) to the fastest (`{best}`) on {mission}: "
                     f"{climb:.0f}x, goal {CLIMB_GOAL}x: {met(climb, CLIMB_GOAL)}.")
    flash = peer_times(evidence).get("flash", {})
    for shape, goal in FLASH_GOALS.items():
        plain = {rung["name"]: p50(rung, shape) for rung in evidence["rungs"]
                 if rung["min_compute_capability"] == 80 and rung["input"] == "f16"
                 and p50(rung, shape)}
        if plain and shape in flash:
            best = min(plain, key=plain.get)
            speed = flash[shape] / plain[best]
            lines.append(f"- The fastest rung with sm_80 instructions only (`{best}`) against PyTorch's flash "
                         f"backend on {shape}: {speed:.2f}x its speed, goal {goal:.1f}x: "
                         f"{met(speed, goal)}.")
    return "\n".join(lines) or "Nothing was timed."


def gates_table(evidence: dict) -> str:
    rows = []
    for rung in evidence["rungs"]:
        gate = rung["gate"]
        if gate is None:
            rows.append([code(rung["name"]), "not run", "-", "-", "-"])
            continue
        passed = sum(row["passed"] for row in gate["table"])
        runs = passed + sum(row["failed"] for row in gate["table"])
        tails, repeats = gate["tails"], gate["repeats"]
        bad = [f"{tool} FAILED" for tool, result in rung["sanitizers"].items()
               if not result["passed"]]
        tools = bad or (["passed"] if rung["sanitizers"] else [])
        rows.append([code(rung["name"]), "passed" if gate["passed"] else "FAILED",
                     f"{passed} of {runs}",
                     f"{tails['passed']} of {tails['passed'] + tails['failed']}",
                     f"{repeats['equal']} of {repeats['equal'] + repeats['different']}",
                     ", ".join(tools) or "not run"])
    return table(["rung", "gate", "table", "random tails", "equal bits twice", "compute-sanitizer"],
                 rows, left=2)


def rungs_table(evidence: dict, stale: set[str]) -> str:
    """What each rung adds, what was expected of it beforehand, and what came of it."""
    first = evidence["shapes"][0]["name"]
    rows = []
    for rung in evidence["rungs"]:
        time = rung["times"].get(first, {})
        measured = (f"{us(p50(rung, first))} us, {ratio(time.get('speedup_over_before'))}" if time
                    else "not timed: " + cell((rung["gate"] or {}).get("failure", "not run")))
        rows.append([code(rung["name"], rung["name"] in stale),
                     cell(rung["adds"]), cell(rung["prediction"]), measured])
    return table(["rung", "adds", "predicted", f"measured on {first}, over the row above"], rows,
                 left=4)


def stale(evidence: dict, is_stale) -> set[str]:
    return {rung["name"] for rung in evidence["rungs"] if is_stale(rung["name"], rung["fingerprint"])}


def parts(all_evidence: Evidence) -> dict:
    """By the name of the marker."""
    def of(make):
        return all_evidence.part("ladder", make)

    is_stale = all_evidence.is_stale
    return {"where": of(where), "times": of(lambda e: times_table(e, stale(e, is_stale))),
            "goals": of(goals_text), "ceilings": of(lambda e: ceilings_text(e["ceilings"])), "gates": of(gates_table),
            "rungs": of(lambda e: rungs_table(e, stale(e, is_stale)))}
