"""flashcore.tune: the problems of a program become cases, and the command makes a table."""

import json
import os
import pathlib
import shutil

import numpy as np
import pytest

import flashcore


def draw(*shape, dtype=np.float32):
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def command():
    """Returns the built command, or None: the wheel does not include it."""
    root = pathlib.Path(__file__).parents[2]
    named = os.environ.get("FLASHCORE_COMMAND") or next(
        (str(path) for path in sorted(root.glob("build*/bin/flashcore"))), "flashcore"
    )
    return shutil.which(named)


def record(path, run):
    with flashcore.tune(cases=path) as tuning:
        run()
    assert json.loads(path.read_text())["cases"] == tuning.cases
    return tuning


def test_problems_of_a_run_become_cases(tmp_path):
    q, k = draw(2, 8, 40, 16), draw(2, 2, 72, 16)

    def run():
        for _ in range(2):
            flashcore.attention(q, k, k, causal=True, softcap=30.0, window=(16, 0))
        flashcore.attention(q, k, draw(2, 2, 72, 32), bias=draw(1, 8, 40, 72), sinks=draw(8))
        flashcore.attention_backward(q, q, k, k)

    tuning = record(tmp_path / "cases.json", run)
    plain = {
        "dtype": "f32",
        "heads_q": 8,
        "heads_kv": 2,
        "batch": 2,
        "head_dim": 16,
        "seqlen_q": 40,
        "seqlen_kv": 72,
    }
    found = [
        {name: value for name, value in case.items() if name != "name"} for case in tuning.cases
    ]
    assert plain | {"causal": True, "window": [16, 0], "softcap": 30.0} in found
    assert plain | {"head_dim_v": 32, "bias": "f32", "sinks": True} in found
    assert plain | {"backward": True} in found
    assert len({case["name"] for case in tuning.cases}) == len(tuning.cases)


def test_packed_batches_and_lengths_become_cases(tmp_path):
    starts = np.array([0, 10, 30], np.int32)
    q = draw(30, 4, 16)

    def run():
        flashcore.attention(
            q, q, q, cu_seqlens_q=starts, cu_seqlens_kv=starts, max_seqlen_q=20, max_seqlen_kv=20
        )
        x = draw(2, 4, 24, 16)
        flashcore.attention(x, x, x, seqlens_kv=np.array([3, 24], np.int32))

    tuning = record(tmp_path / "cases.json", run)
    packed, ragged = tuning.cases
    assert packed["packed"]
    assert packed["batch"] == 2
    assert packed["seqlen_q"] == 15
    assert packed["max_seqlen_q"] == 20
    assert ragged["ragged"]
    assert ragged["seqlen_kv"] == 24


def test_what_no_case_can_say_is_counted(tmp_path):
    x = draw(2, 4, 24, 16)
    tuning = record(
        tmp_path / "cases.json",
        lambda: (
            flashcore.attention(x, x, x, seqlens_q=np.array([3, 24], np.int32)),
            flashcore.attention(x, x, x, batch_invariant=True),
        ),
    )
    assert tuning.cases == []
    assert sum(tuning.skipped.values()) == 2
    assert any(reason.startswith("seqlens_q") for reason in tuning.skipped)


def fail_within(path):
    with flashcore.tune(cases=path):
        flashcore.attention(*[draw(1, 1, 8, 8)] * 3)
        raise ZeroDivisionError


def test_nothing_is_recorded_outside_or_after_an_exception(tmp_path):
    path = tmp_path / "cases.json"
    with pytest.raises(ZeroDivisionError):
        fail_within(path)
    assert not path.exists()
    with flashcore.tune(cases=path) as tuning:
        pass
    flashcore.clear_plans()
    flashcore.attention(*[draw(1, 1, 8, 8)] * 3)
    assert tuning.cases == []


@pytest.mark.parametrize(
    ("keywords", "error", "sentence"),
    [
        ({"command": "/none"}, flashcore.UnsupportedError, "wanted the `flashcore` command"),
        ({"command": "true"}, flashcore.UnsupportedError, "is of version something else"),
        ({"seconds": -1}, flashcore.InvalidArgumentError, "seconds: is -1"),
        *(
            ({"cases": "/none", name: value}, flashcore.InvalidArgumentError, f"{name}: is given")
            for name, value in (("seconds", 1), ("out", "/none"), ("command", "true"))
        ),
    ],
)
def test_what_cannot_be_tuned_is_refused_before_the_run(keywords, error, sentence):
    with pytest.raises(error, match=sentence):
        flashcore.tune(**keywords).__enter__()


@pytest.mark.skipif(command() is None, reason="there is no built flashcore command")
def test_a_run_is_tuned_and_later_plans_go_by_the_table(tmp_path, monkeypatch):
    table = tmp_path / "table.json"
    monkeypatch.setenv("FLASHCORE_TUNING", str(table))
    x = draw(1, 2, 192, 32)
    with flashcore.tune(seconds=10, command=command()) as tuning:
        flashcore.attention(x, x, x, causal=True, threads=1)
    (report,) = tuning.reports
    assert report["measured"] == 1
    assert report["table"] == str(table)
    notes = [one["note"] for one in flashcore.explain(x, x, x, causal=True, threads=1)]
    assert any(f"(tuning table {table})" in note for note in notes) or any(
        "its source has changed" in note for note in notes
    )
    flashcore.attention(x, x, x, causal=True, threads=1)
