"""The common part of an evidence file (docs/evidence/schema.json): commands, machine, sources."""

import datetime
import hashlib
import importlib.metadata
import json
import os
import pathlib
import platform
import subprocess
import tokenize

_PACKAGES = ("numpy", "ml_dtypes", "torch", "jax", "cupy-cuda13x", "transformers")


def code_of(path: pathlib.Path) -> bytes:
    """Returns a Python file without comments, empty lines and trailing spaces."""
    with path.open("rb") as file:
        tokens = list(tokenize.tokenize(file.readline))
    comments = [token.start for token in tokens if token.type == tokenize.COMMENT]
    lines = path.read_text(encoding="utf-8").splitlines()
    for line, column in comments:
        lines[line - 1] = lines[line - 1][:column]
    return "".join(f"{line.rstrip()}\n" for line in lines if line.strip()).encode()


def fingerprint(package: pathlib.Path) -> str:
    """The hash of the package's Python files; tools/reporting/python.py compares it."""
    digest = hashlib.sha256()
    for path in sorted(package.glob("*.py")):
        digest.update(code_of(path) + b"\0")
    return "source " + digest.hexdigest()[:16]


def _git(*arguments: str) -> str | None:
    run = subprocess.run(
        ["git", "-C", str(pathlib.Path(__file__).parent), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    return run.stdout.strip() if run.returncode == 0 else None


def _commit() -> tuple[str, bool]:
    """Returns the commit and whether it has changes; FLASHCORE_COMMIT replaces a checkout."""
    named = os.environ.get("FLASHCORE_COMMIT")
    if named:
        return named.removesuffix("+"), named.endswith("+")
    try:
        return _git("rev-parse", "HEAD") or "", bool(_git("status", "--porcelain", "-uno"))
    except OSError:
        return "", False


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def common(
    kind: str, complete: bool, library: dict[str, object], host: dict[str, object]
) -> dict[str, object]:
    """Returns what all evidence has."""
    named, modified = _commit()
    return {
        "schema": "flashcore-evidence",
        "version": 1,
        "kind": kind,
        "complete": complete,
        "created": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "library": library | {"commit": named, "modified": modified},
        "host": host,
    }


def frame(kind: str, complete: bool) -> dict[str, object]:
    import flashcore  # the tools read fingerprints without it

    devices = flashcore.devices()
    build = flashcore.build_info()
    library = {name: build[name] for name in ("version", "compiler", "cuda_targets")}
    host = {"processor": devices[0]["name"], "threads": devices[0]["multiprocessors"]}
    return common(kind, complete, library, host) | {
        "device": {"name": devices[-1]["name"]},
        "versions": _versions(),
        "fingerprint": fingerprint(pathlib.Path(flashcore.__file__).parent),
    }


def write(path: str, evidence: dict[str, object]) -> None:
    pathlib.Path(path).write_text(json.dumps(evidence, indent=1) + "\n")
