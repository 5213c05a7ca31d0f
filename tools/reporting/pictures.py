"""SVGs for the pages: diagrams, and plots by matplotlib. Each has the colours of both themes, and carries the hash of
what it shows, so that --check needs no matplotlib."""
import hashlib
import io
import json
import math
import pathlib
import re

from reporting import bench as bench_parts
from reporting import context, diagrams, trust
from reporting import fp8 as fp8_parts
from reporting import ladder as ladder_parts
from reporting import memory_plans, plots, schedules, themes
from reporting.evidence import Evidence, Failure
from reporting.text import length, us

HASH = re.compile(r">shows ([0-9a-f]{16})</dc:description>")
STYLE = 4  # of the drawing itself: part of the hash
FP8_FLOOR = 1e-6  # smaller errors are drawn here
SHAPE_COLORS = ("#2f7fd6", "#e0681f", "#3f9d4f")
TEXTS = {"ladder": "Time of one call, rung by rung", "sweep": "Throughput by sequence length",
         "architecture": "The rooms of the source, and which may include which", "roofline": "Roofline", "latency": "Where the time of short calls goes",
         "fp8": "Relative error of O against TFLOP/s of each kernel for fp8, by data"}
FRONT = ("ladder", "sweep")  # also on the front page
TEXTS |= {"context-parallel": context.TITLE, "trust": trust.TITLE}
TEXTS |= {name: title for name, (title, *_) in (schedules.SCHEDULES | memory_plans.PLANS).items()}


def hash_of(shown) -> str:
    return hashlib.sha256(json.dumps([STYLE, shown], sort_keys=True).encode()).hexdigest()[:16]


def hash_in(path: pathlib.Path) -> str | None:
    """The hash that a picture carries; nothing when the file is missing or has none."""
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    found = HASH.search(text)
    return found and found[1]


def ladder_shown(evidence: dict):
    return [[[rung["name"], rung["input"], rung["min_compute_capability"], rung["times"]] for rung in evidence["rungs"]],
            ladder_parts.peer_times(evidence), "staircase"]


def stair_color(rung: dict) -> str:
    """Of what a rung needs: fp8 inputs, Hopper's instructions, or neither."""
    plain, fp8, hopper = SHAPE_COLORS
    return hopper if rung["min_compute_capability"] >= 90 else plain if rung["input"] == "f16" else fp8


def draw_ladder(evidence: dict, pyplot):
    """A staircase for each shape: a step per rung, down from the first, as long as its time."""
    shapes = [evidence["shapes"][i]["name"] for i in (0, 2, 4) if i < len(evidence["shapes"])]
    rungs, peers = evidence["rungs"], ladder_parts.peer_times(evidence)
    figure, grid = pyplot.subplots(1, len(shapes), figsize=(11, 0.9 + 0.27 * len(rungs)), sharey=True, squeeze=False,
                                   layout="constrained")
    handles: dict = {}
    ink = pyplot.rcParams["text.color"]
    for shape, axes in zip(shapes, grid[0]):
        times = [ladder_parts.p50(rung, shape) for rung in rungs]
        known = [time for time in times if time is not None]
        floor = min(known, default=1) / 3
        lines = [peers[backend][shape] for backend in ("flash", "cudnn") if shape in peers.get(backend, {})]
        for row, (rung, time) in enumerate(zip(rungs, times)):
            if time is None:
                axes.text(floor * 1.1, -row, "not timed", va="center", fontsize=7.5)
                continue
            label = ("Hopper's instructions" if rung["min_compute_capability"] >= 90 else
                     "sm_80 instructions" if rung["input"] == "f16" else "e4m3 inputs")
            handles[label] = axes.barh(-row, time - floor, left=floor, height=1.0, color=stair_color(rung), alpha=0.8)
            axes.text(max([time, *(line for line in lines if time < line < 3 * time)]) * 1.12, -row, us(time),
                      va="center", fontsize=7.5, zorder=4)
        for backend, style in (("flash", "--"), ("cudnn", ":")):
            if shape in peers.get(backend, {}):
                handles[f"PyTorch {backend}"] = axes.axvline(peers[backend][shape], color=ink, linestyle=style,
                                                             linewidth=1.1, zorder=3)
        axes.set_xscale("log")
        axes.set_xlim(floor, max(known, default=1) * 4)
        axes.set_ylim(0.5 - len(rungs), 0.5)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_title(shape, fontsize=10)
        axes.grid(axis="x", alpha=0.5)
        axes.set_axisbelow(True)
        axes.tick_params(axis="y", length=0)
    grid[0][0].set_yticks([-row for row in range(len(rungs))], [rung["name"] for rung in rungs], fontsize=8)
    figure.suptitle(f"The ladder on {evidence['device']['name']}: microseconds per call, (B, H, S, D)", fontsize=11)
    figure.legend(handles.values(), handles.keys(), fontsize=8.5, loc="outside lower center", ncol=len(handles),
                  frameon=False)
    return figure


