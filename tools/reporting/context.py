"""Attention over many GPUs on paper: the table and the picture of context_model.py."""
import math

import context_model as model

TITLE = "The share of the time that is calls, by GPUs, at a million tokens"
WORLDS = (8, 16, 32, 64, 128, 256, 512, 1024)
COLORS = {"ring": "#2f7fd6", "all_gather": "#8a939d", "ulysses": "#3f9d4f", "two levels": "#e0681f"}
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


def draw(pyplot):
    figure, axes = pyplot.subplots(figsize=(7.6, 3.4), layout="constrained")
    for name, points in lines().items():
        axes.plot(*zip(*points), "o-", color=COLORS[name], markersize=4.5, clip_on=False)
        axes.annotate(name, points[-1], xytext=(8, -12 if name == "ulysses" else -4), textcoords="offset points")
    axes.set_xscale("log", base=2)
    axes.set_xticks(WORLDS, map(str, WORLDS))
    axes.minorticks_off()
    axes.set_xlim(right=2 * WORLDS[-1])
    axes.set_ylim(0, 1)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0%", "25%", "50%", "75%", "100%"])
    axes.tick_params(length=0)
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_xlabel("GPUs")
    return figure


def table() -> str:
    head = ["tokens", "GPUs", "calls, ms", *(f"{name}, ms" for name in COLORS), "shortest",
            "its GB between nodes, a GPU"]
    out = ["| " + " | ".join(head) + " |", "| ---: " * (len(head) - 2) + "| --- | ---: |"]
    for tokens, world in ROWS:
        setting = model.Setting(tokens=tokens)
        found = model.times(setting, world)
        best = model.best(found)
        cells = [f"{tokens:,}", f"{world:,}", f"{1e3 * setting.calls(world):.4g}"]
        cells += ["-" if math.isinf(time.seconds) else f"{1e3 * time.seconds:.4g}" for time in found.values()]
        cells += [best, f"{found[best].far_bytes / 1e9:.3g}"]
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
