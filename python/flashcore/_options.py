"""Checks options where C cannot: their types, and numbers outside of C's range."""

import math
import numbers
import operator
from collections.abc import Callable
from typing import Any, NoReturn

from ._errors import ArgumentTypeError, InvalidArgumentError
from ._layout import wrong_type
from ._library import PlanOptions, Problem, with_defaults
from ._operands import LARGEST_OF, Options

ALIGNMENTS = {"top_left": 0, "bottom_right": 1, "given": 2}


# Names of options in other libraries.
_SYNONYMS = {
    "attention_mask": "mask",
    "attn_mask": "mask",
    "dropout": "dropout_p",
    "is_causal": "causal",
    "scale": "softmax_scale",
    "scaling": "softmax_scale",
    "sm_scale": "softmax_scale",
    "window_size": "window",
}


def refuse_unknown(function: Callable[..., Any], unknown: dict[str, Any]) -> NoReturn:
    """Raises for an unknown keyword, and suggests the one that was meant."""
    import difflib  # imported here, so that importing flashcore stays fast
    import inspect

    known = [name for name in inspect.signature(function).parameters if name != "unknown"]
    name = next(iter(unknown))
    meant = [_SYNONYMS.get(name)] if _SYNONYMS.get(name) in known else []
    meant += difflib.get_close_matches(name, known, 1)
    wanted = meant[0] if meant else f"one of help(flashcore.{function.__name__})"
    raise ArgumentTypeError(f"{name}: is no argument of {function.__name__}, wanted {wanted}")


def refuse_array(argument: str, value: Any, wanted: str) -> None:
    """Refuses arrays: plans are cached by their options, and an array's value may change."""
    if hasattr(value, "__dlpack__"):
        raise wrong_type(argument, value, wanted)


def flag(argument: str, value: Any, wanted: str = "True or False") -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, numbers.Integral) and value in (0, 1):
        return bool(value)
    if type(value).__name__ in ("bool", "bool_") and getattr(value, "ndim", 1) == 0:
        return bool(value)  # NumPy's bool
    raise wrong_type(argument, value, wanted)


def integer(argument: str, value: Any, lowest: int, highest: int) -> int:
    if isinstance(value, bool):
        raise wrong_type(argument, value, "an integer")
    refuse_array(argument, value, "an integer")
    try:
        number = operator.index(value)
    except TypeError:
        raise wrong_type(argument, value, "an integer") from None
    if not lowest <= number <= highest:
        raise InvalidArgumentError(f"{argument}: is {number}, wanted {lowest} to {highest}")
    return number


def real(argument: str, value: Any) -> float:
    if isinstance(value, (str, bytes, bool)) or not hasattr(value, "__float__"):
        raise wrong_type(argument, value, "a number")
    refuse_array(argument, value, "a number; float(tensor) is one")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise wrong_type(argument, value, "a number") from None
    except OverflowError:
        number = math.inf  # the library will name the values that it wants
    return number


def window_of(value: Any) -> tuple[int, int]:
    if value is None:
        return -1, -1
    try:
        left, right = value
    except (TypeError, ValueError):
        raise wrong_type("window", value, "(left, right), each a number of keys or None") from None
    largest = 2**63 - 1
    return (
        -1 if left is None else integer("window_left", left, -1, largest),
        -1 if right is None else integer("window_right", right, -1, largest),
    )


def fill_problem(problem: Problem, options: Options) -> None:
    """Fills in everything but the tensors."""
    largest = 2**63 - 1
    if options.softmax_scale is not None:
        problem.has_softmax_scale = 1
        problem.softmax_scale = real("softmax_scale", options.softmax_scale)
    problem.softcap = real("softcap", options.softcap)
    problem.causal = flag("causal", options.causal)
    if not isinstance(options.alignment, str) or options.alignment not in ALIGNMENTS:
        raise InvalidArgumentError(
            f"alignment: is {options.alignment!r}, wanted one of {', '.join(ALIGNMENTS)}"
        )
    problem.alignment = ALIGNMENTS[options.alignment]
    problem.dropout_p = real("dropout_p", options.dropout_p)
    problem.causal_offset = integer("causal_offset", options.causal_offset, -largest, largest)
    problem.window_left, problem.window_right = window_of(options.window)
    for name in ("kv_scale_block", "max_seqlen_q", "max_seqlen_kv"):
        setattr(problem, name, integer(name, getattr(options, name), 0, largest))
    problem.v_transposed = flag("v_transposed", options.v_transposed)


def largest_of(options: Options) -> tuple[str, ...]:
    """Returns the names of the largest values that these options ask for."""
    asked = {name: flag(name, getattr(options, name)) for name in LARGEST_OF}
    wanted = (outputs for name, outputs in LARGEST_OF.items() if asked[name])
    return tuple(output for outputs in wanted for output in outputs)


def options_on(device: tuple[int, int], threads: Any) -> PlanOptions:
    """Returns the options of a call that has no others."""
    out = with_defaults(PlanOptions)
    out.device_kind, out.device_index = device
    out.threads = integer("threads", threads, 0, 2**31 - 1)
    return out


def plan_options(options: Options, device: tuple[int, int]) -> PlanOptions:
    out = options_on(device, options.threads)
    if options.kernel is not None:
        if not isinstance(options.kernel, str):
            raise wrong_type("kernel", options.kernel, "a kernel's name or None")
        if "\0" in options.kernel:
            raise InvalidArgumentError(f"kernel: is {options.kernel!r}, wanted a kernel's name")
        out.kernel = options.kernel.encode()
    for name in ("batch_invariant", "early_start", "deterministic"):
        setattr(out, name, flag(name, getattr(options, name)))
    return out


def seed(argument: str, value: Any) -> int:
    return integer(argument, value, 0, 2**64 - 1)
