"""The schedules of kernels as pictures: who does what at the same time. SVG, not to scale."""
from reporting import themes
from reporting.evidence import Failure

UNIT, ROW, NAME = 22, 30, 110  # pixels: of time, of a lane, of the lanes' names
LETTER = 6.6  # pixels, at most about that
FILLS = {"copy": ("#cfe2f8", "#1d3d63"), "product": ("#c9e8d2", "#1b4a2c"), "exp": ("#fbdcb4", "#5c3a12"),
         "store": ("#e4d5f5", "#44306a"), "wait": ("#e6e8eb", "#30363d"), "work": ("#d3ece9", "#174440")}  # light, dark
KINDS = {"copy": "copies", "product": "tensor cores", "exp": "exponentials and other arithmetic", "store": "stores",
         "wait": "waits and turns", "work": "work"}


def repeated(period: int, *steps: list[tuple]) -> list[tuple]:
    """Lists of (begin, end, words, kind), each one period later than the one before."""
    return [(begin + i * period, end + i * period, words, kind)
            for i, step in enumerate(steps) for begin, end, words, kind in step]


def turns(first: int) -> dict[str, list[tuple]]:
    """A consumer of forward_sm90_throughput that begins at `first`."""
    products = [(0, 2, "S3", "product"), (4, 6, "S2", "product"), (6, 8, "P3 V3", "product"), (12, 14, "S1", "product"),
                (14, 16, "P2 V2", "product"), (20, 22, "S0", "product"), (22, 24, "P1 V1", "product"),
                (28, 30, "P0 V0", "product"), (30, 32, "store", "store")]
    arithmetic = [(2, 4, "exp 3", "exp"), (6, 11, "exp 2", "exp"), (14, 19, "exp 1", "exp"), (22, 27, "exp 0", "exp")]
    return {"products": [(a + first, b + first, *more) for a, b, *more in products],
            "arithmetic": [(a + first, b + first, *more) for a, b, *more in arithmetic]}


