"""Evidence files: read, held to docs/evidence/schema.json, and asked whether they are still true."""
import functools
import json
import pathlib
import re

import fingerprint
try:
    import jsonschema
except ImportError as error:
    raise ImportError("jsonschema: is not here, wanted Debian's python3-jsonschema or PyPI's jsonschema") from error

from reporting.compact import whole

LARGEST_FILE = 64 << 20
SCHEMA_PATH = pathlib.Path(__file__).resolve().parents[2] / "docs/evidence/schema.json"
LONGEST_LINE = 100
STALE, NOT_MEASURED = " (stale)", "Not measured yet."
MACHINE_CODE = "machine_code.json"  # of a build folder
MACHINE_CODE_SCHEMA = {
    "type": "object", "required": ["nvcc", "functions"],
    "properties": {"nvcc": {"type": "string"},
                   "functions": {"type": "object", "additionalProperties": {
                       "type": "object", "additionalProperties": {"type": "string"}}},
                   "cases": {"type": "object"}}}
CODE_FINGERPRINT = re.compile(r"nvcc (\S+) (sm_\d+)((?: [0-9a-f]{16})+)")


class Failure(Exception):
    """A sentence for the person who ran this."""


def shown(value) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:60] + "..."


def standard(rule, definitions: dict):
    """The rule as JSON Schema has it: with what $ref names, and no other members than those that are listed."""
    if isinstance(rule, list):
        return [standard(one, definitions) for one in rule]
    if not isinstance(rule, dict):
        return rule
    if isinstance(rule.get("$ref"), str):
        return standard(definitions[rule["$ref"]], definitions)
    found = {name: standard(part, definitions) for name, part in rule.items()}
    if isinstance(found.get("properties"), dict):
        found.setdefault("additionalProperties", False)
    return found


def check(value, schema: dict, name: str = "") -> None:
    """Raises a Failure that begins with the place, in the value of this name."""
    check_by(jsonschema.Draft7Validator(standard(schema, {})), value, name)


def check_by(validator, value, name: str = "") -> None:
    error = next(validator.iter_errors(value), None)
    if error is None:
        return
    place = (name + error.json_path.removeprefix("$")).removeprefix(".")
    said = (error.message if error.validator in ("required", "additionalProperties") else
            f"is {shown(error.instance)}, wanted {error.validator} {shown(error.validator_value)}")
    raise Failure(f"{place}: {said}" if place else said)


@functools.cache
def validators() -> dict:
    """By kind of evidence; of what all have in common by no name."""
    schema = json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))
    common = schema["common"]
    rules = {"": common} | {kind: rule | {"properties": rule["properties"] | common["properties"],
                                          "required": common["required"] + rule["required"]}
                            for kind, rule in schema["kinds"].items()}
    return {kind: jsonschema.Draft7Validator(standard(rule, schema["definitions"])) for kind, rule in rules.items()}


def check_evidence(evidence) -> None:
    kind = evidence.get("kind", "") if isinstance(evidence, dict) else ""
    check_by(validators().get(kind, validators()[""]), evidence)


def refuse_constant(text: str):
    raise ValueError(f"{text} is no number of JSON")


def read(path: pathlib.Path) -> dict:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise Failure(f"{path}: has {path.stat().st_size} bytes, wanted at most {LARGEST_FILE}")
        evidence = whole(json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse_constant))
    except (OSError, ValueError, RecursionError) as error:
        raise Failure(f"{path}: cannot be read: {error}") from error
    try:
        check_evidence(evidence)
    except Failure as failure:
        raise Failure(f"{path}: {failure}") from failure
    add_rates(evidence)
    return evidence


def bound_us(one: dict, ceilings: dict) -> float:
    """The least time that the run's ceilings allow; 0 if none was measured for this type."""
    product = ceilings.get("matrix_product", {}).get(one["dtype"])
    copy = ceilings.get("copy_bytes_per_second")
    return max(one["flop"] / product["tflops"] * 1e-6 if product else 0, one["bytes"] / copy * 1e6 if copy else 0)


def add_rates(evidence: dict) -> None:
    """Adds what follows from the times, as bench/evidence/rates.cpp does: files leave it out."""
    for one in evidence["cases"] if evidence["kind"] in ("bench", "tuning") else []:
        if not one.keys() >= {"dtype", "flop", "bytes"}:
            continue
        for row in one["rows"]:
            for protocol, time in row["times"].items():
                time["tflops"] = rounded(one["flop"] / time["p50_us"] * 1e-6)
                if protocol in evidence.get("ceilings", {}):
                    add_ratios(row, time, one, protocol, evidence["ceilings"][protocol])


