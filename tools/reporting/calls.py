"""The table of merge, append and quantize beside copies, from the evidence of tools/call_times.py."""
from reporting.evidence import STALE, Evidence, where
from reporting.text import cell, table, us


def line(row: dict) -> str:
    """What the tool prints."""
    return (f"{row['call']}, {row['case']}: {us(row['p50_us'])} us, "
            f"{row['bytes'] / row['p50_us'] * 1e-6:.2f} TB/s; a copy {us(row['copy_us'])} us")


def text(all_evidence: Evidence, evidence: dict) -> str:
    begin = f"{where(evidence)} {evidence['protocol']}."
    if not evidence["complete"]:
        begin += " The run was cut short: some rows are missing."
    rows = []
    for row in evidence["rows"]:
        mark = STALE if all_evidence.is_stale(row["kernel"], row["fingerprint"]) else ""
        rows.append([f"`{cell(row['call'])}`{mark}", cell(row["case"]), f"{row['bytes'] * 1e-6:.1f}",
                     us(row["p50_us"]), us(row["copy_us"]), f"{row['bytes'] / row['p50_us'] * 1e-6:.2f}",
                     f"{row['p50_us'] / row['copy_us']:.2f}"])
    header = ["call", "case", "MB", "us", "copy of as many bytes, us", "TB/s", "times the copy"]
    return f"{cell(begin)}\n\n{table(header, rows, left=2)}"


def parts(all_evidence: Evidence) -> dict:
    def found() -> str:
        files = all_evidence.of_kind("calls")
        return "\n\n".join(text(all_evidence, file) for file in files.values()) or "Not measured yet."

    return {"calls": found}
