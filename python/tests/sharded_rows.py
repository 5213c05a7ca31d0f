"""A program of test_jax.py: on four devices, attention over rows that are cut over the devices."""

import functools
import re
import sys

import gates
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import flashcore
import flashcore.jax as fj

HEADS, HEADS_KV, DIMS = 4, 2, (16, 24)


def draw(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape)


def arrays_of(rows_q, rows_kv):
    return (
        draw(0, 2, HEADS, rows_q, DIMS[0]),
        draw(1, 2, HEADS_KV, rows_kv, DIMS[0]),
        draw(2, 2, HEADS_KV, rows_kv, DIMS[1]),
    )


def extras_of(names, rows_q, rows_kv):
    found = {}
    for name in names:
        found |= {
            "sinks": {"sinks": jnp.linspace(-1, 1, HEADS)},
            "slopes": {"alibi_slopes": jnp.linspace(0, 0.2, HEADS)},
            "bias": {"bias": draw(4, 1, HEADS, rows_q, rows_kv)},
            "bias of keys": {"bias": draw(4, 1, HEADS, 1, rows_kv)},
            "mask": {"mask": draw(5, 2, 1, rows_q, rows_kv) > -0.5},
        }[name]
    return found


def spec_of(x):
    return P(None, None, "x") if x.ndim == 4 and x.shape[2] > 1 else P()


def check(world, rows, layout, algorithm, names=(), **options):
    """O, LSE and all gradients over the devices, against fp64 on one."""
    rows_q, rows_kv = rows
    mesh = Mesh(np.array(jax.devices()[:world]), ("x",))
    q, k, v = arrays_of(rows_q, rows_kv)
    d_out, d_lse = draw(6, 2, HEADS, rows_q, DIMS[1]), draw(7, 2, HEADS, rows_q)
    extras = extras_of(names, rows_q, rows_kv)

    def place(x):
        is_cut = x.ndim == 3 or spec_of(x) != P()
        return fj.shard_order(x, world, layout=layout) if is_cut else x

    attend = functools.partial(
        fj.context_parallel_attention,
        axis="x", layout=layout, algorithm=algorithm, return_lse=True, **options,
    )  # fmt: skip
    specs = ((P(None, None, "x"),) * 3, {name: spec_of(x) for name, x in extras.items()})
    over_devices = jax.shard_map(
        lambda arrays, extras: attend(*arrays, **extras),
        mesh=mesh, in_specs=specs, out_specs=P(None, None, "x"), check_vma=False,
    )  # fmt: skip
    learned = {name: x for name, x in extras.items() if name != "mask"}
    fixed = {name: place(x) for name, x in extras.items() if name == "mask"}

    def results(arrays, learned):
        return over_devices(arrays, learned | fixed)

    @jax.jit
    def everything(arrays, learned, d_out, d_lse):
        found, pullback = jax.vjp(results, arrays, learned)
        return found, pullback((d_out, d_lse))

    placed = tuple(map(place, (q, k, v))), {name: place(x) for name, x in learned.items()}
    (out, lse), (of_arrays, of_extras) = everything(*placed, place(d_out), place(d_lse))

    def back(x):
        return np.asarray(fj.unshard_order(x, world, layout=layout), np.float64)

    host = {name: np.asarray(x) for name, x in extras.items()}
    whole = [np.asarray(x) for x in (q, k, v)]
    exact, exact_lse = flashcore.attention(
        *whole, return_lse=True, out_dtype="float64", kernel="reference", **host, **options
    )
    wanted = flashcore.attention_backward(
        np.asarray(d_out, np.float64), *whole, exact, exact_lse, d_lse=np.asarray(d_lse),
        grad_dtype="float64", kernel="reference", **{f"d_{n}": True for n in learned}, **host,
        **options,
    )  # fmt: skip
    gates.check(back(out), exact, "float32")
    gates.check_lse(back(lse), exact_lse, "float32")
    for one, other in zip(of_arrays, wanted[:3], strict=True):
        gates.check_gradient(back(one), other, "float32")
    for name, one in of_extras.items():
        one = back(one) if spec_of(one) != P() else np.asarray(one, np.float64)
        gates.check_gradient(one, getattr(wanted, f"d_{name}"), "float32")
    return everything.lower(*placed, place(d_out), place(d_lse)).compile().as_text()


MASKS = {
    "full": {},
    "causal": {"causal": True, "softcap": 4.0},
    "window": {"window": (9, 5), "alignment": "top_left", "softmax_scale": 0.3},
}


def masks(algorithm):
    for layout in ("contiguous", "zigzag"):
        for options in MASKS.values():
            check(4, (32, 32), layout, algorithm, **options)
    check(4, (16, 32), "zigzag", algorithm, causal=True)


def worlds():
    for world in (1, 2, 3):
        check(world, (24, 24), "zigzag", "ring", causal=True)
        check(world, (24, 24), "contiguous", "all_gather", causal=True)


def extras(algorithm):
    if algorithm == "ulysses":
        check(4, (16, 16), "zigzag", algorithm, ("sinks", "slopes"), causal=True)
        return
    for names in (("sinks",), ("slopes", "mask"), ("bias",), ("bias of keys", "sinks")):
        check(4, (16, 24), "zigzag", algorithm, names, causal="mask" in names)
    check(4, (16, 24), "contiguous", algorithm, ("slopes", "mask", "bias"), causal=True)


def rings_pass_on():
    """A ring sends blocks to the next device, never all of them to all; a window ends it early."""
    text = check(4, (64, 64), "contiguous", "ring", causal=True)
    assert not re.search(r"all-gather|all-to-all", text)

    def sends(**options):
        text = check(4, (64, 64), "contiguous", "ring", **options)
        return len(re.findall(r"collective-permute(?:-start)?\(", text))

    assert 0 < sends(window=(9, 0)) < sends(causal=True)


def mistakes():
    def call(rows=8, **options):
        x = draw(0, 1, 3 if "heads" in options else 4, 4 * rows, 16)
        options.pop("heads", None)
        mesh = Mesh(np.array(jax.devices()), ("x",))
        jax.shard_map(
            lambda x: fj.context_parallel_attention(x, x, x, "x", **options),
            mesh=mesh, in_specs=P(None, None, "x"), out_specs=P(None, None, "x"), check_vma=False,
        )(x)  # fmt: skip

    for options, message in (
        ({"rows": 7}, "have 7 and 7 rows, wanted even numbers"),
        ({"layout": "striped"}, "layout: is 'striped', wanted one of contiguous, zigzag"),
        ({"algorithm": "best"}, "algorithm: is 'best', wanted one of ring, all_gather, ulysses"),
        ({"alignment": "given"}, "alignment: is 'given', wanted one of top_left, bottom_right"),
        ({"algorithm": "ulysses", "heads": 3}, "ulysses has 3 query heads"),
    ):
        with pytest.raises(flashcore.Error, match=re.escape(message)):
            call(**options)
    with pytest.raises(flashcore.UnsupportedError, match="x: has 9 rows, wanted a multiple of 8"):
        fj.shard_order(jnp.zeros(9), 4, dim=0)


CASES = {"worlds": worlds, "rings": rings_pass_on, "mistakes": mistakes}
for name in ("ring", "all_gather", "ulysses"):
    CASES[f"masks-{name}"] = functools.partial(masks, name)
    CASES[f"extras-{name}"] = functools.partial(extras, name)

if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        CASES[name]()
        print(name, flush=True)
