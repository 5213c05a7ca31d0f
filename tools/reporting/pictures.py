"""PNGs for the pages. Each carries the hash of what it shows, so that --check knows without drawing."""
import hashlib
import json
import pathlib
import struct
import zlib

from reporting import bench as bench_parts
from reporting import ladder as ladder_parts
from reporting.evidence import Evidence, Failure
from reporting.text import length

KEY = "evidence"  # of the text chunk that holds the hash
COLORS = ["#1f6fb2", "#c4581c", "#3a8a4d", "#8a5fb0", "#b03a5b", "#6b6b6b", "#2a9d9d",
          "#b98a00", "#7a4a2b"]


def hash_of(shown) -> str:
    return hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()[:16]


def png_text(path: pathlib.Path, key: str) -> str | None:
    """A text chunk of a PNG; nothing when it is not there, or the file is no PNG."""
    data = path.read_bytes() if path.exists() else b""
    at = 8
    while at + 8 <= len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + size]
        if kind in (b"tEXt", b"zTXt") and body.split(b"\0")[0].decode("latin-1") == key:
            text = body.split(b"\0", 1)[1]
            return (zlib.decompress(text[1:]) if kind == b"zTXt" else text).decode("latin-1")
        at += 12 + size
    return None


def ladder_shown(evidence: dict):
    return [[[rung["name"], rung["times"]] for rung in evidence["rungs"]],
            ladder_parts.peer_times(evidence)]


def draw_ladder(evidence: dict, pyplot):
    shapes = [evidence["shapes"][i]["name"] for i in (0, 2, 4) if i < len(evidence["shapes"])]
    names = [rung["name"] for rung in evidence["rungs"]]
    figure, axes = pyplot.subplots(figsize=(10, 6))
    peers = ladder_parts.peer_times(evidence)
    for shape, color in zip(shapes, COLORS):
        points = [(i, ladder_parts.p50(rung, shape)) for i, rung in enumerate(evidence["rungs"])]
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
    return figure


def sweep_lines(bench) -> dict:
    """{(head_dim, causal): {name: [(S, TFLOP/s)]}}"""
    lines: dict = {}
    cases = bench.suite("sweep")
    for one in sorted(cases, key=lambda one: (one["head_dim"], one["causal"], one["seqlen_q"])):
        for source, name in bench_parts.implementations(cases, bench.protocol):
            value = bench.value(one, name, "tflops")
            if value is not None:
                panel = lines.setdefault((one["head_dim"], one["causal"]), {})
                panel.setdefault((source, name), []).append((one["seqlen_q"], value))
    return lines


def sweep_ceiling(bench) -> float | None:
    product = bench.evidence["ceilings"].get(bench.protocol, {}).get("matrix_product", {}).get("bf16")
    return product["tflops"] if product else None


def draw_sweep(bench, pyplot):
    lines, ceiling = sweep_lines(bench), sweep_ceiling(bench)
    dims = sorted({panel[0] for panel in lines})
    figure, grid = pyplot.subplots(2, len(dims), figsize=(4 * len(dims), 6.4), sharey=True,
                                   squeeze=False)
    for column, dim in enumerate(dims):
        for row, causal in enumerate((False, True)):
            axes = grid[row][column]
            panel = lines.get((dim, causal), {})
            for (source, name), points in panel.items():
                ours = source == "flashcore"
                axes.plot([s for s, _ in points], [t for _, t in points],
                          "o-" if ours else "s--", linewidth=2.2 if ours else 1.2, markersize=4,
                          color=color_of(name), label=name if ours else bench_parts.peer_name(name))
            if ceiling:
                axes.axhline(ceiling, color="black", linestyle=":", linewidth=1,
                             label="matrix product")
            ticks = sorted({s for points in panel.values() for s, _ in points})
            axes.set_xscale("log", base=2)
            axes.set_xticks(ticks, [length(s) for s in ticks])
            axes.minorticks_off()
            axes.set_ylim(bottom=0)
            axes.set_title(f"head_dim {dim}, {'causal' if causal else 'full'}", fontsize=10)
            axes.grid(alpha=0.25)
            if column == 0:
                axes.set_ylabel("TFLOP/s")
            if row == 1:
                axes.set_xlabel("sequence length")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.suptitle(f"bf16, 16384 tokens, hidden size 2048, {bench.evidence['device']['name']}, "
                    f"{bench.protocol}", fontsize=11)
    figure.legend(handles, labels, loc="lower center", ncol=6, fontsize=8, frameon=False)
    figure.subplots_adjust(bottom=0.14, top=0.9, wspace=0.08, hspace=0.3)
    return figure


FIXED = ["forward_sm90", "forward_sm80", "cudnn", "flash", "efficient", "fa3", "flex",
         "forward_small_sm90"]


def color_of(name: str) -> str:
    """The same in every picture."""
    if name in FIXED:
        return COLORS[FIXED.index(name)]
    return COLORS[-1]


def pictures(all_evidence: Evidence) -> dict:
    """By file name: the hash of what is to be seen, and the function that draws it."""
    found = {}
    if ladder := all_evidence.files.get("ladder"):
        found["ladder.png"] = (hash_of(ladder_shown(ladder)), lambda plt: draw_ladder(ladder, plt))
    bench = bench_parts.main_of(all_evidence)
    if bench and (lines := sweep_lines(bench)):
        shown = [[str(panel), {str(key): points for key, points in names.items()}]
                 for panel, names in lines.items()]
        found["sweep.png"] = (hash_of([shown, sweep_ceiling(bench), bench.protocol]),
                              lambda plt: draw_sweep(bench, plt))
    return found


def draw_all(all_evidence: Evidence, folder: pathlib.Path) -> None:
    names = outdated(all_evidence, folder)
    if not names:
        return
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError as error:
        raise Failure("pictures need matplotlib, which is not here; --no-pictures leaves "
                      f"{', '.join(names)} as they are") from error
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        shown, draw = pictures(all_evidence)[name]
        figure = draw(pyplot)
        figure.savefig(folder / name, dpi=130, bbox_inches="tight", metadata={KEY: shown})
        pyplot.close(figure)


def outdated(all_evidence: Evidence, folder: pathlib.Path) -> list[str]:
    return [name for name, (shown, _) in pictures(all_evidence).items()
            if png_text(folder / name, KEY) != shown]
