#!/usr/bin/env python3
"""docs/ladder.md and its plot, from the evidence that `flashcore ladder` wrote.

    make_ladder_page.py                 writes the parts between markers of docs/ladder.md, and the
                                        plot (needs matplotlib; --no-plot leaves it as it is)
    make_ladder_page.py --check         fails when the page or the plot does not match the evidence

Rows whose kernel sources have changed since they were measured are marked as stale. What each rung's
author says comes from docs/ladder-notes*.md, by the headings there.
"""
import argparse
import hashlib
import json
import pathlib
import re
import struct
import sys
import zlib

import fingerprint

SCHEMA, VERSION = "flashcore-evidence", 1
BEGIN, END = "<!-- generated: {} -->", "<!-- end: {} -->"
PROTOCOL = "sustained"
PLOT_KEY = "evidence"  # of the text chunk in the PNG that holds the hash it was drawn from
STALE = " (stale)"


class Failure(Exception):
    """A sentence for the person who ran this."""


def read_evidence(path: pathlib.Path) -> dict:
    try:
        evidence = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Failure(f"{path}: cannot be read: {error}") from error
    if evidence.get("schema") != SCHEMA or evidence.get("version") != VERSION:
        raise Failure(f"{path}: is {evidence.get('schema')!r} version {evidence.get('version')!r}, "
                      f"wanted {SCHEMA!r} version {VERSION}")
    if evidence.get("kind") != "ladder":
        raise Failure(f"{path}: is of kind {evidence.get('kind')!r}, wanted 'ladder'")
    return evidence


def read_notes(docs: pathlib.Path) -> dict[str, str]:
    """Paragraphs by the rung that heads them: '## 04_wmma_pv'."""
    notes: dict[str, str] = {}
    for path in sorted(docs.glob("ladder-notes*.md")):
        text = path.read_text(encoding="utf-8")
        for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
            heading, _, body = section.partition("\n")
            notes[heading.strip().strip("`")] = body.strip()
    return notes


def stale_rungs(evidence: dict, root: pathlib.Path) -> set[str]:
    current = fingerprint.fingerprints(root)
    return {rung["name"] for rung in evidence["rungs"]
            if rung["fingerprint"] != fingerprint.rung_fingerprint(current, rung["name"])}


def p50(rung: dict, shape: str) -> float | None:
    time = rung["times"].get(shape)
    return time[PROTOCOL]["p50_us"] if time else None


def us(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}x" if value < 10 else f"{value:.0f}x"


