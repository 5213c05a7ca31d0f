"""The page: all evidence in one HTML file, with tables that sort."""
import html

from reporting import bench as bench_parts
from reporting import ladder as ladder_parts
from reporting import small as small_parts
from reporting.evidence import Evidence, where
from reporting.text import cell, rate, table, us

STYLE = """
:root { --ground: #fff; --ink: #1a1d21; --faint: #5c6570; --line: #d9dee4; --shade: #f4f6f8;
        --good: #1a7f37; --bad: #b42318; color-scheme: light dark; }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14171a; --ink: #e6e9ec; --faint: #9aa4af; --line: #333a42; --shade: #1c2126;
          --good: #4ac26b; --bad: #ff7b72; } }
body { background: var(--ground); color: var(--ink); margin: 2rem auto; max-width: 1180px;
       padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
p, li { max-width: 80ch; } .faint { color: var(--faint); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: .22rem .6rem; border-bottom: 1px solid var(--line); text-align: right;
         white-space: nowrap; }
th { background: var(--shade); cursor: pointer; user-select: none; position: sticky; top: 0; }
th::after { content: " \\2195"; color: var(--faint); }
td.word, th.word { text-align: left; }
.passed { color: var(--good); } .failed { color: var(--bad); font-weight: 600; }
"""

SCRIPT = """
for (const head of document.querySelectorAll('th')) head.addEventListener('click', () => {
  const table = head.closest('table'), body = table.tBodies[0], at = head.cellIndex;
  const down = head.dataset.order !== 'down';
  for (const other of head.parentNode.children) delete other.dataset.order;
  head.dataset.order = down ? 'down' : 'up';
  const value = row => row.cells[at].textContent;
  const order = (a, b) => {
    const x = value(a), y = value(b), m = parseFloat(x), n = parseFloat(y);
    if (!isNaN(m) && !isNaN(n)) return m - n;
    if (isNaN(m) !== isNaN(n)) return isNaN(m) ? 1 : -1;
    return x.localeCompare(y);
  };
  const rows = [...body.rows].sort((a, b) => down ? order(a, b) : order(b, a));
  body.append(...rows);
});
"""


def tag(name: str, text: str, extra: str = "") -> str:
    return f"<{name}{extra}>{html.escape(str(text))}</{name}>"


def html_of(markdown: str) -> str:
    """A table of the pages, whose cells are escaped already. Columns of words lie left."""
    header, lies, *rows = markdown.splitlines()
    words = [not column.endswith(": ") for column in lies[1:-1].split("|")]

    def row(line: str, name: str) -> str:
        found = ""
        for text, word in zip(line[2:-2].split(" | "), words, strict=True):
            style = " ".join(["word"] * word + [text.lower()] * (text in ("passed", "FAILED")))
            found += f"<{name}" + (f' class="{style}"' if style else "") + f">{text.replace('`', '')}</{name}>"
        return f"<tr>{found}</tr>"

    body = "\n".join(row(line, "td") for line in rows)
    return (f'<div class="scroll"><table><thead>{row(header, "th")}</thead>\n<tbody>\n{body}\n'
            "</tbody></table></div>")


def bench_rows(bench) -> str:
    rows = []
    on_cpu = bench.evidence["device"].get("kind") == "cpu"
    for one in bench.evidence["cases"]:
        for row in one["rows"]:
            time = row["times"].get(bench.protocol)
            other = next((row["times"][p] for p in row["times"] if p != bench.protocol), None)
            gate = row["gate"]
            verdict = ("refused" if "refusal" in row else "error" if "error" in row else
                       "passed" if gate and gate["passed"] else "FAILED")
            name = bench_parts.label(row["implementation"], row["source"], bench.is_stale_row(row))
            error = gate.get("max_scaled_error") if gate else None
            rows.append([cell(one["suite"]), cell(one["name"]), cell(one["dtype"]),
                         name.removesuffix(" (FA2)") if on_cpu else name, verdict,
                         "-" if error is None else f"{error:.1e}",
                         *(us(time[k]) if time else "-" for k in ("p50_us", "p90_us")),
                         *([] if on_cpu else [us(other["p50_us"]) if other else "-", us(row.get("host_us") or None)]),
                         rate(time["tflops"]) if time else "-",
                         f"{time['percent_of_bound']:.0f}%" if time and time.get("percent_of_bound") else "-"])
    return html_of(table(["suite", "case", "type", "implementation", "gate", "scaled error", "p50 us", "p90 us",
                          *([] if on_cpu else ["idle p50", "eager us"]), "TFLOP/s", "of bound"], rows, left=5))


