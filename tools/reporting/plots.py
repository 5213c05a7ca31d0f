"""What the pictures show, and their colours."""
from reporting import bench as bench_parts

COLORS = {name: said["color"] for name, said in bench_parts.KERNELS.items() if "color" in said} | {
    "cpu_simd": "#2f7fd6", "cudnn": "#3f9d4f", "cudnn_direct": "#86bf5a", "flash": "#9567cc",
    "efficient": "#cf4a74", "math": "#8a939d", "flex": "#b57f5c", "fa2": "#6f63dd", "fa3": "#d45fbd",
    "fa4": "#8c2f7b", "flashinfer": "#45aec6", "xformers": "#a5803c", "openblas": "#3f9d4f",
    "onednn": "#cf4a74"}
OTHER = "#8a939d"
# Colour and marker of fp8 kernels next to each other: their colours elsewhere are much alike.
FP8_MARKS = {"forward_sm90_throughput": ("#2f7fd6", "s"), "forward_fp8_sm90": ("#e0681f", "o"),
             "forward_fp8_sm90:precise": ("#e0681f", "P"), "forward_fp8_sm90:options": ("#cf4a74", "D"),
             "forward_fp8_sm89": ("#9567cc", "^"), "forward_fp8_sm89:precise": ("#9567cc", "X"),
             "forward_sm80_throughput:fp8": ("#3f9d4f", "v"), "forward_converted:fp8": ("#45aec6", "h")}
OURS, PEERS = COLORS["forward_sm90_throughput"], COLORS["cudnn"]
BREAKDOWN = [("launch: an empty kernel", "#8a939d"), ("the bound: products or bytes", "#3f9d4f"),
             ("the rest", "#e0681f")]


def color_of(name: str) -> str:
    """The same in every plot."""
    return COLORS.get(name, OTHER)


def display(source: str, name: str) -> str:
    return name if source == "flashcore" else bench_parts.peer_name(name)


def drawn(names: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """cuDNN is one line, whoever calls it; kernels for small problems have none."""
    names = [item for item in names if item[1] not in bench_parts.FOR_SMALL]
    if ("peer", "cudnn") in names:
        names = [item for item in names if item != ("peer", "cudnn_direct")]
    return names


def sweep_lines(bench) -> dict:
    """{(head_dim, causal): {(source, name): [(S, TFLOP/s)]}}"""
    lines: dict = {}
    cases = bench.suite("sweep")
    names = drawn(bench_parts.implementations(cases, bench.protocol))
    for one in sorted(cases, key=lambda one: (one["head_dim"], one["causal"], one["seqlen_q"])):
        for source, name in names:
            value = bench.value(one, name, "tflops")
            if value is not None:
                panel = lines.setdefault((one["head_dim"], one["causal"]), {})
                panel.setdefault((source, name), []).append((one["seqlen_q"], value))
    return lines


def sweep_ceiling(bench) -> float | None:
    product = bench.ceiling("matrix_product").get("bf16")
    return product["tflops"] if product else None


def fastest(one: dict, source: str, protocol: str) -> dict | None:
    timed = [row for row in one["rows"] if row["source"] == source and row["times"].get(protocol)]
    return min(timed, key=lambda row: row["times"][protocol]["p50_us"], default=None)


def roofline(bench) -> dict | None:
    """{"peak": TFLOP/s, "copy": TB/s, "ours" and "peers": [(FLOP per byte, TFLOP/s)]}"""
    copy = bench.ceiling("copy_bytes_per_second")
    products = [product["tflops"] for product in bench.ceiling("matrix_product").values() if product]
    if not copy or not products:
        return None
    found: dict = {"peak": max(products), "copy": copy * 1e-12, "ours": [], "peers": []}
    for one in bench.evidence["cases"]:
        for key, source in (("ours", "flashcore"), ("peers", "peer")):
            row = fastest(one, source, bench.protocol)
            if row and one["flop"] and one["bytes"]:
                found[key].append((one["flop"] / one["bytes"],
                                   row["times"][bench.protocol]["tflops"]))
    return found if found["ours"] else None


def bound_line(roof: dict) -> list[tuple[float, float]]:
    intensities = [x for key in ("ours", "peers") for x, _ in roof[key]]
    low, high = min(intensities) / 1.5, max(intensities) * 1.5
    knee = roof["peak"] / roof["copy"]
    line = [(low, min(roof["peak"], low * roof["copy"]))]
    if low < knee < high:
        line.append((knee, roof["peak"]))
    return line + [(high, min(roof["peak"], high * roof["copy"]))]


def breakdown(bench) -> list[dict]:
    """Of short calls, our fastest kernel's time in parts: a launch, what the ceilings ask, the rest;
    with the fastest peer's time and the cost of a call in an eager loop."""
    empty = (bench.ceiling("empty_kernel") or {}).get("p50_us")
    rows = []
    for one in bench.suite("five") + bench.suite("small") if empty else []:
        row, peer = fastest(one, "flashcore", bench.protocol), fastest(one, "peer", bench.protocol)
        time = row["times"][bench.protocol] if row else {}
        if not time.get("percent_of_bound"):
            continue
        total = time["p50_us"]
        launch = min(empty, total)
        bound = min(total * time["percent_of_bound"] / 100, total - launch)
        rows.append({"case": one["name"], "kernel": row["implementation"],
                     "parts": [launch, bound, max(0.0, total - launch - bound)],
                     "host": row.get("host_us"),
                     "peer": peer["times"][bench.protocol]["p50_us"] if peer else None})
    return rows
