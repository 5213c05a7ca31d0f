"""The optional arrays of attention over several ranks: sinks, ALiBi slopes, a bias and a mask.

Every rank has the same sinks and slopes. A bias and a mask have the rank's queries and all keys, in
the order of the whole tensor. The gradient on a rank is its share, and the sum over the ranks is
the whole.
"""

from typing import Any, NamedTuple

import torch

from ._errors import ArgumentTypeError, InvalidArgumentError, UnsupportedError
from ._operands import OPERANDS


def by_head(x: torch.Tensor, lse: torch.Tensor) -> torch.Tensor:
    """Returns numbers of heads as they are broadcast to an LSE, dense or packed."""
    return x.reshape(-1, 1) if lse.dim() == 3 else x


class Extras(NamedTuple):
    sinks: torch.Tensor | None = None
    alibi_slopes: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    mask: torch.Tensor | None = None

    @property
    def need_positions(self) -> bool:
        return any(x is not None for x in self[1:])

    def of_calls(self) -> dict[str, torch.Tensor]:
        """Returns what every call takes; the sinks join the result once."""
        return {name: x for name, x in self._asdict().items() if name != "sinks" and x is not None}

    def of_heads(self, first: int, count: int) -> "Extras":
        return Extras(*(x if x is None else _heads(x, first, count) for x in self))

    def spread(
        self, gradients: dict[str, torch.Tensor], first: int, count: int
    ) -> dict[str, torch.Tensor]:
        """Returns gradients of some heads as gradients of all."""
        found = {}
        for name, gradient in gradients.items():
            found[name] = torch.zeros_like(getattr(self, name))
            _heads(found[name], first, count).copy_(gradient)
        return found

    def d_sinks(self, out: Any, lse: Any, d_out: Any, d_lse: Any) -> torch.Tensor:
        """Returns -(sum of the sink's share of the denominator times delta): docs/semantics.md."""
        assert self.sinks is not None
        delta = (d_out.float() * out.float()).sum(-1)
        if d_lse is not None:
            delta = delta - d_lse
        share = torch.exp(by_head(self.sinks, lse) - lse) * delta
        share = torch.where(lse == -torch.inf, 0, share)
        return -share.sum((0, 2) if lse.dim() == 3 else 0)


def _heads(x: torch.Tensor, first: int, count: int) -> torch.Tensor:
    dim = min(1, x.dim() - 1)
    return x if dim == 1 and x.shape[1] == 1 else x.narrow(dim, first, count)


def described(extras: Extras) -> dict[str, Any]:
    """Returns what ranks must agree on. Their numbers of queries may differ."""
    found: dict[str, Any] = {}
    for name, x in extras._asdict().items():
        dtype = None if x is None else str(x.dtype).removeprefix("torch.")
        shape = None if x is None else [-1 if i == 2 else n for i, n in enumerate(x.shape)]
        found |= {f"{name}.dtype": dtype, f"{name}.shape": shape}
    return found


def check_extras(extras: Extras, q: torch.Tensor, keys: int, is_packed: bool) -> None:
    """Takes this rank's queries, and the number of all keys."""
    batch, heads, rows = (1, q.shape[1], 0) if is_packed else q.shape[:3]
    wanted: dict[str, list[tuple[int, ...]]] = {
        "sinks": [(heads,)],
        "alibi_slopes": [(heads,), (batch, heads), (1, heads)],
    }
    for name, x in extras._asdict().items():
        if x is None:
            continue
        if not isinstance(x, torch.Tensor) or hasattr(x, "placements"):
            raise ArgumentTypeError(f"{name}: is a {type(x).__name__}, wanted a torch.Tensor")
        dtype = str(x.dtype).removeprefix("torch.")
        if dtype not in OPERANDS[name].dtypes or x.device != q.device:
            raise InvalidArgumentError(
                f"{name}: is {dtype} on {x.device}, wanted {' or '.join(OPERANDS[name].dtypes)} "
                f"on {q.device}"
            )
        if name in wanted:
            if tuple(x.shape) not in wanted[name]:
                raise InvalidArgumentError(
                    f"{name}: shape is {[*x.shape]}, wanted {[*wanted[name][0]]}"
                )
            continue
        if is_packed:
            raise UnsupportedError(
                f"{name}: is given with cu_seqlens_q, wanted it for dense tensors only: over "
                "several ranks packed ones do not have it"
            )
        full = (batch, heads, rows, keys)
        if x.dim() != 4 or any(n not in (1, of) for n, of in zip(x.shape, full, strict=True)):
            raise InvalidArgumentError(
                f"{name}: shape is {[*x.shape]}, wanted {[*full]}, this rank's queries and all "
                "keys, any of them 1"
            )
