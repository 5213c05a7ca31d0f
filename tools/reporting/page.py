"""The page: all evidence in one HTML file without anything from outside; tables that sort, plots."""
import html

from reporting import bench as bench_parts
from reporting import ladder as ladder_parts
from reporting import plots, svg
from reporting.evidence import Evidence, where
from reporting.plots import (BREAKDOWN, OURS, PEERS, bound_line, color_of, display, sweep_ceiling,
                             sweep_lines)
from reporting.text import length, us

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
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(340px, 1fr)); gap: .8rem; }
svg { width: 100%; height: auto; background: var(--shade); border-radius: 6px; }
svg text { fill: var(--faint); font: 11px system-ui, sans-serif; }
svg text.title { fill: var(--ink); font-size: 12.5px; font-weight: 600; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .guide { stroke: var(--faint); stroke-width: 1.2; fill: none; stroke-dasharray: 2 3; }
svg .mark { stroke: var(--ink); stroke-width: 2; }
svg .ring { stroke: var(--ink); stroke-width: 1.5; fill: var(--shade); }
svg .hollow { stroke-width: 1.5; fill: var(--shade); }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; margin: .4rem 0; padding: 0;
          list-style: none; }
.legend span { display: inline-block; width: 1.4em; height: .35em; margin-right: .4em;
               vertical-align: middle; }
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
  const value = row => row.cells[at].dataset.value ?? row.cells[at].textContent;
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


def cell(text: str, word: bool = False, value: float | None = None, style: str = "") -> str:
    classes = " ".join(filter(None, ("word" if word else "", style)))
    extra = f' class="{classes}"' if classes else ""
    if value is not None:
        extra += f' data-value="{value:.6g}"'
    return tag("td", text, extra)


def table(header: list[str], words: int, rows: list[list[str]]) -> str:
    """The first `words` columns are text; rows are cells."""
    head = "".join(tag("th", name, ' class="word"' if i < words else "")
                   for i, name in enumerate(header))
    body = "\n".join("<tr>" + "".join(row) + "</tr>" for row in rows)
    return (f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n'
            "</tbody></table></div>")


def legend(items: list[tuple[str, str]]) -> str:
    entries = "".join(f'<li><span style="background:{color}"></span>{html.escape(name)}</li>'
                      for name, color in items)
    return f'<ul class="legend">{entries}</ul>'


def sweep_plots(bench) -> str:
    lines, ceiling = sweep_lines(bench), sweep_ceiling(bench)
    if not lines:
        return ""
    names = sorted({key for panel in lines.values() for key in panel}, key=lambda k: (k[0] == "peer", k[1]))
    plots = []
    for (head_dim, causal), panel in sorted(lines.items()):
        series = [{"points": points, "color": color_of(name), "strong": source == "flashcore",
                   "titles": [f"{display(source, name)}, S {s}: {t:.0f} TFLOP/s" for s, t in points]}
                  for (source, name), points in panel.items()]
        lengths = sorted({s for points in panel.values() for s, _ in points})
        guides = [([(lengths[0], ceiling), (lengths[-1], ceiling)], "matrix product")] if ceiling else []
        plots.append(svg.plot(f"head_dim {head_dim}, {'causal' if causal else 'full'}",
                              "sequence length, 16384 tokens in all", "TFLOP/s", series,
                              [(s, length(s)) for s in lengths], True, False, guides))
    return ("<h2>Throughput by sequence length, bf16</h2>" +
            legend([(display(*key), color_of(key[1])) for key in names]) +
            f'<div class="plots">{"".join(plots)}</div>')


