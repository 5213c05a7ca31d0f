"""What the tests share; and with FLASHCORE_EVIDENCE=FILE, what ran, where, and how it ended."""

import datetime
import importlib.metadata
import json
import os
import pathlib
import platform

import numpy as np
import pytest

import flashcore

_outcomes: dict[str, str] = {}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: runs on a GPU; skipped, or not there, without one")
    config.addinivalue_line("markers", "compiles: calls torch.compile, which takes seconds")


def pytest_collection_modifyitems(items):
    """What takes longest begins first, so that several workers end together."""
    items.sort(key=lambda item: item.get_closest_marker("compiles") is None)


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        _outcomes[report.nodeid] = report.outcome


def _versions():
    found = {"python": platform.python_version(), "flashcore": flashcore.version()}
    for name in ("numpy", "torch", "jax", "cupy-cuda13x", "transformers"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


@pytest.hookimpl(tryfirst=True)  # before anything that may take its time
def pytest_sessionfinish(session):
    path = os.environ.get("FLASHCORE_EVIDENCE")
    if not path or hasattr(session.config, "workerinput"):  # one of several: the first one writes
        return
    counts: dict[str, int] = {}
    for outcome in _outcomes.values():
        counts[outcome] = counts.get(outcome, 0) + 1
    evidence = {
        "what": "python/tests, as pytest ran them",
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "versions": _versions(),
        "library": flashcore.build_info(),
        "devices": flashcore.devices(),
        "counts": counts,
        "tests": dict(sorted(_outcomes.items())),
    }
    pathlib.Path(path).write_text(json.dumps(evidence, indent=1) + "\n")
