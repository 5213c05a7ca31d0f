"""The parts of docs/simulator.md, from the faults that its tests plant (sim/tests/kernel_faults/faults.py)."""
import collections
import pathlib
import sys

from reporting.text import cell, table

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "sim/tests/kernel_faults"


def injected() -> list:
    sys.path.insert(0, str(FOLDER))
    try:
        import faults
    finally:
        sys.path.remove(str(FOLDER))
    return faults.FAULTS


def title(fault) -> str:
    return cell(fault.name.replace("_", " "))


def by_kernel() -> str:
    """How many faults, by the folder of the first file that they change."""
    found: dict[str, list] = collections.defaultdict(list)
    for fault in injected():
        found[fault.edits[0][0].split("/")[1]].append(fault)

    def row(name: str, those: list) -> list[str]:
        return [name, str(len(those)), str(sum(fault.reported is not None for fault in those)),
                str(sum(not fault.more for fault in those))]

    rows = [row(f"`{folder}`", those) for folder, those in sorted(found.items())]
    return table(["changes", "faults", "found", "tried by CTest"], [*rows, row("all", injected())])


def mended() -> str:
    """Those that this project had, with the commits that mended them."""
    rows = [[title(fault), fault.commit, "nothing" if fault.reported is None else
             "a wrong result" if fault.reported == "FAILED" else cell(fault.reported)]
            for fault in injected() if fault.commit]
    return table(["fault", "mended in", "the simulator says"], rows, left=3)


def not_found() -> str:
    return "\n".join(f"- {title(fault)}: {cell(fault.why)}." for fault in injected() if fault.reported is None)


def parts() -> dict:
    return {"injected faults": by_kernel, "mended faults": mended, "faults not found": not_found}
