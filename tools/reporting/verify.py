"""The parts that come from the evidence of `flashcore verify --out`."""
from reporting.evidence import NOT_MEASURED, STALE, Evidence
from reporting.text import cell, code, listed, table


def errors(rows: list[dict]) -> str:
    worst = [max((row.get(name) or 0 for row in rows), default=0)
             for name in ("max_scaled_error", "relative_error", "lse_error")]
    return ", ".join(f"{value:.1e}" for value in worst)


def gates(evidence: dict, kernel: str) -> str:
    rows = [row for row in evidence["table"] if row["kernel"] == kernel and not row["refusal"]]
    if not rows:
        return "-"
    passed = sum(row["passed"] for row in rows)
    return f"{passed} of {len(rows)} ({errors(rows)})"


def scores(evidence: dict, kernel: str) -> str:
    asked = evidence.get("scores") or {"kernels": []}
    row = next((row for row in asked["kernels"] if row["kernel"] == kernel), None)
    if row is None or row["passed"] + row["failed"] == 0:
        return "-"
    return f"{row['passed']} of {row['passed'] + row['failed']} ({errors([row])})"


def random(evidence: dict, kernel: str) -> str:
    asked = evidence["random"] or {"kernels": []}
    row = next((row for row in asked["kernels"] if row["kernel"] == kernel), None)
    if row is None or row["passed"] + row["failed"] == 0:
        return "-"
    return (f"{row['passed']} of {row['passed'] + row['failed']}, seeds from {asked['first_seed']},"
            f" S to {asked['largest_seqlen']}, D to {asked['largest_head_dim']} ({errors([row])})")


def sanitizers(evidence: dict, kernel: str) -> str:
    tools = evidence["sanitizers"].get(kernel)
    if not tools:
        return "-"
    failed = [tool if result.get("ran", True) else f"{tool} (did not end)"
              for tool, result in tools.items() if not result["passed"]]
    return f"not clean: {', '.join(failed)}" if failed else f"{len(tools)} of {len(tools)} clean"


def gate_table(all_evidence: Evidence, files: dict[str, dict]) -> str:
    rows = []
    for evidence in files.values():
        for kernel, measured in evidence["fingerprints"].items():
            rows.append([code(kernel, all_evidence.is_stale(kernel, measured)), gates(evidence, kernel),
                         scores(evidence, kernel), random(evidence, kernel),
                         sanitizers(evidence, kernel)])
    rows.sort(key=lambda row: [text.replace(STALE, "") for text in row])
    return table(["kernel", "gate table", "hard scores", "random problems", "sanitizers"], rows,
                 left=5)


def mutants(files: dict[str, dict]) -> str:
    """How many injected faults the tests noticed, by file; what they did not, and why."""
    rows = [row for file in files.values() for row in file["mutants"]]
    ran = [row for row in rows if row["outcome"] in ("noticed", "survived")]
    if not ran:
        return "Not run yet."
    lines, seen = [], sorted({row["file"] for row in ran})
    for name in [*seen, ""]:
        those = [row for row in ran if name in ("", row["file"])]
        noticed = sum(row["outcome"] == "noticed" for row in those)
        lines.append([code(name) if name else "all", str(len(those)), str(noticed),
                      f"{100 * noticed / len(those):.0f}%"])
    text = table(["file", "faults", "noticed", ""], lines, left=1)
    left = [row for row in rows if row["outcome"] != "noticed"]
    for row in left:
        text += f"\n- {row['outcome']}: {cell(row['name'])}. {cell(row['why'] or row['by'])}"
    return text


def parts(all_evidence: Evidence) -> dict:
    files = all_evidence.of_kind("verify")
    return {"mutants": lambda: mutants(all_evidence.of_kind("mutants")),
            "verify": lambda: gate_table(all_evidence, files) if files else NOT_MEASURED,
            "verify where": lambda: listed(files)}
