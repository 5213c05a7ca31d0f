"""A fault that inject.py injects: what it changes, what shows it, what the simulator says."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Fault:
    name: str
    unit: str  # the translation unit to compile, by the end of its path
    arguments: list  # of flashcore
    edits: list  # of (file below src/, what it says, what it says with the fault)
    reported: str | None  # what the simulator says, or None: it says nothing
    commit: str = ""  # which mended the fault, where this project had it
    why: str = ""  # why the simulator says nothing
    more: bool = False  # only tried with --all: others like it are tried always


def problem(kernel, *options, seed=5):
    return ["run", "--device", "sim", "--check", "--no-time", "--kernel", kernel, "--sim-seed",
            str(seed), *" ".join(options).split()]