def roofline(bench) -> str:
    """Work a byte against rate: how far each case is below what the run's ceilings allow."""
    roof = plots.roofline(bench)
    if not roof:
        return ""
    names = [("FlashCore's fastest kernel", OURS), ("fastest peer", PEERS)]
    # A little apart, so that neither hides the other.
    series = [{"points": [(x * apart, y) for x, y, _ in roof[key]], "color": color, "joined": False,
               "strong": key == "ours", "titles": [words for _, _, words in roof[key]]}
              for key, apart, (_, color) in zip(("ours", "peers"), (0.96, 1.04), names) if roof[key]]
    line = bound_line(roof)
    low, high = line[0][0], line[-1][0]
    ticks = [(10.0**p, number) for p, number in enumerate(("1", "10", "100", "1000", "10k", "100k"))
             if low <= 10.0**p <= high]
    plot = svg.plot("Every case under the copy and the matrix product of the same run",
                    "FLOP a byte of q, k, v, o", "TFLOP/s", series,
                    [(low, ""), *ticks, (high, "")], True, True, [(line, "bound")], width=940)
    return "<h2>Roofline</h2>" + legend(names) + plot


def breakdown(bench) -> str:
    """Of short calls: what a launch costs, what the ceilings ask, what is left to win."""
    found = plots.breakdown(bench)
    if not found:
        return ""
    rows = [{"name": f"{row['case']} {row['kernel']}", "parts": row["parts"], "mark": row["host"],
             "ring": row["peer"],
             "title": "{:.2f} us: launch {:.2f}, bound {:.2f}, rest {:.2f}".format(
                 row["total"], *row["parts"]) +
             (f"; {row['peer_name']} {row['peer']:.2f} us" if row["peer"] else "") +
             (f"; eager call {row['host']:.2f} us" if row["host"] else "")} for row in found]
    plot = svg.bars("Device time of a call; ring: the fastest peer; line: a call of an eager loop",
                    "us", rows, [color for _, color in BREAKDOWN])
    return "<h2>Where the time of short calls goes</h2>" + legend(BREAKDOWN) + plot


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
            source = row["source"]
            name = display(source, row["implementation"])
            name = name.removesuffix(" (FA2)") if on_cpu else name
            if source == "flashcore" and bench.is_stale(row["implementation"], row["fingerprint"]):
                name += " (stale)"
            error = gate.get("max_scaled_error") if gate else None
            rows.append([
                cell(one["suite"], True), cell(one["name"], True), cell(one["dtype"], True),
                cell(name, True),
                cell(verdict, True, style="passed" if verdict == "passed" else
                     "failed" if verdict == "FAILED" else ""),
                cell("-" if error is None else f"{error:.1e}", value=error),
                *(cell(us(time[k]) if time else "-") for k in ("p50_us", "p90_us")),
                *([] if on_cpu else [cell(us(other["p50_us"]) if other else "-"),
                                     cell(us(row["host_us"]) if row.get("host_us") else "-")]),
                cell(bench_parts.rate(time["tflops"]) if time else "-"),
                cell(f"{time['percent_of_bound']:.0f}%" if time and time.get("percent_of_bound")
                     else "-")])
    return table(["suite", "case", "type", "implementation", "gate", "scaled error", "p50 us",
                  "p90 us", *([] if on_cpu else ["idle p50", "eager us"]), "TFLOP/s", "of bound"],
                 5, rows)


def bench_section(name: str, evidence: dict, is_stale) -> str:
    bench = bench_parts.Bench(evidence, is_stale)
    protocols = "".join(f"<li><b>{html.escape(p)}</b>: {html.escape(text)}</li>"
                        for p, text in evidence["protocols"].items())
    notes = "".join(tag("li", note) for note in evidence["notes"])
    ceilings = "".join(tag("li", line.removeprefix("- ")) for line in bench.ceilings().split("\n"))
    return (f"<h1>Kernels and peers: {html.escape(name)}</h1>" + tag("p", bench.where()) +
            f"<ul>{protocols}</ul><p>Ceilings of the run:</p><ul>{ceilings}</ul>" +
            (f"<p>Notes:</p><ul>{notes}</ul>" if notes else "") + sweep_plots(bench) +
            roofline(bench) + breakdown(bench) + "<h2>Every point</h2>" +
            f'<p class="faint">Times by the protocol {html.escape(bench.protocol)}. A click on a '
            "heading sorts. The bound is the least time that the matrix product and the copy of the "
            "same run allow; what stays in the second-level cache can be past it.</p>" +
            bench_rows(bench))


