"""What the SVGs have in common: a description, and the colours of the light and the dark theme as CSS variables."""

COLORS = {"ground": ("#ffffff", "#0d1117"), "ink": ("#1a1d21", "#dde3ea"), "grid": ("#d9dee4", "#30363d")}
FONT = "system-ui, sans-serif"


def described(digest: str) -> str:
    """Where --check finds the hash of what is to be seen."""
    return (f'<metadata><dc:description xmlns:dc="http://purl.org/dc/elements/1.1/">shows {digest}'
            "</dc:description></metadata>")


def style(more: dict[str, tuple[str, str]] | None = None) -> str:
    light, dark = (";".join(f"--{name}:{pair[theme]}" for name, pair in (COLORS | (more or {})).items())
                   for theme in (0, 1))
    return f"<style>svg{{{light}}}@media(prefers-color-scheme:dark){{svg{{{dark}}}}}</style>"


def begin(place: tuple[int, int, int, int], title: str, digest: str, fills: dict[str, tuple[str, str]]) -> list[str]:
    """The first lines of an SVG that is written by hand. A rect of a class of `fills` has its colour."""
    left, top, width, height = place
    rules = "".join(f".{name}{{fill:var(--{name})}}" for name in fills)
    return [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left} {top} {width} {height}" width="{width}" '
            f'height="{height}" role="img" font-family="{FONT}">', described(digest), f"<title>{title}</title>",
            style(fills), "<style>text{fill:var(--ink)}rect{stroke:var(--grid)}.ground{fill:var(--ground);stroke:none}"
            f".arrow{{stroke:var(--ink);stroke-width:1.4;fill:none;opacity:.75}}.head{{fill:var(--ink)}}{rules}</style>",
            f'<rect x="{left}" y="{top}" width="{width}" height="{height}" class="ground"/>']
