"""Reads the CUDA kernels' descriptions: src/cuda/**/kernel.json.

    name           name of the family: what is compiled for the same targets
    targets        its compilation targets (src/cuda/families.cmake reads them)
    kernels        names under which it runs in evidence, each with
                     color          colour in plots
                     fills_the_gpu  true for kernels for problems that fill the GPU; others are left out of the
                                    sweep's tables
    code_kb        the most device code for one target, in KB
    budgets        limits for its functions, first match first: registers per thread; bytes of spills, stack and
                   shared memory per block. `files` are object names and `kernels` mangled names of functions,
                   with wildcards; static_only: no variant of the table launches it, so only its static shared
                   memory counts
    instances      its compiled kernels (tools/instances.py)
"""
import dataclasses
import fnmatch
import json
import pathlib

from reporting.evidence import Failure, check

ROOT = pathlib.Path(__file__).resolve().parents[1]
NAMES = {"type": "array", "items": {"type": "string"}}
SCHEMA = {
    "type": "object", "required": ["name", "targets", "kernels", "code_kb", "budgets"],
    "properties": {"name": {"type": "string"}, "targets": NAMES, "about": {"type": "string"},
                   "kernels": {"type": "object", "additionalProperties": {
                       "type": "object", "properties": {"color": {"type": "string"},
                                                        "fills_the_gpu": {"type": "boolean"}}}},
                   "code_kb": {"type": "integer", "minimum": 1}, "instances": {"type": "object"},
                   "budgets": {"type": "array", "items": {
                       "type": "object",
                       "required": ["targets", "registers", "spills", "stack", "shared"],
                       "properties": {"files": {"type": "string"}, "kernels": {"type": "string"}, "targets": NAMES,
                                      "static_only": {"type": "boolean"}}
                       | dict.fromkeys(("registers", "spills", "stack", "shared"), {"type": "integer", "minimum": 0}),
                   }}}}


@dataclasses.dataclass
class Folder:
    path: str  # below src/cuda
    name: str
    kernels: dict[str, dict]
    code_kb: int
    budgets: list[dict]

    def object_name(self, file: str) -> str | None:
        """Returns the name in this folder of an object below src/cuda ("generated/forward_sm90/latency/a"), or None."""
        for before in (f"{self.path}/", f"generated/{self.path}/"):
            if file.startswith(before):
                return file.removeprefix(before)
        return None

    def budget(self, file: str, kernel: str, target: str) -> dict | None:
        name = self.object_name(file)
        return next((one for one in self.budgets if name is not None and
                     fnmatch.fnmatchcase(name, one.get("files", "*")) and
                     fnmatch.fnmatchcase(kernel, one.get("kernels", "*")) and
                     any(fnmatch.fnmatchcase(target, its) for its in one["targets"])), None)


def folders(root: pathlib.Path = ROOT) -> list[Folder]:
    base = root / "src/cuda"
    found = []
    for path in sorted(base.rglob("kernel.json")):
        said = json.loads(path.read_text(encoding="utf-8"))
        try:
            check(said, SCHEMA)
        except Failure as failure:
            raise Failure(f"{path}: {failure}") from failure
        found.append(Folder(path.parent.relative_to(base).as_posix(), said["name"], said["kernels"],
                            said["code_kb"], said["budgets"]))
    return found
