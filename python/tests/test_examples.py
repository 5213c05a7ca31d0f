"""Runs the examples, each as a user would start it."""

import pathlib

import pytest
from process import python

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


def run(*arguments):
    done = python(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_attention_maps(tmp_path):
    printed = run(EXAMPLES / "attention_maps.py", "--out", tmp_path)
    assert "causal           rows sum to 1.000 ... 1.000" in printed
    assert "flashcore  " in printed
    if "no picture" not in printed:
        assert (tmp_path / "attention_maps.png").stat().st_size > 10_000


def test_drop_in():
    pytest.importorskip("torch")
    differences = [line for line in run(EXAMPLES / "drop_in.py").splitlines() if "largest" in line]
    assert len(differences) >= 2
    assert all(float(line.split()[-1]) < 5e-3 for line in differences)


def test_context_parallel():
    pytest.importorskip("torch")
    lines = run(EXAMPLES / "context_parallel.py", "--tokens", 201, "--ranks", 3).splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["ring", "all_gather", "ulysses"]
    differences = [float(line.split()[-1]) for line in lines[3:]]
    assert len(differences) == 4
    assert max(differences) < 1e-4


def test_train_gpt():
    pytest.importorskip("torch")
    printed = run(EXAMPLES / "train_gpt.py", "--steps", 12, "--context", 40, "--batch", 2)
    losses = [line.split()[-2:] for line in printed.splitlines() if line.startswith("loss")]
    assert len(losses) == 7
    assert all(float(ours) == pytest.approx(float(theirs), abs=2e-3) for ours, theirs in losses)
    assert float(losses[-1][0]) < float(losses[0][0])
    assert "memory, MB" in printed


@pytest.mark.parametrize("seed", [0, 1])
def test_serving(seed):
    printed = run(EXAMPLES / "serving.py", "--requests", 12, "--pages", 32, "--seed", seed)
    assert "12 of 12 requests have the tokens of a computation from scratch" in printed
    assert " 0 put back" not in printed


def test_serving_on_a_device(torch_device):
    printed = run(
        EXAMPLES / "serving.py", "--requests", 12, "--pages", 32, "--device", torch_device
    )
    assert "12 of 12 requests have the tokens of a computation from scratch" in printed
    assert " 0 put back" not in printed


def test_server():
    """Few pages, so that requests wait for them."""
    pytest.importorskip("aiohttp")
    printed = run(EXAMPLES / "server_load.py", "--seconds", 3, "--pages", 40)
    assert printed.endswith("all is well\n")


def test_server_on_a_device(torch_device):
    pytest.importorskip("aiohttp")
    printed = run(EXAMPLES / "server_load.py", "--seconds", 2, "--device", torch_device)
    assert printed.endswith("all is well\n")


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_examples_of_the_pages(page):
    text = (EXAMPLES.parent / page).read_text()
    blocks = [part.split("```")[0] for part in text.split("```python\n")[1:]]
    numpy_only = [block for block in blocks if "import numpy" in block]
    assert numpy_only
    for block in numpy_only:
        run("-c", block)
