"""What quantisation costs, from `flashcore verify --errors quantization`."""
from reporting.evidence import Evidence, where
from reporting.text import cell, table

COLUMNS = {"a scale a tensor": ("f8e4m3", "tensor", False, False),
           "head": ("f8e4m3", "head", False, False),
           "64 rows": ("f8e4m3", "block", False, False),
           "token": ("f8e4m3", "token", False, False),
           "head, smoothed": ("f8e4m3", "head", True, False),
           "token, smoothed": ("f8e4m3", "token", True, False),
           "head, rotated": ("f8e4m3", "head", False, True),
           "head, smoothed, rotated": ("f8e4m3", "head", True, True),
           "head, e5m2": ("f8e5m2", "head", False, False),
           "head, e5m2, smoothed": ("f8e5m2", "head", True, False)}


def way(row: dict) -> tuple:
    return row["dtype"], row["scales"], row["smooth"], row["rotated"]


def errors(evidence: dict, what: str, columns: list[str]) -> str:
    rows = []
    for data in dict.fromkeys(row["data"] for row in evidence["rows"]):
        found = {way(row): row[what] for row in evidence["rows"] if row["data"] == data}
        values = [found.get(COLUMNS[column]) for column in columns]
        rows.append([cell(data), *("-" if value is None else f"{value:.1e}" for value in values)])
    return table(["data", *columns], rows)


def parts(all_evidence: Evidence) -> dict:
    def each(make):
        return all_evidence.each("quantization", make)

    return {
        "quantization where": each(lambda e: cell(
            f"{where(e)} {e['shape']}; the largest of {e['seeds']} seeds.")),
        "quantization error": each(lambda e: errors(e, "relative_error", list(COLUMNS))),
        "quantization lse": each(lambda e: errors(e, "lse_error", [
            "head", "token", "head, smoothed", "head, rotated"]))}
