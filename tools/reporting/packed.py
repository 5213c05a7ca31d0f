"""The table of packed batches beside dense ones, from the evidence of tools/packed_times.py."""
from reporting.evidence import Evidence, where
from reporting.text import cell, code, cut_short, table, us

# The least share of the dense rate (issue 14). Equal entries: 1.03 times the dense batch's time at most.
EQUAL_GOAL, UNEQUAL_GOAL = 1 / 1.03, 0.95
FORMS = {"max_seqlen": "with max_seqlen", "no max_seqlen": "without"}


def pairs(lengths: list[dict], causal: bool) -> int:
    """Visible pairs of a query and a key of one head."""
    return sum(one["entries"] * (one["seqlen"] * (one["seqlen"] + 1) // 2 if causal
                                 else one["seqlen"] ** 2) for one in lengths)


def times(row: dict) -> dict[str, float]:
    return {point["form"]: point["p50_us"] for point in row["points"]}


def shares(row: dict) -> dict[str, float]:
    """Of each packed form: its pairs per second over those of the dense batch."""
    found = times(row)
    work = pairs(row["lengths"], row["causal"]) / pairs(row["dense"], row["causal"])
    return {form: work * found["dense"] / found[form] for form in FORMS
            if form in found and "dense" in found}


def goal(row: dict) -> float:
    return EQUAL_GOAL if len(row["lengths"]) == 1 else UNEQUAL_GOAL


def verdict(row: dict) -> str:
    met = all(share >= goal(row) for share in shares(row).values())
    return f"{100 * goal(row):.0f}%, {'met' if met else 'not met'}"


def line(row: dict) -> str:
    """What the tool prints."""
    found, of_dense = times(row), shares(row)
    forms = ", ".join(f"{name} {us(found[form])} us, {100 * of_dense[form]:.1f}% of the dense rate"
                      for form, name in FORMS.items() if form in of_dense)
    return (f"{row['batch']}, D {row['head_dim']}{', causal' if row['causal'] else ''}: "
            f"dense {us(found.get('dense'))} us, {forms}, goal {verdict(row)}")


def lines(row: dict, is_stale) -> list[str]:
    found, of_dense = times(row), shares(row)
    kernels = {point["kernel"]: is_stale(point["kernel"], point["fingerprint"])
               for point in row["points"]}
    cells = []
    for form in FORMS:
        share = f"{100 * of_dense[form]:.1f}%" if form in of_dense else "-"
        cells += [us(found.get(form)), share]
    return [cell(row["batch"]) + (", causal" if row["causal"] else ""), str(row["head_dim"]),
            ", ".join(code(name, stale) for name, stale in kernels.items()),
            us(found.get("dense")), *cells, verdict(row)]


def text(all_evidence: Evidence, evidence: dict) -> str:
    begin = (f"{where(evidence)} {evidence['heads']} heads, {evidence['dtype']}; "
             f"{evidence['protocol']}.{cut_short(evidence, 'rows')}")
    header = ["batch", "head_dim", "kernel", "dense, us"]
    for name in FORMS.values():
        header += [f"{name}, us", "of the dense rate"]
    rows = [lines(row, all_evidence.is_stale) for row in evidence["rows"]]
    return f"{cell(begin)}\n\n{table([*header, 'goal'], rows)}"


def parts(all_evidence: Evidence) -> dict:
    return {"packed": all_evidence.each("packed", lambda file: text(all_evidence, file))}