def draw_sweep(bench, pyplot):
    lines, ceiling = plots.sweep_lines(bench), plots.sweep_ceiling(bench)
    dims = sorted({panel[0] for panel in lines})
    figure, grid = pyplot.subplots(2, len(dims), figsize=(3 * len(dims) + 1, 6), sharey=True,
                                   squeeze=False)
    most = max([ceiling or 0] + [t for panel in lines.values() for points in panel.values()
                                 for _, t in points])
    handles: dict = {}
    for column, dim in enumerate(dims):
        for row, causal in enumerate((False, True)):
            axes = grid[row][column]
            panel = lines.get((dim, causal), {})
            for (source, name), points in panel.items():
                ours = source == "flashcore"
                (handles[plots.display(source, name)],) = axes.plot(
                    [s for s, _ in points], [t for _, t in points], "o-" if ours else "s--",
                    linewidth=2.2 if ours else 1.3, markersize=4.5 if ours else 3.5,
                    color=plots.color_of(name), zorder=3 if ours else 2)
            if ceiling:
                handles["matrix product"] = axes.axhline(ceiling, color="gray", linestyle=":",
                                                         linewidth=1.4)
            ticks = sorted({s for points in panel.values() for s, _ in points})
            axes.set_xscale("log", base=2)
            axes.set_xticks(ticks, [length(s) for s in ticks])
            axes.minorticks_off()
            axes.set_ylim(0, most * 1.06)
            axes.set_title(f"head_dim {dim}, {'causal' if causal else 'full'}", fontsize=10)
            axes.grid(alpha=0.7)
            if column == 0:
                axes.set_ylabel("TFLOP/s")
            if row == 1:
                axes.set_xlabel("sequence length")
    figure.suptitle(f"bf16, 16384 tokens, hidden size 2048, {bench.evidence['device']['name']}, "
                    f"{bench.protocol}", fontsize=11)
    columns = min(4, len(handles))
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncol=columns, fontsize=9,
                  frameon=False)
    rows = -(-len(handles) // columns)
    figure.subplots_adjust(bottom=0.11 + 0.035 * rows, top=0.9, wspace=0.08, hspace=0.32)
    return figure


def draw_roofline(bench, pyplot):
    roof = plots.roofline(bench)
    figure, axes = pyplot.subplots(figsize=(9, 4.6))
    line = plots.bound_line(roof)
    axes.plot([x for x, _ in line], [y for _, y in line], color="gray", linewidth=1.4)
    knee = roof["peak"] / roof["copy"]
    axes.annotate(f"matrix product, {roof['peak']:.0f} TFLOP/s", (knee, roof["peak"]),
                  xytext=(-12, -3), textcoords="offset points", ha="right", fontsize=9)
    middle = math.sqrt(line[0][0] * knee)
    axes.annotate(f"copy, {roof['copy']:.2f} TB/s", (middle, middle * roof["copy"]),
                  xytext=(10, -10), textcoords="offset points", fontsize=9)
    # Moved apart a little, so that neither hides the other.
    for key, label, color, fill, apart in (
            ("peers", "the fastest peer", plots.PEERS, "none", 1.05),
            ("ours", "FlashCore's fastest kernel", plots.OURS, plots.OURS, 0.95)):
        axes.scatter([x * apart for x, _ in roof[key]], [y for _, y in roof[key]], s=30,
                     label=label, facecolors=fill, edgecolors=color, linewidths=1.4, zorder=3)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("FLOP per byte of q, k, v, o")
    axes.set_ylabel("TFLOP/s")
    axes.set_title(f"Every case under the ceilings of the same run, "
                   f"{bench.evidence['device']['name']}, {bench.protocol}")
    axes.grid(alpha=0.7)
    axes.legend(fontsize=9, loc="lower right")
    return figure


def draw_latency(bench, pyplot):
    rows = plots.breakdown(bench)
    figure, axes = pyplot.subplots(figsize=(9, 1.5 + 0.23 * len(rows)), layout="constrained")
    at = [-i for i in range(len(rows))]
    left = [0.0] * len(rows)
    for part, (label, color) in enumerate(plots.BREAKDOWN):
        widths = [row["parts"][part] for row in rows]
        axes.barh(at, widths, left=left, height=0.68, color=color, label=label)
        left = [a + b for a, b in zip(left, widths)]
    for key, label, style in (("peer", "the fastest peer", {"marker": "D", "s": 22,
                                                            "facecolors": "none"}),
                              ("host", "a call of an eager loop", {"marker": "|", "s": 90})):
        points = [(row[key], y) for row, y in zip(rows, at) if row[key]]
        axes.scatter([x for x, _ in points], [y for _, y in points], label=label, zorder=3,
                     edgecolors=None if key == "host" else pyplot.rcParams["text.color"],
                     color=pyplot.rcParams["text.color"] if key == "host" else None, **style)
    axes.set_yticks(at, [f"{row['case']}  {row['kernel']}" for row in rows], fontsize=8)
    axes.set_ylim(-len(rows) + 0.3, 0.7)
    axes.set_xlabel("microseconds")
    axes.set_title(f"(B, H, S, D), fp16, {bench.evidence['device']['name']}, {bench.protocol}")
    axes.grid(axis="x", alpha=0.7)
    axes.set_axisbelow(True)
    figure.legend(*axes.get_legend_handles_labels(), fontsize=8.5, loc="outside lower center",
                  ncol=5, frameon=False)
    return figure


def draw_fp8(panels: list, device: str, shape: str, pyplot):
    columns = min(4, len(panels))
    figure, grid = pyplot.subplots(-(-len(panels) // columns), columns, figsize=(11, 6.2), sharex=True,
                                   sharey=True, squeeze=False)
    handles: dict = {}
    ink = pyplot.rcParams["text.color"]
    for number, axes in enumerate(grid.flat):
        if number >= len(panels):
            axes.set_visible(False)
            continue
        data, lost, points = panels[number]
        if lost:
            handles["what e4m3 lost of the inputs"] = axes.axhline(lost, color=ink, linestyle=":", linewidth=1.2)
        for (name, dtype), speed, error in points:
            color, marker = plots.FP8_MARKS.get(name, (plots.OTHER, "o"))
            handles[f"{name} ({dtype.removeprefix('f8')})"] = axes.scatter(
                [speed], [max(error, FP8_FLOOR)], color=color, marker=marker, s=62, zorder=3, edgecolors=ink, linewidths=0.5)
        axes.set_yscale("log")
        axes.minorticks_off()
        axes.set_title(data, fontsize=10)
        axes.grid(alpha=0.7)
        if number % columns == 0:
            axes.set_ylabel("relative error of O")
        if number + columns >= len(panels):
            axes.set_xlabel("TFLOP/s")
    grid.flat[0].set_xlim(left=0)
    grid.flat[0].set_ylim(bottom=FP8_FLOOR / 1.6)
    figure.suptitle(f"{shape}, D {fp8_parts.PICTURED_DIM}, full, {device}. "
                    f"Right and down is better; the lowest points are {FP8_FLOOR:g} or less", fontsize=11)
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncol=3, fontsize=9, frameon=False)
    figure.subplots_adjust(bottom=0.24, top=0.9, wspace=0.08, hspace=0.28)
    return figure


def drawings(all_evidence: Evidence) -> dict:
    """By name: what is to be seen, and the function that draws it."""
    found: dict = {"context-parallel": ([context.TITLE, context.lines(), context.COLORS], context.draw)}
    if ladder := all_evidence.files.get("ladder"):
        found["ladder"] = (ladder_shown(ladder), lambda plt: draw_ladder(ladder, plt))
    modes = fp8_parts.modes_of(all_evidence)
    if modes and (panels := modes.points()):
        about = [modes.evidence["device"]["name"], f"S {modes.evidence['seqlen']}"]
        found["fp8"] = ([panels, *about], lambda plt: draw_fp8(panels, *about, plt))
    bench = bench_parts.main_of(all_evidence)
    if bench is None:
        return found
    where = [bench.evidence["device"]["name"], bench.protocol]
    if lines := plots.sweep_lines(bench):
        shown = [[str(panel), {str(key): points for key, points in names.items()}]
                 for panel, names in lines.items()]
        found["sweep"] = ([shown, plots.sweep_ceiling(bench), where],
                          lambda plt: draw_sweep(bench, plt))
        if roof := plots.roofline(bench):
            found["roofline"] = ([roof, where], lambda plt: draw_roofline(bench, plt))
    if rows := plots.breakdown(bench):
        found["latency"] = ([rows, where], lambda plt: draw_latency(bench, plt))
    return found


def drawn_by_hand() -> dict:
    """By name: what is to be seen, and the function that gives the text of the SVG."""
    return ({"architecture": (diagrams.architecture_shown(), diagrams.architecture)} | schedules.all_of_them() |
            memory_plans.all_of_them() | trust.all_of_them())


def hashes(all_evidence: Evidence) -> dict[str, str]:
    """By file name: the hash of what is to be seen."""
    return {f"{name}.svg": hash_of(shown) for name, (shown, _) in (drawings(all_evidence) | drawn_by_hand()).items()}


def part(all_evidence: Evidence, name: str, folder: str) -> str:
    """A picture in a page."""
    if name not in drawings(all_evidence) | drawn_by_hand():
        return "Not in this run."
    return f'<img alt="{TEXTS[name]}" src="{folder}/{name}.svg">'


def parts(all_evidence: Evidence) -> dict:
    return ({f"picture {name}": lambda name=name: part(all_evidence, name, "images") for name in TEXTS} |
            {f"front picture {name}": lambda name=name: part(all_evidence, name, "docs/images") for name in FRONT})


def settings() -> dict:
    ground, ink, grid = (themes.COLORS[name][0] for name in ("ground", "ink", "grid"))
    return {"figure.facecolor": ground, "axes.facecolor": ground, "savefig.facecolor": ground,
            "legend.facecolor": ground, "legend.edgecolor": grid, "grid.color": grid, "text.color": ink,
            "axes.labelcolor": ink, "axes.edgecolor": grid, "xtick.color": ink,
            "ytick.color": ink, "axes.titlesize": 11, "font.size": 9.5, "font.sans-serif": ["DejaVu Sans"],
            # Text stays text, and the same evidence gives the same bytes.
            "svg.fonttype": "none", "svg.hashsalt": "flashcore"}


def plotted(draw, digest: str) -> str:
    """A plot as a small SVG, with the colours of both themes."""
    try:
        import matplotlib
        matplotlib.use("svg")
        from matplotlib import pyplot
    except ImportError as error:
        raise Failure("pictures need matplotlib, which is not here; --no-pictures leaves them as they are") from error
    with pyplot.rc_context(settings()):
        figure, file = draw(pyplot), io.StringIO()
        figure.savefig(file, format="svg", bbox_inches="tight")
        pyplot.close(figure)
    text = re.sub(r"(\d\.\d\d)\d+", r"\1", re.sub(r"\n *", "\n", file.getvalue()))
    for name, (light, _) in themes.COLORS.items():
        text = text.replace(light, f"var(--{name})")
    classes: dict[str, str] = {}
    text = re.sub(r'style="(.*?)"', lambda found: f'class="{classes.setdefault(found[1], f"c{len(classes)}")}"', text)
    rules = "".join(f".{name}{{{style}}}" for style, name in classes.items())
    head = f"{themes.described(digest)}\n{themes.style()}\n<style>{rules}</style>"
    return re.sub(r"<metadata>.*?</metadata>", lambda _: head, text, flags=re.DOTALL)


def draw_all(all_evidence: Evidence, folder: pathlib.Path) -> None:
    """Draws those that are out of date, and removes those with nothing left to show."""
    wanted, by_hand = hashes(all_evidence), drawn_by_hand()
    folder.mkdir(parents=True, exist_ok=True)
    for name in outdated(all_evidence, folder):
        if name not in wanted:
            (folder / name).unlink()
            continue
        title = name.removesuffix(".svg")
        digest = wanted[name]
        text = by_hand[title][1](digest) if title in by_hand else plotted(drawings(all_evidence)[title][1], digest)
        (folder / name).write_text(text, encoding="utf-8")


def outdated(all_evidence: Evidence, folder: pathlib.Path) -> list[str]:
    """Files that are missing, show something else, or have nothing to show."""
    wanted = hashes(all_evidence)
    return [name for name in (f"{title}.svg" for title in TEXTS)
            if (hash_in(folder / name) != wanted[name] if name in wanted else (folder / name).exists())]
