"""The architecture as a picture, from the arrows of scripts/check_arrows.py. An SVG."""
import pathlib
import sys

from reporting import themes
from reporting.evidence import Failure

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILLS = {"tool": ("#e8f0fb", "#14263d"), "core": ("#e6f4ea", "#12301d"), "cuda": ("#fdeede", "#3a2410"),
         "base": ("#f0f1f3", "#21262d")}  # light, dark
# For each room of check_arrows: place (left, top, right, bottom), colour, title, text. A list of
# folders is added to the kernels' box. A box without a room is left out.
BOXES = {
    "cli": ((0, 0, 720, 44), "tool", "cli/", "the flashcore command: subcommands, options, output"),
    "evolve": ((0, 66, 720, 110), "tool", "evolve/", "the loop of flashcore evolve"),
    "bench": ((0, 132, 720, 176), "tool", "bench/", "gates, times, peers, evidence: called by the command and the tests"),
    "callers": ((740, 0, 900, 176), "tool", "python/, rust/", "ctypes and a crate\nover the C interface"),
    "plan": ((0, 198, 720, 242), "core", "src/plan", "the table of kernels, best first: make_plan, explain, the choice"),
    "api": ((740, 198, 900, 242), "core", "src/api", "the C interface"),
    "cuda/*/*": ((0, 264, 370, 486), "cuda", "src/cuda/FAMILY/KERNEL", ""),
    "cuda/ladder": ((385, 264, 485, 486), "cuda", "ladder", "src/cuda/\nladder:\nthe rungs"),
    "cpu": ((500, 264, 605, 486), "core", "src/cpu", "reference\n(fp64), the\nSIMD kernel"),
    "tuning": ((620, 264, 720, 486), "core", "src/tuning", "cost model,\ntables of\nmeasure-\nments"),
    "cuda/*/common": ((0, 508, 370, 552), "cuda", "src/cuda/FAMILY/common", "shared by the kernels of a family"),
    "cuda/launch": ((0, 574, 430, 618), "cuda", "src/cuda/launch", "compiled instances, planning and running launches"),
    "cuda/host": ((0, 640, 485, 684), "cuda", "src/cuda/host", "host halves: parameters, tensor maps, the current GPU"),
    "cuda/attention": ((0, 706, 420, 750), "cuda", "src/cuda/attention", "device halves: key ranges, masks, softmax"),
    "cuda/tile": ((60, 772, 420, 816), "cuda", "src/cuda/tile", "swizzle and fragments, tested on the host"),
    "cuda/ptx": ((60, 838, 420, 882), "cuda", "src/cuda/ptx", "one instruction, one wrapper"),
    "kernel": ((60, 904, 720, 948), "base", "src/kernel", "what a kernel is, and which GPUs its code runs on"),
    "problem": ((0, 970, 900, 1014), "base", "src/problem", "tensors, options, validation, visibility, dropout"),
    "include": ((0, 1036, 900, 1080), "base", "include/flashcore", "the public headers"),
}
HEIGHT = 1130
ABOVE_ALL = {"callers": {"api"}}  # of what check_arrows does not know


def box_of(room: str) -> str:
    top = room.partition("/")[0]
    return top if top in ("bench", "evolve") else room


def arrows() -> dict[str, set[str]]:
    """Which boxes each may include, without those that another one includes already."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import check_arrows
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    found: dict[str, set[str]] = {box: set(others) for box, others in ABOVE_ALL.items()}
    for room, others in check_arrows.ARROWS.items():
        box = box_of(room)
        found.setdefault(box, set()).update({box_of(other) for other in others.split()} - {box})
    found.setdefault("include", set())
    if unknown := sorted(found.keys() - BOXES.keys()):
        raise Failure(f"scripts/check_arrows.py: has the room {unknown[0]}, wanted a box for it in "
                      "tools/reporting/diagrams.py")

    def below(box: str) -> set[str]:
        return found[box].union(*(below(other) for other in found[box]))

    return {box: {other for other in others if not any(other in below(third) for third in others - {other})}
            for box, others in found.items()}


def kernel_folders() -> list[str]:
    """By family: "forward_sm90: latency, throughput"."""
    found: dict[str, list[str]] = {}
    for folder in sorted((ROOT / "src/cuda").glob("*/*/")):
        family, name = folder.parent.name, folder.name
        if family != "attention" and name != "common" and any(folder.glob("*.cpp")):
            found.setdefault(family, []).append(name)
    return [f"{family}: {', '.join(names)}" for family, names in found.items()]


def architecture_shown() -> list:
    return [{box: sorted(others) for box, others in arrows().items()}, kernel_folders(), BOXES, FILLS, HEIGHT]


def arrow(upper: tuple, lower: tuple) -> str:
    """From the bottom of a box straight down to the top of another; beside those between them."""
    (left, _, right, begin), (other_left, end, other_right, _) = upper, lower
    between = [BOXES[box][0] for box in arrows() if BOXES[box][0][1] > begin and BOXES[box][0][3] < end]
    first, last = max(left, other_left), min(right, other_right)
    free = [x for x in range(first + 15, last - 5, 5)
            if not any(place[0] - 5 <= x <= place[2] + 5 for place in between)]
    if not free:
        raise Failure(f"tools/reporting/diagrams.py: has no way from {upper} to {lower}, wanted the boxes elsewhere")
    x = free[len(free) // 2]
    return f'<path class="arrow" d="M{x} {begin}V{end - 2}" marker-end="url(#head)"/>'


def architecture(digest: str) -> str:
    lines = themes.begin((-12, -12, 924, HEIGHT), "The rooms of the source, and which may include which", digest, FILLS)
    lines.append('<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
                 '<path class="head" d="M0 0L8 4L0 8z"/></marker></defs>')
    for box in arrows():
        (left, top, right, bottom), fill, title, said = BOXES[box]
        lines.append(f'<rect x="{left}" y="{top}" width="{right - left}" height="{bottom - top}" rx="5" class="{fill}"/>')
        lines.append(themes.text(left + 10, top + 18, title, 13, themes.BOLD))
        rows = kernel_folders() if box == "cuda/*/*" else said.split("\n")
        lines += [themes.text(left + 10, top + 36 + 16 * i, row, 12) for i, row in enumerate(rows) if row]
    for box, others in arrows().items():
        lines += [arrow(BOXES[box][0], BOXES[other][0]) for other in sorted(others)]
    lines.append(themes.text(0, HEIGHT - 26, "An arrow: may include, and so on along the arrows. A kernel includes no other kernel.", 12))
    return "\n".join(lines) + "\n</svg>\n"