def ladder_section(evidence: dict, is_stale) -> str:
    shapes = [shape["name"] for shape in evidence["shapes"]]
    names = [rung["name"] for rung in evidence["rungs"]]
    colors = ["#1f6fb2", "#c4581c", "#3a8a4d"]
    shown = [shapes[i] for i in (0, 2, 4) if i < len(shapes)]
    series = []
    for shape, color in zip(shown, colors):
        found = [(i, time) for i, rung in enumerate(evidence["rungs"])
                 if (time := ladder_parts.p50(rung, shape))]
        if found:
            series.append({"points": found, "color": color, "strong": True,
                           "titles": [f"{names[i]}, {shape}: {us(t)} us" for i, t in found]})
    plot = ""
    if series:
        ticks = [(i, name.split("_")[0]) for i, name in enumerate(names)
                 if i == 0 or name.split("_")[0] != names[i - 1].split("_")[0]]
        plot = legend(list(zip(shown, colors))) + svg.plot(
            "Time of one call, rung by rung", "rung", "us, log scale", series, ticks, False, True,
            width=940)
    rows = []
    for rung in evidence["rungs"]:
        stale = " (stale)" if is_stale(rung["name"], rung["fingerprint"]) else ""
        gate = rung["gate"]
        verdict = "not run" if gate is None else "passed" if gate["passed"] else "FAILED"
        rows.append([cell(rung["name"] + stale, True), cell(rung["adds"], True),
                     cell(verdict, True, style="passed" if verdict == "passed" else "failed"),
                     *(cell(us(ladder_parts.p50(rung, shape))) for shape in shapes)])
    for backend, times in ladder_parts.peer_times(evidence).items():
        rows.append([cell(f"PyTorch {backend}", True), cell("", True), cell("", True),
                     *(cell(us(times.get(shape))) for shape in shapes)])
    return ("<h1>The ladder</h1>" + tag("p", where(evidence)) + plot +
            table(["rung", "adds", "gate", *(f"{shape} us" for shape in shapes)], 3, rows))


def cpu_section(name: str, evidence: dict) -> str:
    rows = [[cell(row["case"], True), cell(f"{row['seconds'] * 1e3:.3f}"),
             cell(f"{row['gflop_a_second']:.0f}"),
             cell(f"{100 * row['gflop_a_second'] / row['peak_gflop_a_second']:.0f}%")]
            for row in evidence["peak"]]
    return (f"<h1>CPU: {html.escape(name)}</h1>" + tag("p", where(evidence)) +
            table(["case", "ms", "GFLOP/s", "of the fp32 peak"], 1, rows))


def render(all_evidence: Evidence) -> str:
    body = []
    # The one that the documentation shows comes first.
    for name, evidence in sorted(all_evidence.of_kind("bench").items(),
                                 key=lambda item: item[0] != bench_parts.MAIN):
        body.append(bench_section(name, evidence, all_evidence.is_stale))
    for evidence in all_evidence.of_kind("ladder").values():
        body.append(ladder_section(evidence, all_evidence.is_stale))
    for name, evidence in all_evidence.of_kind("cpu").items():
        body.append(cpu_section(name, evidence))
    intro = ("Written by tools/report.py from the files in docs/evidence, which programs of this "
             "repository wrote. Every result that has a time passed its gate in the same process "
             "first. Stale: the kernel's sources have changed since.")
    return ('<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>FlashCore, measured</title>\n<style>{STYLE}</style></head>\n<body>\n" +
            tag("p", intro, ' class="faint"') + "\n" + "\n".join(body) +
            f"\n<script>{SCRIPT}</script>\n</body></html>\n")
