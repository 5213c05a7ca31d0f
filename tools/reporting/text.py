"""Numbers and tables in Markdown, and the markers they are written between."""
import re

from reporting.evidence import NOT_MEASURED, STALE, Failure, where

BEGIN, END = "<!-- generated: {} -->", "<!-- end: {} -->"
MARKER_END = "<!-- end: "
MARKER = re.compile(r"<!-- generated: ([^>]*?) -->")


def us(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x" if value < 10 else f"{value:.0f}x"


def length(tokens: int) -> str:
    return f"{tokens // 1024}k" if tokens >= 1024 and tokens % 1024 == 0 else str(tokens)


def cell(text: str) -> str:
    """Text of a file, which must not end a cell or begin markup."""
    text = re.sub(r"[\r\n]", " ", str(text))
    return text.replace("<", "&lt;").replace(">", "&gt;").replace("|", "&#124;")


def code(name: str, stale: bool = False) -> str:
    return f"`{cell(name)}`" + (STALE if stale else "")


def listed(files: dict[str, dict]) -> str:
    """Where each file of evidence comes from."""
    return "\n".join(f"- `docs/evidence/{name}.json`: {cell(' '.join([where(file), *file.get('notes', [])]))}"
                     for name, file in files.items()) or NOT_MEASURED


def cut_short(evidence: dict, what: str) -> str:
    return "" if evidence["complete"] else f" The run was cut short: some {what} are missing."


def rate(tflops: float) -> str:
    return f"{tflops:.0f}" if tflops >= 100 else f"{tflops:.3g}"


def ceilings_text(of_run: dict) -> str:
    lines = []
    for protocol, values in of_run.items():
        parts = []
        if "empty_kernel" in values:
            parts.append(f"empty kernel {values['empty_kernel']['p50_us']:.2f} us")
        if "copy_bytes_per_second" in values:
            parts.append(f"copy {values['copy_bytes_per_second'] * 1e-12:.2f} TB/s")
        if "read_bytes_per_second" in values:
            parts.append(f"read {values['read_bytes_per_second'] * 1e-9:.1f} GB/s")
        for dtype, product in values.get("matrix_product", {}).items():
            if product:
                parts.append(f"{cell(dtype)} matrix product {rate(product['tflops'])} TFLOP/s")
        lines.append(f"- {cell(protocol)}: " + ", ".join(parts))
    return "\n".join(lines) or "None was measured."


def table(header: list[str], rows: list[list[str]], left: int = 1) -> str:
    lines = ["| " + " | ".join(header) + " |",
             "|" + "|".join(" --- " if i < left else " ---: " for i in range(len(header))) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def replace_part(page: str, name: str, text: str) -> str:
    begin, end = BEGIN.format(name), END.format(name)
    if page.count(begin) != 1 or page.count(end) != 1:
        raise Failure(f"the page wants the markers {begin} and {end}, once each")
    head, rest = page.split(begin)
    tail = rest.split(end)[1]
    return f"{head}{begin}\n{text}\n{end}{tail}"


def fill(page: str, parts: dict) -> str:
    """Every marked part of the page anew; `parts` are functions by name."""
    for name in MARKER.findall(page):
        if name not in parts:
            raise Failure(f"the part '{name}' is not known, wanted one of {', '.join(parts)}")
        page = replace_part(page, name, parts[name]())
    return page
