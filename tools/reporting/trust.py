"""Who gives the library and the command what, where it crosses a boundary, and what checks it there. An SVG."""
from reporting import themes
from reporting.themes import BOLD, text

TITLE = "What crosses a trust boundary, and what checks it"
FILLS = {"giver": ("#fdeede", "#3a2410"), "check": ("#e8f0fb", "#14263d"), "inside": ("#e6f4ea", "#12301d")}  # light, dark
# A process, and what enters it: from whom (the first column of docs/threat-model.md's table), what, and what checks it.
PROCESSES = [
    ("the caller's process:\nthe library", [
        ("the caller", "structs, handles, pointers", "src/api, src/problem: sizes, types, overlaps"),
        ("data on the host", "lengths, page tables, trees", "src/problem: before a run"),
        ("the environment", "variables", "secure_getenv")]),
    ("the GPU:\nkernels", [
        ("data on a device", "lengths, page tables, trees", "each kernel: stays within the tensors")]),
    ("the command's\nprocess", [
        ("files", "tensors, cases, tables", "bench/io, schemas, src/tuning: limits"),
        ("helpers", "output", "bench/process: length, time, form")]),
    ("a process for\neach candidate", [
        ("evolve", "candidates", "evolve/runner: filter of system calls, limits")]),
]
GIVER, CHECK, INSIDE, WIDTH = (0, 230), (310, 650), (730, 900), 900
ROW, GAP = 44, 14
BOUNDARY = (GIVER[1] + CHECK[0]) // 2


def rect(columns: tuple[int, int], top: int, bottom: int, fill: str) -> str:
    left, right = columns
    return f'<rect x="{left}" y="{top}" width="{right - left}" height="{bottom - top}" rx="5" class="{fill}"/>'


def arrow(left: int, right: int, height: int) -> str:
    return f'<path class="arrow" d="M{left} {height}H{right - 2}" marker-end="url(#head)"/>'


def draw(digest: str) -> str:
    rows = sum(len(entries) for _, entries in PROCESSES)
    height = 30 + rows * (ROW + GAP)
    lines = themes.begin((-12, -12, WIDTH + 24, height + 24), TITLE, digest, FILLS)
    lines.append('<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
                 '<path class="head" d="M0 0L8 4L0 8z"/></marker></defs>')
    lines += [text(left, 12, title, 13, BOLD) for left, title in
              ((GIVER[0], "who gives what"), (CHECK[0], "what checks it"), (INSIDE[0], "where it is used"))]
    lines.append(f'<path class="arrow" stroke-dasharray="6 5" d="M{BOUNDARY} 0V{height}"/>')
    top = 26
    for process, entries in PROCESSES:
        begin = top
        for giver, gives, check in entries:
            lines += [rect(GIVER, top, top + ROW, "giver"), text(GIVER[0] + 10, top + 18, giver, 13, BOLD),
                      text(GIVER[0] + 10, top + 35, gives, 12), rect(CHECK, top, top + ROW, "check"),
                      text(CHECK[0] + 10, top + 27, check, 12), arrow(GIVER[1], CHECK[0], top + ROW // 2),
                      arrow(CHECK[1], INSIDE[0], top + ROW // 2)]
            top += ROW + GAP
        lines.append(rect(INSIDE, begin, top - GAP, "inside"))
        lines += [text(INSIDE[0] + 10, begin + 18 + 16 * i, line, 12) for i, line in enumerate(process.split("\n"))]
    return "\n".join(lines) + "\n</svg>\n"


def all_of_them() -> dict:
    """By name: what is to be seen, and the function that gives the text of the SVG."""
    return {"trust": ([TITLE, PROCESSES, FILLS, GIVER, CHECK, INSIDE, ROW, GAP], draw)}