def table(header: list[str], rows: list[list[str]], left: int = 1) -> str:
    lines = ["| " + " | ".join(header) + " |",
             "|" + "|".join(" --- " if i < left else " ---: " for i in range(len(header))) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def most(rung: dict, what: str) -> int | None:
    values = [launch[what] for launches in rung["launches"].values() for launch in launches]
    return max(values) if values else None


def where(evidence: dict) -> str:
    device, library = evidence["device"], evidence["library"]
    modified = ", with local changes" if library["modified"] else ""
    return (f"{device['name']}, driver {device['driver']}, CUDA {device['toolkit']}, "
            f"commit {library['commit'][:12]}{modified}, {evidence['created']}.")


def times_table(evidence: dict, stale: set[str]) -> str:
    shapes = [shape["name"] for shape in evidence["shapes"]]
    mission = shapes[0]
    rows = []
    for rung in evidence["rungs"]:
        time = rung["times"].get(mission, {})
        shared = most(rung, "shared_bytes")
        rows.append([f"`{rung['name']}`" + (STALE if rung["name"] in stale else ""),
                     *(us(p50(rung, shape)) for shape in shapes),
                     ratio(time.get("speedup_over_before")), ratio(time.get("speedup_over_unfused")),
                     str(most(rung, "registers") or "-"),
                     "-" if shared is None else f"{shared / 1024:.1f}",
                     f"{rung['gate']['max_scaled_error']:.1e}" if rung["gate"] else "-"])
    for backend, times in peer_times(evidence).items():
        rows.append([f"PyTorch {backend}", *(us(times.get(shape)) for shape in shapes),
                     "", "", "", "", us_error(evidence, backend)])
    header = ["us a call", *shapes, "over the row above", "over unfused", "registers",
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


def ceilings_text(evidence: dict) -> str:
    lines = []
    for protocol, ceilings in evidence["ceilings"].items():
        parts = [f"an empty kernel {ceilings['empty_kernel']['p50_us']:.2f} us",
                 f"a copy {ceilings['copy_bytes_a_second'] * 1e-12:.2f} TB/s"]
        for dtype, product in ceilings.get("matrix_product", {}).items():
            if product:
                parts.append(f"a {dtype} matrix product {product['tflops']:.0f} TFLOP/s")
        lines.append(f"- {protocol}: " + ", ".join(parts))
    return "\n".join(lines)


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
        lines.append(f"- From the slowest rung (`{slowest}`) to the best (`{best}`) on {mission}: "
                     f"{climb:.0f}x, goal {CLIMB_GOAL}x: {met(climb, CLIMB_GOAL)}.")
    flash = peer_times(evidence).get("flash", {})
    for shape, goal in FLASH_GOALS.items():
        plain = {rung["name"]: p50(rung, shape) for rung in evidence["rungs"]
                 if rung["min_compute_capability"] == 80 and rung["input"] == "f16"
                 and p50(rung, shape)}
        if plain and shape in flash:
            best = min(plain, key=plain.get)
            speed = flash[shape] / plain[best]
            lines.append(f"- Speed of the best rung of sm_80 instructions (`{best}`) over PyTorch's "
                         f"flash backend on {shape}: {speed:.2f}x, goal {goal:.1f}x: "
                         f"{met(speed, goal)}.")
    return "\n".join(lines) or "Nothing was timed."


def gates_table(evidence: dict) -> str:
    rows = []
    for rung in evidence["rungs"]:
        gate = rung["gate"]
        if gate is None:
            rows.append([f"`{rung['name']}`", "not run", "-", "-", "-"])
            continue
        passed = sum(row["passed"] for row in gate["table"])
        runs = passed + sum(row["failed"] for row in gate["table"])
        tails, repeats = gate["tails"], gate["repeats"]
        bad = [f"{tool} FAILED" for tool, result in rung["sanitizers"].items()
               if not result["passed"]]
        tools = bad or (["passed"] if rung["sanitizers"] else [])
        rows.append([f"`{rung['name']}`", "passed" if gate["passed"] else "FAILED",
                     f"{passed} of {runs}",
                     f"{tails['passed']} of {tails['passed'] + tails['failed']}",
                     f"{repeats['equal']} of {repeats['equal'] + repeats['different']}",
                     ", ".join(tools) or "not run"])
    return table(["rung", "gate", "table", "random tails", "equal bits twice", "compute-sanitizer"],
                 rows, left=2)


def rungs_text(evidence: dict, notes: dict[str, str], stale: set[str]) -> str:
    parts = []
    mission = evidence["shapes"][0]["name"]
    for rung in evidence["rungs"]:
        time = rung["times"].get(mission, {})
        measured = (f"{us(p50(rung, mission))} us on {mission}, "
                    f"{ratio(time.get('speedup_over_before'))} over the row above"
                    if time else "not timed: " + (rung["gate"] or {}).get("failure", "not run"))
        text = (f"### {rung['name']}{STALE if rung['name'] in stale else ''}\n\n"
                f"Adds: {rung['adds']}.\n\nPredicted: {rung['prediction']}.\n\n"
                f"Measured: {measured}.")
        if note := notes.get(rung["name"]):
            text += f"\n\n{note}"
        parts.append(text)
    return "\n\n".join(parts)


def replace_part(page: str, name: str, text: str) -> str:
    begin, end = BEGIN.format(name), END.format(name)
    if page.count(begin) != 1 or page.count(end) != 1:
        raise Failure(f"the page wants the markers {begin} and {end}, once each")
    head, rest = page.split(begin)
    tail = rest.split(end)[1]
    return f"{head}{begin}\n{text}\n{end}{tail}"


def render(page: str, evidence: dict, notes: dict[str, str], stale: set[str]) -> str:
    parts = {"where": where(evidence), "times": times_table(evidence, stale),
             "goals": goals_text(evidence), "ceilings": ceilings_text(evidence), "gates": gates_table(evidence),
             "rungs": rungs_text(evidence, notes, stale)}
    for name, text in parts.items():
        page = replace_part(page, name, text)
    return page


def plot_hash(evidence: dict) -> str:
    """Of what the plot shows."""
    shown = [[rung["name"], rung["times"]] for rung in evidence["rungs"]]
    text = json.dumps([shown, peer_times(evidence)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def png_text(path: pathlib.Path, key: str) -> str | None:
    """A tEXt chunk of a PNG."""
    data = path.read_bytes()
    at = 8
    while at + 8 <= len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        if kind == b"tEXt" and body.split(b"\0")[0].decode() == key:
            return body.split(b"\0", 1)[1].decode("latin-1")
        if kind == b"zTXt" and body.split(b"\0")[0].decode() == key:
            return zlib.decompress(body.split(b"\0", 1)[1][1:]).decode("latin-1")
        at += 12 + length
    return None


def draw(evidence: dict, path: pathlib.Path) -> None:
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    shapes = [evidence["shapes"][0]["name"], evidence["shapes"][2]["name"],
              evidence["shapes"][4]["name"]]
    names = [rung["name"] for rung in evidence["rungs"]]
    figure, axes = pyplot.subplots(figsize=(10, 6))
    colors = ["#1f6fb2", "#c4581c", "#3a8a4d"]
    peers = peer_times(evidence)
    for shape, color in zip(shapes, colors):
        points = [(i, p50(rung, shape)) for i, rung in enumerate(evidence["rungs"])]
        points = [point for point in points if point[1] is not None]
        axes.plot([x for x, _ in points], [y for _, y in points], "o-", color=color, label=shape)
        for backend, style in (("flash", "--"), ("cudnn", ":")):
            if shape in peers.get(backend, {}):
                axes.axhline(peers[backend][shape], color=color, linestyle=style, linewidth=1,
                             label=f"{shape}, PyTorch {backend}")
    axes.set_yscale("log")
    axes.set_ylabel("us a call, log scale")
    axes.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=8)
    axes.set_title(f"The ladder on {evidence['device']['name']}, fp16 and e4m3")
    axes.grid(axis="y", which="both", alpha=0.25)
    axes.legend(fontsize=7, ncol=3)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130, metadata={PLOT_KEY: plot_hash(evidence)})


def main() -> int:
    root = pathlib.Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=root)
    parser.add_argument("--evidence", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--no-plot", action="store_true")
    options = parser.parse_args()
    docs = options.root / "docs"
    page_path, plot_path = docs / "ladder.md", docs / "images/ladder.png"
    try:
        evidence = read_evidence(options.evidence or docs / "evidence/ladder.json")
        page = page_path.read_text(encoding="utf-8")
        notes = read_notes(docs)
        wanted = render(page, evidence, notes, stale_rungs(evidence, options.root))
        if options.check:
            if page != wanted:
                raise Failure("docs/ladder.md does not match its evidence, notes and kernel "
                              "sources: run tools/make_ladder_page.py")
            if not plot_path.exists() or png_text(plot_path, PLOT_KEY) != plot_hash(evidence):
                raise Failure("docs/images/ladder.png was not drawn from docs/evidence/ladder.json: "
                              "run tools/make_ladder_page.py")
            print("docs/ladder.md matches its evidence")
            return 0
        page_path.write_text(wanted, encoding="utf-8")
        if not options.no_plot:
            draw(evidence, plot_path)
    except Failure as failure:
        print(f"make_ladder_page: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
