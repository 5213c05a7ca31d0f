"""Tuning by running a program: records the problems that it plans, and tunes them at the end.

The `flashcore` command does the measuring, so that the package needs no copy of it.
"""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from typing import Any

from ._errors import Error, InvalidArgumentError, UnsupportedError
from ._layout import device_name
from ._library import Problem, library, version
from ._plan import Request, cache, observers

_TOP_LEFT, _BOTTOM_RIGHT = 0, 1
_SHORT = ("f32", "f16", "bf16", "f8e4m3", "f8e5m2")  # by the library's dtype code
# Properties that a case of `flashcore tune` cannot express.
_NOT_RECORDED = (
    "q_scale",
    "k_scale",
    "v_scale",
    "o_scale",
    "amax_o",
    "amax_s",
    "max_logit",
    "seqlens_q",
    "causal_offsets",
    "dropout_state",
    "kv_indptr",
    "kv_last_page_len",
    "cache_leftpad",
    "tree_mask",
)


class Tuning:
    """The recorded problems and the measurements of a `tune` block."""

    def __init__(self) -> None:
        self.cases: list[
            dict[str, Any]
        ] = []  #: The problems, as cases of `flashcore tune --cases`.
        self.skipped: Counter[str] = Counter()  #: Problems that cannot be cases, by reason.
        self.reports: list[dict[str, Any]] = []  #: The command's output, one per device.
        self._groups: dict[tuple[str, int, bool], list[dict[str, Any]]] = {}
        self._seen: set[str] = set()

    def _observe(self, problem: Problem, request: Request, backward: bool) -> None:
        options = request.options
        if options.batch_invariant:
            self.skipped["batch_invariant: such a choice does not go by times"] += 1
            return
        case = _case(problem)
        if isinstance(case, str):
            self.skipped[case] += 1
            return
        if backward:
            case["backward"] = True
        deterministic = bool(options.deterministic) or not backward
        group = (device_name(request.q.device), int(options.threads), deterministic)
        text = json.dumps([group, case])
        if text in self._seen:
            return
        self._seen.add(text)
        case = {"name": f"problem {len(self.cases)}", **case}
        self.cases.append(case)
        self._groups.setdefault(group, []).append(case)


@contextlib.contextmanager
def tune(
    *,
    seconds: float = 0,
    out: str | os.PathLike[str] | None = None,
    cases: str | os.PathLike[str] | None = None,
    command: str | os.PathLike[str] | None = None,
) -> Iterator[Tuning]:
    """Records the problems of the calls in a `with` block, and tunes them when it ends.

    >>> with flashcore.tune(seconds=60):
    ...     model(batch)

    Each problem's fastest kernel and config are measured and go into a table, which later plans
    use, in this process and later ones (docs/tuning.md). After an exception nothing is tuned.

    Arguments
        seconds: time limit per device; an unfinished problem is dropped; 0: no limit.
        out: the table; default: the path in FLASHCORE_TUNING, or the user's cache folder.
        cases: write the problems to this file for `flashcore tune --cases`, and tune nothing.
        command: the `flashcore` command; default FLASHCORE_COMMAND, or the one on PATH.

    Yields
        a Tuning: its `cases`, `skipped` (problems that no case can express, and why) and, after
        the block, `reports`.
    """
    if not seconds >= 0:
        raise InvalidArgumentError(f"seconds: is {seconds}, wanted 0 or more")
    if cases is not None:
        for name, value in (("seconds", seconds or None), ("out", out), ("command", command)):
            if value is not None:
                raise InvalidArgumentError(f"{name}: is given with cases, wanted one of them")
    program = _command(command) if cases is None else ""
    tuning = Tuning()
    cache.clear()  # plans every problem again, so that it is seen
    observers.append(tuning._observe)
    try:
        yield tuning
    finally:
        observers.remove(tuning._observe)
    if cases is not None:
        pathlib.Path(cases).write_text(_cases_text(tuning.cases), encoding="utf-8")
        return
    for group, problems in tuning._groups.items():
        tuning.reports.append(_run(program, group, problems, seconds, out))
    library.flashcore_reload_tuning()
    cache.clear()


