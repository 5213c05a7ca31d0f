"""The parts that come from `flashcore bench` on bench/cases/cpu_goals.json."""
from reporting.evidence import NOT_MEASURED, Evidence
from reporting.text import cell, listed, table


def of_bench(evidence: dict) -> dict:
    """As a file of kind "cpu", from before `flashcore bench` had these cases."""
    protocol = next(iter(evidence["protocols"]))
    peak = 1e3 * evidence["ceilings"][protocol]["matrix_product"]["f32"]["tflops"]

    def seconds(one: dict, name: str) -> float | None:
        return next((1e-6 * row["times"][protocol]["p50_us"] for row in one["rows"]
                     if row["implementation"] == name and protocol in row["times"]), None)

    def of(suite: str) -> list[dict]:
        found = []
        for one in evidence["cases"]:
            time = seconds(one, "cpu_simd") if one["suite"] == suite else None
            if time is not None:
                workspace = next(row.get("workspace_bytes", 0) for row in one["rows"]
                                 if row["implementation"] == "cpu_simd")
                found.append({"case": one["name"], "seconds": time, "gflop_per_second": 1e-9 * one["flop"] / time,
                              "peak_gflop_per_second": peak, "seqlen": one["seqlen_q"], "workspace_bytes": workspace,
                              "heads": one["batch"] * one["heads_q"],
                              "ns_per_pair": 1e9 * time / (one["batch"] * one["heads_q"] * one["seqlen_q"] ** 2),
                              "unfused_by_operator_seconds": seconds(one, "openblas_by_operator"),
                              "unfused_by_head_seconds": seconds(one, "openblas")})
        return found

    unfused = [row for row in of("cpu_peak") if row["unfused_by_operator_seconds"] and row["unfused_by_head_seconds"]]
    return evidence | {"clock": "processor time" if protocol == "processor" else "wall time", "peak": of("cpu_peak"),
                       "unfused": {"rows": unfused[::-1]}, "dtypes": of("cpu_dtypes"),
                       "scaling": {"seqlen": of("cpu_seqlens"), "heads": of("cpu_heads")},
                       "others": of("cpu_others") + of("cpu_dtypes")}


def column(name: str, evidence: dict) -> str:
    device = evidence["device"]
    clock = "" if evidence["clock"] == "wall time" else ", processor time"
    return cell(f"{device['name']}, {device['threads']} threads{clock}")


def peak_row(evidence: dict, case: str) -> str:
    row = next((row for row in evidence["peak"] if row["case"] == case), None)
    if row is None:
        return "-"
    share = 100 * row["gflop_per_second"] / row["peak_gflop_per_second"]
    return f"{row['gflop_per_second']:.0f} GFLOP/s, {share:.0f}%"


def dtype_row(evidence: dict, case: str) -> str:
    times = {row["case"].removeprefix(case).strip(): row["seconds"] for row in evidence["dtypes"]
             if row["case"].startswith(case)}
    if "f32" not in times:
        return "-"
    return ", ".join(f"{times[t] / times['f32']:.2f}" for t in ("bf16", "f16", "f8e4m3") if t in times)


def unfused_row(evidence: dict, how: str) -> str:
    rows = evidence["unfused"].get("rows", [])
    return " and ".join(f"{row[how] / row['seconds']:.1f}" for row in rows) + " times" if rows else "-"


def scaling_row(evidence: dict) -> str:
    rows = evidence["scaling"]["seqlen"]
    chosen = [rows[0], rows[2], rows[-1]] if len(rows) > 2 else rows
    return ", ".join(f"{row['ns_per_pair']:.3f} ({row['seqlen']})" for row in chosen)


def heads_row(evidence: dict) -> str:
    rows = [row for row in evidence["scaling"]["heads"] if row["heads"] in (4, 16, 64)]
    return ", ".join(f"{row['seconds'] * 1e3 / row['heads']:.3f}" for row in rows)


def workspace_row(evidence: dict) -> str:
    sizes = [row["workspace_bytes"] / 2**20 for row in evidence["scaling"]["seqlen"]]
    return f"{min(sizes):.1f} to {max(sizes):.1f} MiB"


def other_row(evidence: dict, case: str) -> str:
    row = next((row for row in evidence["others"] if row["case"] == case), None)
    return f"{row['seconds'] * 1e3:.2f} ms" if row else "-"


# The rows of the table: a title, and what makes a cell of the evidence and of a case or a column of it.
ROWS = (("fp32 (2,8,2048,128), share of the FMA peak (goal 60%)", peak_row, "(2, 8, 2048, 128) f32"),
        ("the same, D 64", peak_row, "(2, 8, 2048, 64) f32"),
        ("bf16 (2,8,2048,128), share of the fp32 peak", peak_row, "(2, 8, 2048, 128) bf16"),
        ("bf16, fp16, fp8 over fp32, time, (1,8,2048,128)", dtype_row, "(1, 8, 2048, 128)"),
        ("unfused, operator by operator, time, D 64 and 128 (goal 3)", unfused_row, "unfused_by_operator_seconds"),
        ("unfused, head by head, time, D 64 and 128", unfused_row, "unfused_by_head_seconds"),
        ("ns per pair, D 64, at S (quadratic: equal)", scaling_row),
        ("ms per head, S 1024, 4, 16, 64 heads (linear: equal)", heads_row),
        ("workspace over those S", workspace_row),
        ("(2,8,2048,128) causal, fp32", other_row, "(2, 8, 2048, 128) f32 causal"),
        ("(2,8,2048,128) causal, bf16", other_row, "(2, 8, 2048, 128) bf16 causal"),
        ("(1,8,512,64), fp32", other_row, "(1, 8, 512, 64) f32"),
        ("(1,8,512,64), bf16", other_row, "(1, 8, 512, 64) bf16"),
        ("decode, 32 over 8 heads, 8192 keys, D 128, fp32", other_row, "decode, 32 over 8 heads, 8192 keys, f32"),
        ("the same, bf16", other_row, "decode, 32 over 8 heads, 8192 keys, bf16"))


def goals(files: dict[str, dict]) -> str:
    rows = [[title, *(make(evidence, *case) for evidence in files.values())] for title, make, *case in ROWS]
    return table(["not causal unless said", *(column(*item) for item in files.items())], rows)


def parts(all_evidence: Evidence) -> dict:
    files = all_evidence.of_kind("cpu") | {
        name: of_bench(file) for name, file in all_evidence.of_kind("bench").items()
        if any(one["suite"] == "cpu_peak" for one in file["cases"])}
    return {"cpu goals": lambda: goals(files) if files else NOT_MEASURED, "cpu where": lambda: listed(files)}
