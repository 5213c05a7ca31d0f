"""Parses the output of ptxas -v for the kernels of one object file."""
import dataclasses
import re

# ptxas warnings that a fast path was dropped: wgmma serialised, setmaxnreg ignored, and similar.
ALARMS = ("C7507", "C7508", "C7510", "C7511", "C7512", "C7513", "C7514", "C7515", "C7516", "C7517",
          "C7518", "C7519")

_ENTRY = re.compile(r"Compiling entry function '(\S+)' for '(\S+)'")
_PROPERTIES = re.compile(r"Function properties for (\S+)")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_ALARM = re.compile(r"\b(" + "|".join(ALARMS) + r")\b")


@dataclasses.dataclass
class Kernel:
    """Resources of one kernel on one target, in bytes except for the registers."""
    name: str    # mangled
    target: str  # "sm_90a"
    registers: int | None = None
    stack: int | None = None
    spill_stores: int | None = None
    spill_loads: int | None = None
    static_shared: int = 0

    @property
    def complete(self) -> bool:
        return None not in (self.registers, self.stack, self.spill_stores, self.spill_loads)

    @property
    def spills(self) -> int:
        return (self.spill_stores or 0) + (self.spill_loads or 0)


def parse(report: str) -> list[Kernel]:
    """Returns the kernels of a report, in order. One that ptxas did not finish is not `complete`."""
    kernels: list[Kernel] = []
    about = None  # the function that a line of properties belongs to
    for line in report.splitlines():
        if match := _ENTRY.search(line):
            kernels.append(Kernel(match[1], match[2]))
            about = match[1]
        elif match := _PROPERTIES.search(line):
            about = match[1]
        elif not kernels:
            continue
        elif match := _STACK.search(line):
            if about == kernels[-1].name:
                kernels[-1].stack, kernels[-1].spill_stores, kernels[-1].spill_loads = (
                    int(match[1]), int(match[2]), int(match[3]))
        elif match := _USED.search(line):
            kernels[-1].registers = int(match[1])
            if shared := _SHARED.search(line):
                kernels[-1].static_shared = int(shared[1])
    return kernels


def alarms(report: str) -> list[str]:
    """Returns the lines with a warning of ALARMS."""
    return [line.strip() for line in report.splitlines() if _ALARM.search(line)]
