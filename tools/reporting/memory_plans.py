"""Shared memory of one CTA as pictures, to scale, from the rows of a kernel's config.hpp. SVG."""
import pathlib
import re

from reporting import schedules, themes
from reporting.evidence import Failure

ROOT = pathlib.Path(__file__).resolve().parents[2]
KB, SCALE, ROW, NAME = 1024, 3.1, 34, 200  # bytes; pixels: of a KB, of a bar, of the bars' names
KINDS = {"q": ("exp", "Q"), "k": ("copy", "K"), "v": ("product", "V"), "o": ("store", "O or P"),
         "rest": ("wait", "barriers, tasks, scales")}


def number(text: str) -> int:
    """The value of `5 * 1024`, `true` or `64`."""
    if text in ("true", "false"):
        return int(text == "true")
    product = 1
    for factor in text.split("*"):
        product *= int(factor)
    return product


def row_of(text: str) -> dict[str, int]:
    return {name: number(value) for name, value in re.findall(r"\.(\w+) = (\w+)", text)}


def configs(folder: str, table: str = "kConfigs") -> tuple[list[dict[str, int]], dict[str, int]]:
    """The rows of a table, and the constants that are plain numbers."""
    path = ROOT / "src/cuda" / folder / "config.hpp"
    text = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
    found = re.search(rf"{table} = \{{(.*?)\}};", text, re.DOTALL)
    if not found:
        raise Failure(f"{path.relative_to(ROOT)}: has no {table}, wanted one for the picture of the shared memory")
    described = re.search(r"struct Config \{(.*?)\n\};", text, re.DOTALL)
    usual = dict(re.findall(r"\b(?:int|bool) (\w+) = (\w+);", described[1] if described else ""))
    usual = {name: number(value) for name, value in usual.items()}
    rows = [usual | row_of(row) for row in re.findall(r"Config\{(.*?)\}", found[1], re.DOTALL) or [found[1]]]
    constants = re.findall(r"\b(k\w+) = (\d+(?: \* \d+)*)[;,]", text)
    return rows, {name: number(value) for name, value in constants}


def pieces(label: str, kind: str, count: int, each: int) -> tuple:
    return f"{label} {count} x {each / KB:g} KB" if count > 1 else f"{label} {each / KB:g} KB", [(each, kind)] * count