# For each picture: its title, lanes (a name, and pieces of begin, end, words and kind), and a note.
SCHEDULES = {
    "schedule-forward-sm90": (
        "forward_sm90_throughput: two consumers take turns at the tensor cores",
        [("finder", [(0, 5, "next query tile", "wait"), (24, 30, "the one after it", "wait")]),
         ("producer", [(0, 2, "Q K3", "copy"), (2, 4, "K2 V3", "copy"), (4, 6, "K1 V2", "copy"), (8, 10, "K0 V1", "copy"),
                       (12, 14, "V0", "copy"), (16, 19, "next K3", "copy"), (24, 27, "next Q", "copy")]),
         ("consumer 0", turns(2)["products"]), ("", turns(2)["arithmetic"]),
         ("consumer 1", turns(6)["products"]), ("", turns(6)["arithmetic"])],
        "KV tiles from last to first: S2 is Q K2^T, P3 V3 is added to O, exp 2 makes P2 of S2."),
    "schedule-forward-sm80": (
        "forward_sm80_throughput: the next tile is copied during the products of this one",
        [("copies", repeated(14, [(3, 14, "load K, V of tile n + 1", "copy")], [(3, 14, "load K, V of tile n + 2", "copy")])),
         ("a warp", repeated(14, *(
             [(0, 3, "barrier", "wait"), (3, 6, "S = Q K^T", "product"), (6, 11, "P = 2^(S - ref)", "exp"),
              (11, 14, "O += P V", "product")] for _ in range(2)))),
         ("", [(0, 14, "tile n", "none"), (14, 28, "tile n + 1", "none")])],
        "Two stages. The reference of a row is set by its first tiles; later ones neither compare nor rescale."),
    "schedule-forward-fp8": (
        "forward_fp8_sm90: V is transposed by a launch of its own, and the second launch starts early",
        [("launch 1", [(0, 11, "V^T of each head, blocks of 128 keys", "store")]),
         ("producer", [(6, 8, "Q K", "copy"), (8, 10, "K'", "copy"), (11, 13, "V", "copy"), (14, 16, "K''", "copy"),
                       (16, 18, "V'", "copy"), (20, 23, "K''' V''", "copy")]),
         ("consumer 0", [(8, 10, "S", "product"), (14, 18, "P V, S'", "product"), (22, 26, "P' V', S''", "product"),
                         (30, 34, "P'' V'', ...", "product")]),
         ("", [(10, 13, "exp", "exp"), (18, 22, "exp'", "exp"), (26, 30, "exp''", "exp")]),
         ("consumer 1", [(10, 12, "S", "product"), (18, 22, "P V, S'", "product"), (26, 30, "P' V', S''", "product")]),
         ("", [(12, 16, "exp", "exp"), (22, 26, "exp'", "exp"), (30, 34, "exp''", "exp")])],
        "64 queries for each consumer. P of e4m3 leaves S as the operand of the next product, without data movement."),
    "schedule-decode-sm90": (
        "decode_sm90: work items are laid out as one line, which is cut into equal pieces",
        [("work items", [(0, 6, "item 0", "work"), (6, 16, "item 1", "work"), (16, 20, "item 2", "work"),
                         (20, 32, "item 3", "work")]),
         ("CTA slots", [(0, 8, "slot 0", "work"), (8, 16, "slot 1", "work"), (16, 24, "slot 2", "work"),
                        (24, 32, "slot 3", "work")]),
         ("launch 2", [(6, 16, "joins the parts of item 1", "store"), (20, 32, "joins the parts of item 3", "store")]),
         ("", []),
         ("one of 8 warps", repeated(16, *(
             [(0, 2, "wait", "wait"), (2, 6, "S^T = K Q^T", "product"), (6, 9, "softmax", "exp"),
              (9, 14, "O^T += V^T P^T", "product"), (14, 16, "refill", "copy")] for _ in range(2))))],
        "A work item is one sequence and one KV head. Each warp takes every eighth KV tile through a ring of its own."),
    "schedule-decode-sm80": (
        "decode_sm80: units of one sequence, KV head, range of keys and 16 rows",
        [("one of 4 warps", repeated(13, *(
            [(0, 2, "wait", "wait"), (2, 5, "S = Q K^T", "product"), (5, 8, "softmax", "exp"),
             (8, 11, "O += P V", "product"), (11, 13, "refill", "copy")] for _ in range(2)))),
         ("end of a unit", [(26, 30, "warps join", "store"), (30, 35, "partial result", "store")]),
         ("launch 2", [(35, 39, "O and LSE", "store")])],
        "Each warp takes every fourth KV tile. The second launch adds partial results in the order of the keys."),
    "schedule-backward-sm90": (
        "backward_sm90: two consumers, 64 keys each, against tiles of queries",
        [("producer", [(0, 7, "Q, dO of the next step", "copy"), (20, 27, "Q, dO of the one after", "copy")]),
         ("consumer 0", repeated(20, [(2, 4, "S'", "product"), (4, 8, "dK += dS Q", "product"),
                                      (8, 13, "dQ^T = K^T dS^T", "product"), (13, 18, "dV += P' dO'", "product"),
                                      (18, 20, "dP'", "product")],
                                 [(2, 4, "S''", "product"), (4, 8, "dK += dS' Q'", "product"), (8, 13, "dQ^T = K^T dS'^T", "product")])),
         ("", repeated(20, [(0, 2, "dS", "exp"), (4, 8, "P' = exp(S')", "exp"), (13, 18, "add dQ to memory", "store")],
                       [(0, 2, "dS'", "exp"), (4, 8, "exp(S'')", "exp")])),
         ("consumer 1", [(2, 4, "dP", "product"), (6, 8, "S'", "product"), (8, 12, "dK += dS Q", "product"),
                         (12, 17, "dQ^T = K^T dS^T", "product"), (17, 22, "dV += P' dO'", "product"), (22, 24, "dP'", "product"),
                         (26, 28, "S''", "product"), (28, 32, "dK += dS' Q'", "product")]),
         ("", [(4, 6, "dS", "exp"), (8, 12, "P' = exp(S')", "exp"), (17, 22, "add dQ to memory", "store"), (24, 26, "dS'", "exp"),
               (28, 32, "exp(S'')", "exp")])],
        "Exponentials run during dK, and dQ is added during dV. Consumers exchange only dS, and drift apart."),
    "schedule-backward-sm80": (
        "backward_sm80, joint kernel: a tile of keys against tiles of queries",
        [("copies", [(31, 36, "next Q, dO", "copy")]),
         ("a warp", [(0, 3, "barrier", "wait"), (3, 7, "S = K Q^T", "product"), (7, 11, "T = V dO^T", "product"),
                     (11, 15, "P, dS", "exp"), (15, 19, "dV += P^T dO", "product"), (19, 23, "dK += dS^T Q", "product"),
                     (23, 26, "barrier", "wait"), (26, 31, "dQ = dS K", "product"), (31, 36, "add to dQ", "store")])],
        "Scores are transposed, so P^T and dS^T leave the accumulators as left operands."),
}


def piece(begin: float, end: float, words: str, kind: str, top: float) -> str:
    left, width = NAME + begin * UNIT, (end - begin) * UNIT
    if len(words) * LETTER > width + 4:
        raise Failure(f"tools/reporting/schedules.py: '{words}' has {len(words)} letters, wanted at most {width / LETTER:.0f}")
    label = themes.middle(left + width / 2, top + ROW / 2 + 1, words, 11)
    if kind == "none":
        return label
    return (f'<rect x="{left + 1:g}" y="{top}" width="{width - 2:g}" height="{ROW - 8}" rx="3" class="{kind}"/>'
            f"{label}")


def draw(name: str, digest: str) -> str:
    title, lanes, note = SCHEDULES[name]
    last = max(end for _, pieces in lanes for _, end, *_ in pieces)
    used = [kind for kind in KINDS if any(kind == one for _, pieces in lanes for *_, one in pieces)]
    width, height = NAME + last * UNIT + 12, 34 + ROW * len(lanes) + 50
    lines = [*themes.begin((0, 0, width, height), title, digest, {kind: FILLS[kind] for kind in used}),
             themes.text(10, 20, title, 13, themes.BOLD)]
    for number, (lane, pieces) in enumerate(lanes):
        top = 34 + number * ROW
        lines += [themes.text(10, top + ROW / 2 + 1, lane, 12), *(piece(*one, top) for one in pieces)]
    return "\n".join(lines + themes.legend(34 + ROW * len(lanes) + 14, note, [(kind, KINDS[kind]) for kind in used]))


def all_of_them() -> dict:
    """By name: what is to be seen, and the function that gives the text of the SVG."""
    return {name: ([shown, FILLS], lambda digest, name=name: draw(name, digest))
            for name, shown in SCHEDULES.items()}