def _case(problem: Problem) -> dict[str, Any] | str:
    """Returns a problem as a case, or the reason why it cannot be one."""
    q, k, v = problem.q, problem.k, problem.v
    for name in _NOT_RECORDED:
        if getattr(problem, name).rank:
            return f"{name}: no case has it"
    if problem.alignment not in (_TOP_LEFT, _BOTTOM_RIGHT):
        return "alignment: is 'given', wanted top_left or bottom_right"
    if problem.o.dtype != q.dtype:
        return "out_dtype: is not q's"
    if problem.v_transposed:
        return "v_transposed: no case has it"
    packed, paged = problem.cu_seqlens_q.rank > 0, problem.page_table.rank > 0
    if packed and paged:
        return "cu_seqlens_q: is given with pages"
    case: dict[str, Any] = {"dtype": _SHORT[q.dtype], "heads_q": q.shape[1], "heads_kv": k.shape[1]}
    if packed:
        batch = problem.cu_seqlens_q.shape[0] - 1
        if batch < 1:
            return "cu_seqlens_q: has no entry"
        case |= {"packed": True, "batch": batch, "head_dim": q.shape[2]}
        head_dim_v = v.shape[2]
        for side, tensor in (("q", q), ("kv", k)):
            mean = -(-tensor.shape[0] // batch)
            case[f"seqlen_{side}"] = mean
            longest = getattr(problem, f"max_seqlen_{side}")
            # A case's entries have equal lengths, and a declared maximum may not be below them.
            case[f"max_seqlen_{side}"] = max(longest, mean) if longest else mean * batch
    else:
        case |= {"batch": q.shape[0], "head_dim": q.shape[3], "seqlen_q": q.shape[2]}
        head_dim_v = v.shape[3]
        case["seqlen_kv"] = k.shape[2]
        if paged:
            case["page_size"] = k.shape[2]
            most = problem.page_table.shape[1] * k.shape[2]
            case["seqlen_kv"] = problem.max_seqlen_kv or most
        elif problem.seqlens_kv.rank:
            case["ragged"] = True
    if head_dim_v != case["head_dim"]:
        case["head_dim_v"] = head_dim_v
    if min(value for value in case.values() if type(value) is int) < 1:
        return "q or k: has no element"
    if k.dtype != q.dtype:
        case["kv_dtype"] = _SHORT[k.dtype]
    if v.dtype != k.dtype:
        case["v_dtype"] = _SHORT[v.dtype]
    if problem.causal:
        case["causal"] = True
    if problem.alignment == _TOP_LEFT:
        case["top_left"] = True
    if problem.window_left >= 0 or problem.window_right >= 0:
        case["window"] = [problem.window_left, problem.window_right]
    if problem.softcap > 0:
        case["softcap"] = problem.softcap
    if problem.dropout_p > 0:
        case["dropout"] = problem.dropout_p
    if problem.bias.rank:
        case["bias"] = _SHORT[problem.bias.dtype]
    for name, word in (("mask", "mask"), ("alibi_slopes", "alibi"), ("sinks", "sinks")):
        if getattr(problem, name).rank:
            case[word] = True
    return case


def _cases_text(cases: list[dict[str, Any]]) -> str:
    return json.dumps({"schema": "flashcore-cases", "version": 1, "cases": cases}, indent=1) + "\n"


def _command(given: str | os.PathLike[str] | None) -> str:
    named = given or os.environ.get("FLASHCORE_COMMAND") or "flashcore"
    program = shutil.which(os.fspath(named))
    if program is None:
        raise UnsupportedError(
            f"command: {os.fspath(named)!r} is not there, wanted the `flashcore` command of this "
            "version, on PATH or in FLASHCORE_COMMAND; or cases=FILE, to tune later"
        )
    said = subprocess.run([program, "info", "--json"], capture_output=True, text=True, check=False)
    try:
        found = json.loads(said.stdout)["version"]
    except (ValueError, KeyError, TypeError):
        found = "something else"
    if found != version():
        raise UnsupportedError(
            f"command: {program} is of version {found}, wanted {version()}, that of this package"
        )
    return program


def _run(
    program: str,
    group: tuple[str, int, bool],
    cases: list[dict[str, Any]],
    seconds: float,
    out: str | os.PathLike[str] | None,
) -> dict[str, Any]:
    device, threads, deterministic = group
    with tempfile.TemporaryDirectory(prefix="flashcore-") as folder:
        file = pathlib.Path(folder) / "cases.json"
        file.write_text(_cases_text(cases), encoding="utf-8")
        words = [program, "tune", "--json", "--cases", str(file), "--device", device]
        words += ["--threads", str(threads), "--seconds", str(seconds)]
        words += [] if out is None else ["--out", os.fspath(out)]
        words += [] if deterministic else ["--any-order"]
        # stderr is not captured: it shows the command's progress.
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        try:
            message = json.loads(done.stdout)["message"]
        except (ValueError, KeyError, TypeError):
            message = f"it exited with {done.returncode}"
        raise Error(f"flashcore tune: {message}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report