def whole(columns: int, panel: int) -> int:
    return -(-columns // panel) * panel


def heads(row: dict) -> str:
    qk, v = row["head_dim_qk"], row["head_dim_v"]
    return f"D {qk}" if v == qk else f"D {qk} (V: {v})"


def forward_sm90() -> list[tuple]:
    """Of each bar: its name, its groups of (label, pieces), and how many CTAs one SM has."""
    rows, constants = configs("forward_sm90/throughput")
    found = []
    for row in rows:
        qk, v = (whole(row[name], constants["kPanelColumns"]) for name in ("head_dim_qk", "head_dim_v"))
        queries = constants["kWarpgroupRows"]
        found.append((f"{heads(row)}, {queries * row['consumers']} x {row['block_kv']}",
                      [pieces("Q", "q", row["q_slots"] * row["consumers"], 2 * queries * qk),
                       pieces("K", "k", row["stages"], 2 * row["block_kv"] * qk),
                       pieces("V", "v", row["stages"], 2 * row["block_kv"] * v),
                       pieces("", "rest", 1, constants["kBarrierBytes"])], row["blocks_per_sm"]))
    return found


def forward_sm80() -> list[tuple]:
    rows, constants = configs("forward_sm80/throughput")
    found = []
    for row in rows:
        size = row.get("element_bytes", 2)
        qk, v = (whole(row[name], constants["kPanelBytes"] // size) for name in ("head_dim_qk", "head_dim_v"))
        queries = 16 * row["warps"] * row["row_groups"]
        stage = [(size * row["block_kv"] * qk, "k"), (size * row["block_kv"] * v, "v")]
        label = "K {:g}, V {:g}".format(*(each / KB for each, _ in stage))
        found.append((f"{'fp32 ' if size == 4 else ''}{heads(row)}, {queries} x {row['block_kv']}",
                      [pieces("Q", "q", 1, size * queries * qk), *[(label, stage)] * constants["kStages"]], 1))
    (pair,), _ = configs("forward_sm80/throughput", "kPairedConfig")
    queries, keys, dim = 16 * pair["warps"], pair["block_kv"], pair["head_dim"]
    found.append((f"pairs: D {dim}, {queries} x {keys}",
                  [pieces("Q", "q", 1, 2 * queries * dim), pieces("K", "k", 1, 2 * keys * dim),
                   pieces("V", "v", 1, 2 * keys * dim), pieces("P", "o", 1, 2 * queries * keys)], 1))
    return found


def decode_sm90() -> list[tuple]:
    rows, constants = configs("decode_sm90/stream_kv")
    found = []
    for row in rows:
        if row.get("e5m2"):
            continue  # as e4m3
        queries, warps = constants["kProductRows"] * row["row_tiles"], constants["kWarps"]
        tile = row["tile_keys"] * row["head_dim"] * row["kv_bytes"]
        rings = [(tile, "k"), (tile, "v")] * row["stages"] * warps
        scales = 4 * warps * 2 * row["stages"] * row["tile_keys"] if row["kv_bytes"] == 1 else 0
        groups = [(f"{warps} warps x {row['stages']} stages x (K {tile / KB:g} KB, V {tile / KB:g} KB)", rings)]
        groups += [pieces("", "rest", 1, scales)] if scales else []
        groups.append(pieces("O", "o", 1, 4 * warps * queries * (row["head_dim"] + 4)))
        found.append((f"D {row['head_dim']}, {queries} rows, {'fp8' if row['kv_bytes'] == 1 else '16 bits'}", groups, 1))
    return found


# For each picture: title, bars, the largest shared memory of a CTA in KB where it counts, and a note.
PLANS = {
    "memory-forward-sm90": ("forward_sm90_throughput: shared memory by tile", forward_sm90, 227,
                            "Queries x keys. Several CTAs per SM are drawn one after the other."),
    "memory-forward-sm80": ("forward_sm80_throughput: shared memory by tile", forward_sm80, 99,
                            "Queries x keys, two stages of K and V. Pairs of warps run where a CTA may have 163 KB."),
    "memory-decode-sm90": ("decode_sm90: shared memory by head dimension, rows and cache", decode_sm90, 227,
                           "Each warp has a ring of its own. The list of sequences takes up to 12 KB more."),
}


def total(groups: list[tuple]) -> int:
    return sum(size for _, parts in groups for size, _ in parts)


def bar(groups: list[tuple], copies: int, top: float, right: float) -> list[str]:
    left, lines = float(NAME), []
    for copy in range(copies):
        for label, parts in groups:
            begin = left
            for size, kind in parts:
                width = size / KB * SCALE
                lines.append(f'<rect x="{left:.1f}" y="{top:g}" width="{width:.1f}" height="{ROW - 10}" '
                             f'class="{KINDS[kind][0]}"/>')
                left += width
            if label and copy == 0 and len(label) * schedules.LETTER * 0.9 <= left - begin:
                lines.append(themes.middle((begin + left) / 2, top + ROW / 2, label.strip(), 10.5))
        left += 4
    size = f"{total(groups) / KB:.3g} KB" + (f" x {copies}" if copies > 1 else "")
    return [*lines, themes.text(right, top + ROW / 2, size, 11)]


def draw(name: str, digest: str) -> str:
    title, bars, most, note = PLANS[name]
    rows = bars()
    used = {kind for _, groups, _ in rows for _, parts in groups for _, kind in parts}
    longest = max(most, *(copies * total(groups) / KB for _, groups, copies in rows))
    width, height = round(NAME + longest * SCALE + 90), 44 + ROW * len(rows) + 50
    end = NAME + most * SCALE
    fills = {KINDS[kind][0]: schedules.FILLS[KINDS[kind][0]] for kind in KINDS if kind in used}
    lines = [*themes.begin((0, 0, width, height), title, digest, fills),
             themes.text(10, 20, title, 13, themes.BOLD),
             f'<path d="M{end:.1f} 40V{44 + ROW * len(rows)}" class="arrow" stroke-dasharray="3 3"/>',
             themes.middle(end, 36, f"{most} KB", 11)]
    for number_of, (label, groups, copies) in enumerate(rows):
        top = 44 + number_of * ROW
        lines += [themes.text(10, top + ROW / 2, label, 12), *bar(groups, copies, top, width - 76)]
    kinds = [KINDS[kind] for kind in KINDS if kind in used]
    return "\n".join(lines + themes.legend(44 + ROW * len(rows) + 16, note, kinds))


def all_of_them() -> dict:
    """By name: what is to be seen, and the function that gives the text of the SVG."""
    return {name: ([title, bars(), most, note, schedules.FILLS], lambda digest, name=name: draw(name, digest))
            for name, (title, bars, most, note) in PLANS.items()}
