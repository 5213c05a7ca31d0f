"""The parts that come from the Python package's tests and its benchmark of a call."""
import pathlib
import sys

from reporting.evidence import STALE, Evidence, where
from reporting.text import cell, table, us

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "python/tests"))
from evidence import fingerprint  # noqa: E402


def stale(all_evidence: Evidence, evidence: dict) -> str:
    now = fingerprint(all_evidence.root / "python/flashcore")
    return "" if evidence["fingerprint"] == now else STALE


def versions(evidence: dict) -> str:
    return ", ".join(f"{name} {version}" for name, version in evidence["versions"].items())


def calls(all_evidence: Evidence, evidence: dict) -> str:
    cases = evidence["cases"]
    names = [row["implementation"] for row in cases[0]["rows"]]
    rows = []
    for name in names:
        found = [next((row for row in case["rows"] if row["implementation"] == name), None)
                 for case in cases]
        mark = stale(all_evidence, evidence) if name.startswith("flashcore") else ""
        rows.append([f"`{cell(name)}`{mark}", *(us(row and row["p50_us"]) for row in found)])
    rows.append(["kernel of `flashcore`", *(f"`{cell(case['kernel'])}`" for case in cases)])
    parts = ", ".join(f"{cell(part['part'])} {us(part['us'])}" for part in evidence.get("parts", []))
    return (f"{cell(where(evidence))} {cell(versions(evidence))}; {cell(evidence['protocol'])}.\n\n" +
            table(["us per call, fp16", *(cell(case["case"]) for case in cases)], rows) +
            (f"\n\nParts of the smallest case, us: {parts}." if parts else ""))


def tests(all_evidence: Evidence, files: dict[str, dict]) -> str:
    rows = []
    for name, evidence in files.items():
        counts = evidence["counts"]
        result = f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"
        if not evidence["complete"]:
            result += ", not run to the end"
        names = sorted({pathlib.PurePath(test.split("::")[0]).stem.removeprefix("test_")
                        for test in evidence["outcomes"]})
        rows.append([f"[{name}](evidence/{name}.json){stale(all_evidence, evidence)}", result,
                     cell(", ".join(names)), f"{cell(where(evidence))} {cell(versions(evidence))}"])
    return table(["evidence", "tests", "of", "where"], rows, left=4)


def parts(all_evidence: Evidence) -> dict:
    tested = all_evidence.of_kind("python_tests")
    return {"python calls": all_evidence.each("python_call", lambda file: calls(all_evidence, file)),
            "python tests": lambda: tests(all_evidence, tested) if tested else "Not run yet."}
