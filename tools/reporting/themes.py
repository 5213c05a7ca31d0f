"""What the SVGs have in common: a description, and the colours of the light and the dark theme as CSS variables."""
import html

COLORS = {"ground": ("#ffffff", "#0d1117"), "ink": ("#1a1d21", "#dde3ea"), "grid": ("#d9dee4", "#30363d")}
FONT = "system-ui, sans-serif"
BOLD = ' font-weight="bold"'  # more of a text


def described(digest: str) -> str:
    """Where --check finds the hash of what is to be seen."""
    return (f'<metadata><dc:description xmlns:dc="http://purl.org/dc/elements/1.1/">shows {digest}'
            "</dc:description></metadata>")


def style(more: dict[str, tuple[str, str]] | None = None) -> str:
    light, dark = (";".join(f"--{name}:{pair[theme]}" for name, pair in (COLORS | (more or {})).items())
                   for theme in (0, 1))
    return f"<style>svg{{{light}}}@media(prefers-color-scheme:dark){{svg{{{dark}}}}}</style>"


def text(x: float, y: float, words: str, size: float, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size:g}"{more}>{html.escape(words)}</text>'


def middle(x: float, y: float, words: str, size: float) -> str:
    return text(round(x, 1), y, words, size, ' text-anchor="middle"')


def legend(top: float, note: str, kinds: list[tuple[str, str]]) -> list[str]:
    """The last lines of an SVG: a note, and what the colour of each class means."""
    lines, left = [text(10, top, note, 11.5)], 10
    for fill, words in kinds:
        lines += [f'<rect x="{left}" y="{top + 11:g}" width="14" height="12" rx="2" class="{fill}"/>',
                  text(left + 20, top + 21, words, 11)]
        left += 42 + 6 * len(words)
    return [*lines, "</svg>", ""]


def begin(place: tuple[int, int, int, int], title: str, digest: str, fills: dict[str, tuple[str, str]]) -> list[str]:
    """The first lines of an SVG that is written by hand. A rect of a class of `fills` has its colour."""
    left, top, width, height = place
    rules = "".join(f".{name}{{fill:var(--{name})}}" for name in fills)
    return [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left} {top} {width} {height}" width="{width}" '
            f'height="{height}" role="img" font-family="{FONT}">', described(digest), f"<title>{html.escape(title)}</title>",
            style(fills), "<style>text{fill:var(--ink)}rect{stroke:var(--grid)}.ground{fill:var(--ground);stroke:none}"
            f".arrow{{stroke:var(--ink);stroke-width:1.4;fill:none;opacity:.75}}.head{{fill:var(--ink)}}{rules}</style>",
            f'<rect x="{left}" y="{top}" width="{width}" height="{height}" class="ground"/>']