def bench_section(name: str, evidence: dict, is_stale) -> str:
    bench = bench_parts.Bench(evidence, is_stale)
    protocols = "".join(f"<li><b>{html.escape(p)}</b>: {html.escape(text)}</li>"
                        for p, text in evidence["protocols"].items())
    notes = "".join(tag("li", note) for note in evidence["notes"])
    ceilings = "".join(tag("li", line.removeprefix("- ")) for line in bench.ceilings().split("\n"))
    return (f"<h1>Kernels and peers: {html.escape(name)}</h1>" + tag("p", bench.where()) +
            f"<ul>{protocols}</ul><p>Ceilings of the run:</p><ul>{ceilings}</ul>" +
            (f"<p>Notes:</p><ul>{notes}</ul>" if notes else "") +
            "<h2>Every point</h2>" +
            f'<p class="faint">Times by the protocol {html.escape(bench.protocol)}. Click a heading '
            "to sort. The bound is the least time that the matrix product and the copy of the same "
            "run allow; a problem that fits the L2 cache can be faster than it.</p>" +
            bench_rows(bench))


def ladder_section(_, evidence: dict, is_stale) -> str:
    stale = ladder_parts.stale(evidence, is_stale)
    tables = (ladder_parts.times_table(evidence, stale), ladder_parts.gates_table(evidence),
              ladder_parts.rungs_table(evidence, stale))
    return "<h1>The ladder</h1>" + tag("p", where(evidence)) + "".join(map(html_of, tables))


def small_section(name: str, evidence: dict, is_stale) -> str:
    grid = small_parts.Grid(evidence, is_stale)
    return (f"<h1>One batch entry: {html.escape(name)}</h1>" + tag("p", grid.where()) +
            tag("p", "Device time of a call in us; after a slash, a call of an eager loop.") + html_of(grid.table()))


def cpu_section(name: str, evidence: dict, _) -> str:
    rows = [[cell(row["case"]), f"{row['seconds'] * 1e3:.3f}", f"{row['gflop_per_second']:.0f}",
             f"{100 * row['gflop_per_second'] / row['peak_gflop_per_second']:.0f}%"] for row in evidence["peak"]]
    return (f"<h1>CPU: {html.escape(name)}</h1>" + tag("p", where(evidence)) +
            html_of(table(["case", "ms", "GFLOP/s", "of the fp32 peak"], rows)))


# Kinds of evidence, in the page's order.
SECTIONS = {"bench": bench_section, "ladder": ladder_section, "small_grid": small_section, "cpu": cpu_section}


def render(all_evidence: Evidence) -> str:
    # The one that the documentation shows comes first.
    body = [section(name, evidence, all_evidence.is_stale) for kind, section in SECTIONS.items()
            for name, evidence in sorted(all_evidence.of_kind(kind).items(), key=lambda item: item[0] != bench_parts.MAIN)]
    intro = ("tools/report.py writes this page from the files in docs/evidence, which the programs of "
             "this repository write. Every result with a time passed its correctness gate in the "
             "same process first. Stale: the kernel has changed since it was measured.")
    return ('<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>FlashCore, measured</title>\n<style>{STYLE}</style></head>\n<body>\n" +
            tag("p", intro, ' class="faint"') + "\n" + "\n".join(body) +
            f"\n<script>{SCRIPT}</script>\n</body></html>\n")
