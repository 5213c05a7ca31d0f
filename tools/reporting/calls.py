"""The table of merge, append and quantize beside copies, from the evidence of tools/call_times.py."""
from reporting.evidence import Evidence, where
from reporting.text import cell, code, cut_short, table, us


def line(row: dict) -> str:
    """What the tool prints."""
    return (f"{row['call']}, {row['case']}: {us(row['p50_us'])} us, "
            f"{row['bytes'] / row['p50_us'] * 1e-6:.2f} TB/s; a copy {us(row['copy_us'])} us")


def text(all_evidence: Evidence, evidence: dict) -> str:
    begin = f"{where(evidence)} {evidence['protocol']}." + cut_short(evidence, "rows")
    rows = []
    for row in evidence["rows"]:
        rows.append([code(row["call"], all_evidence.is_stale(row["kernel"], row["fingerprint"])), cell(row["case"]), f"{row['bytes'] * 1e-6:.1f}",
                     us(row["p50_us"]), us(row["copy_us"]), f"{row['bytes'] / row['p50_us'] * 1e-6:.2f}",
                     f"{row['p50_us'] / row['copy_us']:.2f}"])
    header = ["call", "case", "MB", "us", "copy of as many bytes, us", "TB/s", "times the copy"]
    return f"{cell(begin)}\n\n{table(header, rows, left=2)}"


def parts(all_evidence: Evidence) -> dict:
    return {"calls": all_evidence.each("calls", lambda file: text(all_evidence, file))}
