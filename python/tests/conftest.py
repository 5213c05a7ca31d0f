"""Shared fixtures; with FLASHCORE_EVIDENCE=FILE, records the tests that ran and their results."""

import os

import evidence
import numpy as np
import pytest

import flashcore

os.environ["FLASHCORE_TUNING"] = (
    "none"  # choices are the library's own, independent of this machine
)

_outcomes: dict[str, str] = {}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def way(request, monkeypatch):
    """One of frameworks.py."""
    return request.param(monkeypatch)


@pytest.fixture
def calls_of(monkeypatch):
    """Returns a list that has the arguments of each later call of a function of a module."""

    def watch(owner, name):
        seen, function = [], getattr(owner, name)

        def watched(*arguments, **options):
            seen.append((arguments, options))
            return function(*arguments, **options)

        monkeypatch.setattr(owner, name, watched)
        return seen

    return watch


@pytest.fixture
def torch_seeded():
    """Resets PyTorch's generator, and disables gradients unless a test enables them."""
    import torch

    torch.manual_seed(0)
    with torch.no_grad():
        yield


@pytest.fixture
def one_thread():
    """PyTorch computes with one thread: more do not help tiny models."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def torch_device(request):
    """A PyTorch device; skips the test if it is not there."""
    torch = pytest.importorskip("torch")
    if request.param == "cuda" and not (
        torch.cuda.is_available() and flashcore.build_info()["cuda"]
    ):
        pytest.skip("needs a GPU")
    return request.param


@pytest.fixture(scope="module")
def pool():
    """Four processes, see ranks.py."""
    import ranks

    found = ranks.Ranks(4)
    yield found
    found.close()


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: runs on a GPU; skipped, or not there, without one")
    config.addinivalue_line("markers", "compiles: calls torch.compile, which takes seconds")
    config.addinivalue_line("markers", "slow: runs where FLASHCORE_TEST_RUN is long")


def pytest_collection_modifyitems(items):
    """Starts the longest tests first, so that several workers end together."""
    if os.environ.get("FLASHCORE_TEST_RUN") != "long":
        for item in items:
            if item.get_closest_marker("slow") is not None:
                item.add_marker(pytest.mark.skip(reason="slow: FLASHCORE_TEST_RUN is not long"))
    items.sort(key=lambda item: item.get_closest_marker("compiles") is None)


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        _outcomes[report.nodeid] = report.outcome


@pytest.hookimpl(tryfirst=True)  # before anything that may take time
def pytest_sessionfinish(session, exitstatus):
    path = os.environ.get("FLASHCORE_EVIDENCE")
    if not path or hasattr(session.config, "workerinput"):  # the main process writes for all
        return
    counts = dict.fromkeys(("passed", "failed", "skipped"), 0)
    for outcome in _outcomes.values():
        counts[outcome] += 1
    complete = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    tests = {"counts": counts, "outcomes": dict(sorted(_outcomes.items()))}
    evidence.write(path, evidence.frame("python_tests", complete) | tests)
