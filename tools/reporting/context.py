"""Attention over many GPUs on paper: the table and the picture of context_model.py."""
import html
import math

import context_model as model
from reporting import themes

TITLE = "The share of the time that is calls, by GPUs, at a million tokens"
WORLDS = (8, 16, 32, 64, 128, 256, 512, 1024)
NAMES = {"ring": "ring", "all_gather": "all_gather", "ulysses": "ulysses", "two levels": "two levels"}
COLORS = {"ring": ("#2f7fd6", "#5ea2ea"), "all-gather": ("#8a939d", "#a5adb6"), "ulysses": ("#3f9d4f", "#58b868"),
          "levels": ("#e0681f", "#f08a4a")}
CLASSES = dict(zip(NAMES, COLORS))
LEFT, TOP, WIDTH, HEIGHT = 56, 30, 560, 240  # of the plot, in pixels
ROWS = ((2**17, 64), (2**17, 1024), (2**20, 64), (2**20, 256), (2**20, 1024), (2**23, 1024))


def lines() -> dict[str, list[tuple[int, float]]]:
    """By algorithm: GPUs and the share, where it is possible."""
    setting = model.Setting()
    found: dict = {}
    for world in WORLDS:
        for name, time in model.times(setting, world).items():
            if not math.isinf(time.seconds):
                found.setdefault(name, []).append((world, model.efficiency(setting, world, time)))
    return found


def _place(world: float, share: float) -> tuple[float, float]:
    x = LEFT + WIDTH * math.log2(world / WORLDS[0]) / math.log2(WORLDS[-1] / WORLDS[0])
    return round(x, 1), round(TOP + HEIGHT * (1 - share), 1)


def draw(digest: str) -> str:
    out = themes.begin((0, 0, LEFT + WIDTH + 120, TOP + HEIGHT + 50), TITLE, digest, COLORS)
    rules = "".join(f".line-{name}{{stroke:var(--{name});stroke-width:2;fill:none}}" for name in COLORS)
    out.append(f"<style>{rules}.grid{{stroke:var(--grid);fill:none}}</style>")
    for share in (0, 0.25, 0.5, 0.75, 1):
        x, y = _place(WORLDS[0], share)
        out.append(f'<path class="grid" d="M{x} {y}H{LEFT + WIDTH}"/>')
        out.append(f'<text x="{x - 8}" y="{y + 4}" text-anchor="end" font-size="11">{share:.0%}</text>')
    for world in WORLDS:
        x, y = _place(world, 0)
        out.append(f'<text x="{x}" y="{y + 18}" text-anchor="middle" font-size="11">{world}</text>')
    out.append(f'<text x="{LEFT + WIDTH / 2}" y="{TOP + HEIGHT + 38}" text-anchor="middle" font-size="12">GPUs</text>')
    for name, points in lines().items():
        places = [_place(*point) for point in points]
        path = "L".join(f"{x} {y}" for x, y in places)
        out.append(f'<path class="line-{CLASSES[name]}" d="M{path}"/>')
        out += [f'<circle class="{CLASSES[name]}" cx="{x}" cy="{y}" r="3"/>' for x, y in places]
        x, y = places[-1]
        out.append(f'<text x="{x + 8}" y="{y + (14 if name == "ulysses" else 4)}" font-size="12">{html.escape(NAMES[name])}</text>')
    return "\n".join([*out, "</svg>", ""])


def all_of_them() -> dict:
    """By name: what is to be seen, and the function that gives the text of the SVG."""
    return {"context-parallel": ([TITLE, lines(), COLORS, LEFT, TOP, WIDTH, HEIGHT], draw)}


def table() -> str:
    head = ["tokens", "GPUs", "calls, ms", *(f"{name}, ms" for name in NAMES.values()), "shortest",
            "its GB between nodes, a GPU"]
    out = ["| " + " | ".join(head) + " |", "| ---: " * (len(head) - 2) + "| --- | ---: |"]
    for tokens, world in ROWS:
        setting = model.Setting(tokens=tokens)
        found = model.times(setting, world)
        best = model.best(found)
        cells = [f"{tokens:,}", f"{world:,}", f"{1e3 * setting.calls(world):.4g}"]
        cells += ["-" if math.isinf(time.seconds) else f"{1e3 * time.seconds:.4g}" for time in found.values()]
        cells += [NAMES[best], f"{found[best].far_bytes / 1e9:.3g}"]
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out)


def hidden_from() -> str:
    """From how many tokens of a GPU the calls of a step take longer than its transfers between nodes."""
    setting = model.Setting()
    flat = setting.flops * setting.heads_kv * setting.element_bytes / (setting.heads * setting.far)
    return (f"So a ring between nodes hides its transfers from {flat:,.0f} tokens of each GPU on, and two levels from "
            f"{flat / model.NODE:,.0f}.")


def parts() -> dict:
    return {"context model": table, "context hidden": hidden_from}
