"""A call of `attention`, as it passes from the public function through a backend to the library."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ._operands import LARGEST, OPTIONAL_TENSORS

OUTPUTS = ("out", "out_lse", *LARGEST)
# The fields of a Call, in order. Most calls make and pass a plain tuple of them, which costs a
# quarter of a microsecond less.
Fields = tuple[Any, ...]


class Call(NamedTuple):
    """The arrays and options of a call."""

    q: Any
    k: Any
    v: Any
    extras: Sequence[Any] | None  # the optional arrays, in the order of OPTIONAL_TENSORS
    options: tuple[Any, ...]  # the values of Options, in order
    dropout: tuple[Any, Any] | None = None  # seed and offset
    # Where to write: O and LSE, and, within the package, the largest values; in OUTPUTS' order.
    outputs: tuple[Any, ...] | None = None

    @classmethod
    def of(
        cls,
        arrays: dict[str, Any],
        options: tuple[Any, ...],
        dropout: tuple[Any, Any] | None,
        outputs: tuple[Any, ...] | None = None,
    ) -> "Call":
        """Takes the arrays by name; other names are ignored."""
        found = [arrays.get(name) for name in OPTIONAL_TENSORS]
        extras = None if all(x is None for x in found) else found
        return cls(arrays["q"], arrays["k"], arrays["v"], extras, options, dropout, outputs)

    def inputs(self) -> dict[str, Any]:
        """Returns the arrays that are read, by name: q, k and v first."""
        return {"q": self.q, "k": self.k, "v": self.v} | present(OPTIONAL_TENSORS, self.extras)

    def given_outputs(self) -> dict[str, Any]:
        """Returns the arrays to write into, by name."""
        return present(OUTPUTS, self.outputs)


def present(names: Sequence[str], arrays: Sequence[Any] | None) -> dict[str, Any]:
    """Returns the arrays that are not None, by name."""
    if arrays is None:
        return {}
    return {name: x for name, x in zip(names, arrays, strict=False) if x is not None}
