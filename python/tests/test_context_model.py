"""tools/context_model.py says what the planner predicts, on one kind of link."""

import importlib.util
import pathlib
import sys

import pytest

from flashcore._context import ALGORITHMS, LAYOUTS, What, make_context_plan

PATH = pathlib.Path(__file__).resolve().parents[2] / "tools" / "context_model.py"


@pytest.fixture(scope="module")
def model():
    spec = importlib.util.spec_from_file_location("context_model", PATH)
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found  # where its dataclasses look
    spec.loader.exec_module(found)
    return found


@pytest.mark.parametrize("tokens", [4096, 262144])
@pytest.mark.parametrize("world", [2, 4, 8, 16, 64])
def test_the_planner_predicts_the_same(model, world, tokens):
    setting = model.Setting(tokens=tokens, near=50e9, far=50e9)
    what = What(
        world=world,
        layout=LAYOUTS["zigzag"],
        algorithm=ALGORITHMS["automatic"],
        seqlens_q=(tokens,),
        seqlens_kv=(tokens,),
        causal=True,
        heads_q=setting.heads,
        heads_kv=setting.heads_kv,
        head_dim_qk=setting.head_dim,
        head_dim_v=setting.head_dim,
        element_bytes=setting.element_bytes,
        link_bytes_per_second=50e9,
        flops_per_second=setting.flops,
    )
    predicted = make_context_plan(what, 0).seconds
    for name, seconds in predicted.items():
        assert model.times(setting, world)[name].seconds == pytest.approx(seconds, rel=1e-3)
