"""Plots as SVG: lines over a logarithmic or linear axis, and stacked bars. Colours that depend on the
page's theme are classes; every point has a title that a pointer shows."""
import html
import math

WIDTH, HEIGHT = 460, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 30, 44


class Axis:
    def __init__(self, low: float, high: float, begin: float, end: float, log: bool):
        self.low, self.high, self.begin, self.end, self.log = low, high, begin, end, log

    def at(self, value: float) -> float:
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)

    def ticks(self) -> list[float]:
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            steps = (1,) if last - first > 3 else (1, 2, 5)
            values = [step * 10.0**power for power in range(first, last + 1) for step in steps]
        else:
            step = nice_step(self.high - self.low)
            values = [step * i for i in range(math.ceil(self.low / step),
                                              math.floor(self.high / step) + 1)]
        return [value for value in values if self.low <= value * 1.0001 and value <= self.high * 1.0001]


def nice_step(span: float) -> float:
    rough = max(span, 1e-9) / 5
    power = 10.0**math.floor(math.log10(rough))
    return next(power * step for step in (1, 2, 2.5, 5, 10) if power * step >= rough)


def number(value: float) -> str:
    return f"{value:.10g}" if value < 10000 else f"{value / 1000:g}k"


def text(x: float, y: float, words: str, anchor: str = "middle", extra: str = "") -> str:
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>'
            f"{html.escape(words)}</text>")


def frame(title: str, x_label: str, y_label: str, body: list[str], width: int = WIDTH,
          height: int = HEIGHT) -> str:
    middle = (LEFT + width - RIGHT) / 2
    up = (TOP + height - BOTTOM) / 2
    parts = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{html.escape(title)}">',
             text(middle, 16, title, extra=' class="title"'),
             text(middle, height - 6, x_label),
             text(13, up, y_label, extra=f' transform="rotate(-90 13 {up:.1f})"'), *body, "</svg>"]
    return "\n".join(parts)


def grid(x: Axis, y: Axis, x_ticks: list[tuple[float, str]]) -> list[str]:
    parts = []
    for value in y.ticks():
        at = y.at(value)
        parts.append(f'<line class="grid" x1="{x.begin}" x2="{x.end}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(text(x.begin - 6, at + 3.5, number(value), "end"))
    for value, words in x_ticks:
        at = x.at(value)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{y.begin}" y2="{y.end}"/>')
        parts.append(text(at, y.begin + 15, words))
    return parts


def line(points: list[tuple[float, float]], x: Axis, y: Axis, color: str, strong: bool,
         titles: list[str]) -> list[str]:
    path = " ".join(f"{x.at(px):.1f},{y.at(py):.1f}" for px, py in points)
    dash = "" if strong else ' stroke-dasharray="5 3"'
    parts = [f'<polyline points="{path}" fill="none" stroke="{color}" '
             f'stroke-width="{2.4 if strong else 1.5}"{dash}/>']
    for (px, py), words in zip(points, titles):
        fill = f'fill="{color}"' if strong else f'class="hollow" stroke="{color}"'
        parts.append(f'<circle cx="{x.at(px):.1f}" cy="{y.at(py):.1f}" r="{4 if strong else 3}" '
                     f'{fill}><title>{html.escape(words)}</title></circle>')
    return parts


def plot(title: str, x_label: str, y_label: str, series: list[dict], x_ticks: list[tuple[float, str]],
         log_x: bool, log_y: bool, guides: list[tuple[list[tuple[float, float]], str]] = (),
         width: int = WIDTH) -> str:
    """`series`: {"points", "color", "strong", "titles", "joined"}; `guides`: thin lines with a name."""
    xs = [px for one in series for px, _ in one["points"]] + [tick for tick, _ in x_ticks]
    ys = [py for one in series for _, py in one["points"]]
    ys += [py for points, _ in guides for _, py in points]
    low_x, high_x = min(xs), max(xs)
    if low_x == high_x:
        low_x, high_x = low_x * 0.8, high_x * 1.25
    x = Axis(low_x, high_x, LEFT, width - RIGHT, log_x)
    low_y = min(ys) / 1.25 if log_y else 0
    y = Axis(low_y, max(ys) * (1.25 if log_y else 1.06), HEIGHT - BOTTOM, TOP, log_y)
    body = grid(x, y, x_ticks)
    for points, name in guides:
        path = " ".join(f"{x.at(px):.1f},{y.at(py):.1f}" for px, py in points)
        body.append(f'<polyline class="guide" points="{path}"/>')
        px, py = points[0]
        body.append(text(x.at(px) + 5, y.at(py) - 6, name, "start", ' class="guide-name"'))
    for one in sorted(series, key=lambda one: one["strong"]):
        drawn = line(one["points"], x, y, one["color"], one["strong"], one["titles"])
        body += drawn if one.get("joined", True) else drawn[1:]
    return frame(title, x_label, y_label, body, width)


def bars(title: str, x_label: str, rows: list[dict], colors: list[str]) -> str:
    """Stacked horizontal bars: {"name", "parts": [values], "mark" and "ring": value or None, "title"}."""
    left, row_height, width = 250, 20, 940
    top = 30
    height = top + row_height * len(rows) + 44
    most = max(max(sum(row["parts"]), row["mark"] or 0, row.get("ring") or 0) for row in rows)
    x = Axis(0, most * 1.03, left, width - RIGHT, False)
    y_end = top + row_height * len(rows)
    body = []
    for value in x.ticks():
        at = x.at(value)
        body.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{top}" y2="{y_end}"/>')
        body.append(text(at, y_end + 15, number(value)))
    for i, row in enumerate(rows):
        y, begin = top + i * row_height, 0.0
        body.append(f"<g><title>{html.escape(row['title'])}</title>")
        body.append(text(left - 6, y + 14, row["name"], "end"))
        for part, color in zip(row["parts"], colors):
            body.append(f'<rect x="{x.at(begin):.1f}" y="{y + 3}" height="{row_height - 6}" '
                        f'width="{x.at(begin + part) - x.at(begin):.1f}" fill="{color}"/>')
            begin += part
        if row["mark"]:
            at = x.at(row["mark"])
            body.append(f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{y + 1}" '
                        f'y2="{y + row_height - 1}"/>')
        if row.get("ring"):
            body.append(f'<circle class="ring" cx="{x.at(row["ring"]):.1f}" '
                        f'cy="{y + row_height / 2}" r="4"/>')
        body.append("</g>")
    middle = (left + width) / 2
    return "\n".join([f'<svg viewBox="0 0 {width} {height}" role="img" '
                      f'aria-label="{html.escape(title)}">',
                      text(middle, 16, title, extra=' class="title"'), *body,
                      text(middle, height - 8, x_label), "</svg>"])