def add_ratios(row: dict, time: dict, one: dict, protocol: str, ceilings: dict) -> None:
    if bound := bound_us(one, ceilings):
        time["percent_of_bound"] = rounded(100 * bound / time["p50_us"])
    peers = {other["implementation"]: other["times"][protocol]["p50_us"] for other in one["rows"]
             if other["source"] == "peer" and protocol in other["times"]}
    if peers and row["source"] != "peer":
        time["fastest_peer"] = min(peers, key=peers.get)
        time["speedup_over_fastest_peer"] = rounded(peers[time["fastest_peer"]] / time["p50_us"])


def rounded(value):
    """Numbers that are not whole to six digits."""
    if isinstance(value, dict):
        return {name: rounded(member) for name, member in value.items()}
    if isinstance(value, list):
        return [rounded(member) for member in value]
    return float(f"{value:.6g}") if isinstance(value, float) and value % 1 else value


def text_of(document) -> str:
    """A row a line."""
    line = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    members = document.values() if isinstance(document, dict) else document
    if len(line) <= LONGEST_LINE or not any(isinstance(member, (dict, list)) for member in members):
        return line
    texts = [text_of(member) for member in members]
    if isinstance(document, dict):
        texts = [f"{json.dumps(name, ensure_ascii=False)}:{text}" for name, text in zip(document, texts, strict=True)]
    begin, end = "{}" if isinstance(document, dict) else "[]"
    return f"{begin}\n" + ",\n".join(texts) + f"\n{end}"


def write(path: pathlib.Path, evidence: dict) -> None:
    path.write_text(text_of(rounded(evidence)) + "\n", encoding="utf-8")


def read_machine_code(build: pathlib.Path | None) -> dict:
    """What tools/machine_code.py wrote about a build's functions; nothing where there is none."""
    path = build / MACHINE_CODE if build else None
    if path is None or not path.exists():
        return {"nvcc": "", "functions": {}}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        check(found, MACHINE_CODE_SCHEMA)
    except (OSError, ValueError, RecursionError) as error:
        raise Failure(f"{path}: cannot be read: {error}") from error
    except Failure as failure:
        raise Failure(f"{path}: {failure}") from failure
    return found


class Evidence:
    """All evidence of a tree, by the file's name, and the code that there is now."""

    def __init__(self, root: pathlib.Path, build: pathlib.Path | None = None):
        self.root = root
        self.files = {path.stem: read(path) for path in sorted((root / "docs/evidence").glob("*.json"))
                      if path.name != "schema.json"}
        self.sources = fingerprint.fingerprints(root)  # of CPU kernels
        self.code = read_machine_code(build)
        self.unchecked: set[str] = set()  # kernels that this build says nothing about
        self.unchecked_are_stale = False

    def of_kind(self, kind: str) -> dict[str, dict]:
        return {name: file for name, file in self.files.items() if file["kind"] == kind}

    def part(self, name: str, make):
        """A part of a page that comes from one file."""
        return lambda: make(self.files[name]) if name in self.files else NOT_MEASURED

    def each(self, kind: str, make):
        """A part of a page that comes from all files of a kind, one after the other."""
        return lambda: "\n\n".join(map(make, self.of_kind(kind).values())) or NOT_MEASURED

    def is_stale(self, kernel: str, measured: str) -> bool:
        """Whether code that a row ran is no more. What cannot be known is `unchecked`."""
        code = CODE_FINGERPRINT.fullmatch(measured)
        if code is None:
            return measured != self.sources.get(kernel)
        nvcc, target, digests = code.groups()
        if nvcc != self.code["nvcc"] or target not in self.code["functions"]:
            self.unchecked.add(kernel)
            return self.unchecked_are_stale
        now = {digest for other, by_name in self.code["functions"].items() if other[:-1] == target[:-1]
               for digest in by_name.values()}  # a GPU may have run code for an older one of its generation
        return not now.issuperset(digests.split())


def where(evidence: dict) -> str:
    """One line: which device, which build, when."""
    device, library = evidence.get("device") or {}, evidence["library"]
    parts = [device.get("name", "a device without a name in the file")]
    if device.get("driver"):
        parts += [f"driver {device['driver']}", f"CUDA {device['toolkit']}"]
    if device.get("cpu_target"):
        parts += [device["cpu_target"], f"{device['threads']} threads"]
    commit = library["commit"][:12]
    if commit:
        parts.append(f"commit {commit}" + (", with local changes" if library["modified"] else ""))
    return ", ".join(parts + [evidence["created"]]) + "."
