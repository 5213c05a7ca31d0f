"""A paged cache of keys and values, for many sequences that grow, fork and end.

A page holds page_size rows of every layer, so one table serves the whole model. Pages come from a
free list and have reference counts: a fork shares all pages of its parent, and a sequence that
writes into a shared page first gets a copy of it. Every page can serve every sequence, so the cache
never needs defragmenting.
"""

from collections.abc import Sequence
from typing import Any

from ._errors import Error, InvalidArgumentError
from ._options import integer
from .serving import Batch


class OutOfPagesError(Error, MemoryError):
    """The cache has too few free pages; nothing has changed."""


class _NumPy:
    """NumPy arrays."""

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        import numpy

        return numpy.zeros(shape, dtype)

    def integers(self, values: Any) -> Any:
        """Converts a NumPy array of int32."""
        return values


class _Torch:
    """PyTorch tensors on a device."""

    def __init__(self, device: Any):
        try:
            import torch

            self._device = torch.device(device)
        except (ImportError, RuntimeError, TypeError, ValueError) as error:
            raise InvalidArgumentError(
                f"device: is {device!r}, wanted None or a device of PyTorch ({error})"
            ) from error

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> Any:
        import torch

        if isinstance(dtype, str):
            dtype = getattr(torch, dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise InvalidArgumentError("dtype: is not PyTorch's, wanted such a dtype or its name")
        return torch.zeros(shape, dtype=dtype, device=self._device)

    def integers(self, values: Any) -> Any:
        import torch

        return torch.from_numpy(values).to(self._device)


class _Sequence:
    __slots__ = ("pages", "rows")

    def __init__(self) -> None:
        self.pages: list[int] = []
        self.rows = 0


class KVCache:
    """Keys and values of `layers` layers, `num_pages` pages of `page_size` rows.

    k[layer] and v[layer] are [num_pages, Hkv, page_size, D]: NumPy arrays, or PyTorch tensors on
    `device` if it is given ("cuda", "cuda:1", "cpu", a torch.device). New rows and queries must be
    of the same framework and device. dtype: a dtype of that framework, or its name. `add` returns
    the number of a sequence.

    >>> cache = KVCache(64, 16, heads_kv=2, head_dim=32)
    >>> a = cache.add()
    >>> step = cache.extend([a], [5])          # room for 5 new rows
    >>> step.append(k_new, v_new)              # [1, 2, 5, 32]
    >>> o = step.decode(q)                     # [1, Hq, 5, 32]
    """

    def __init__(
        self,
        num_pages: int,
        page_size: int = 16,
        *,
        heads_kv: int,
        head_dim: int,
        head_dim_v: int | None = None,
        layers: int = 1,
        dtype: Any = "float32",
        device: Any = None,
    ):
        largest = 2**31 - 1
        self.num_pages = integer("num_pages", num_pages, 1, largest)
        self.page_size = integer("page_size", page_size, 1, largest)
        self.layers = integer("layers", layers, 1, largest)
        heads = integer("heads_kv", heads_kv, 1, largest)
        width = integer("head_dim", head_dim, 1, largest)
        width_v = width if head_dim_v is None else integer("head_dim_v", head_dim_v, 1, largest)
        shape = (self.layers, self.num_pages, heads, self.page_size)
        # Zeroed, so that the memory is committed from the beginning.
        self._arrays = _NumPy() if device is None else _Torch(device)
        self.k = self._arrays.zeros((*shape, width), dtype)
        self.v = self._arrays.zeros((*shape, width_v), dtype)
        # Pops the lowest pages first.
        self._free = list(range(self.num_pages - 1, -1, -1))
        self._owners = [0] * self.num_pages
        self._sequences: dict[int, _Sequence] = {}
        self._next = 0

    @property
    def free_pages(self) -> int:
        return len(self._free)

    def __len__(self) -> int:
        """Returns the number of sequences in the cache."""
        return len(self._sequences)

    def length(self, sequence: int) -> int:
        """Returns the number of rows of a sequence."""
        return self._find(sequence).rows

    def pages(self, sequence: int) -> tuple[int, ...]:
        """Returns the pages of a sequence, in order."""
        return tuple(self._find(sequence).pages)

    def add(self) -> int:
        """Adds a new, empty sequence and returns its number."""
        self._next += 1
        self._sequences[self._next] = _Sequence()
        return self._next

    def fork(self, sequence: int, rows: int | None = None) -> int:
        """Adds a sequence that shares the first `rows` rows of another (default: all of them).

        No row is copied. Rows added later to either sequence are its own.
        """
        parent = self._find(sequence)
        kept = parent.rows if rows is None else integer("rows", rows, 0, parent.rows)
        child = self.add()
        entry = self._sequences[child]
        entry.rows = kept
        entry.pages = parent.pages[: self._pages_for(kept)]
        for page in entry.pages:
            self._owners[page] += 1
        return child

    def truncate(self, sequence: int, rows: int) -> None:
        """Drops all but the first `rows` rows, such as drafts that were rejected."""
        entry = self._find(sequence)
        entry.rows = integer("rows", rows, 0, entry.rows)
        kept = self._pages_for(entry.rows)
        self._release(entry.pages[kept:])
        del entry.pages[kept:]

    def free(self, sequence: int) -> None:
        """Ends a sequence, and frees the pages that no other sequence shares."""
        self._release(self._find(sequence).pages)
        del self._sequences[sequence]

    def extend(self, sequences: Sequence[int], rows: Sequence[int]) -> "Step":
        """Makes room for new rows of some sequences, and counts them as part of these.

        Returns the step: its `append` writes the rows, layer by layer, and its `decode` attends to
        them. If there are too few free pages, raises OutOfPagesError and changes nothing.
        """
        if len(sequences) != len(rows):
            raise InvalidArgumentError(
                f"rows: has {len(rows)} numbers, wanted {len(sequences)}, one per sequence"
            )
        if len(set(sequences)) != len(sequences):
            raise InvalidArgumentError("sequences: has one of them twice, wanted each once")
        entries = [self._find(sequence) for sequence in sequences]
        counts = [integer("rows", count, 0, 2**31 - 1) for count in rows]
        wanted = 0
        # If all owners of a shared page grow here, the last one keeps it and needs no copy.
        owners: dict[int, int] = {}
        copies = []
        for entry, count in zip(entries, counts, strict=True):
            wanted += self._pages_for(entry.rows + count) - len(entry.pages)
            copy = False
            if count > 0 and entry.rows % self.page_size != 0:
                page = entry.pages[-1]
                left = owners.get(page, self._owners[page])
                copy = left > 1
                owners[page] = left - copy
            copies.append(copy)
            wanted += copy
        if wanted > len(self._free):
            raise OutOfPagesError(f"pages: {len(self._free)} are free, wanted {wanted}")
        before = []
        for entry, count, copy in zip(entries, counts, copies, strict=True):
            before.append(entry.rows)
            if copy:
                shared, own = entry.pages[-1], self._take()
                self.k[:, own] = self.k[:, shared]
                self.v[:, own] = self.v[:, shared]
                self._owners[shared] -= 1
                entry.pages[-1] = own
            entry.rows += count
            while len(entry.pages) < self._pages_for(entry.rows):
                entry.pages.append(self._take())
        return Step(self, entries, before, counts)

    def _pages_for(self, rows: int) -> int:
        return -(-rows // self.page_size)

    def _take(self) -> int:
        page = self._free.pop()
        self._owners[page] = 1
        return page

    def _release(self, pages: Sequence[int]) -> None:
        for page in pages:
            self._owners[page] -= 1
            if self._owners[page] == 0:
                self._free.append(page)

    def _find(self, sequence: int) -> _Sequence:
        try:
            return self._sequences[sequence]
        except (KeyError, TypeError):
            raise InvalidArgumentError(
                f"sequence: is {sequence!r}, wanted one that the cache has"
            ) from None


class Step(Batch):
    """Sequences of a cache with their new rows: a `Batch` that knows its caches.

    It describes the sequences as of `extend`: use it before they change again. Its arrays are on
    the device of the cache.
    """

    def __init__(
        self, cache: KVCache, entries: list[_Sequence], before: list[int], counts: list[int]
    ):
        import numpy

        self._cache = cache
        columns = max((len(entry.pages) for entry in entries), default=0)
        # Rounded up, so that few plans serve all steps. Columns past a sequence's pages are unused.
        columns = 1 << max(columns - 1, 0).bit_length()
        table = numpy.full((len(entries), columns), -1, numpy.int32)
        for row, entry in zip(table, entries, strict=True):
            row[: len(entry.pages)] = entry.pages
        starts = numpy.zeros(len(counts) + 1, numpy.int32)
        numpy.cumsum(counts, out=starts[1:])
        seqlens_before = numpy.array(before, numpy.int32)
        super().__init__(
            *map(cache._arrays.integers, (table, seqlens_before + numpy.diff(starts), starts)),
            seqlens_before=cache._arrays.integers(seqlens_before),
        )

    def append(  # type: ignore[override]
        self, k_new: Any, v_new: Any, *, layer: int = 0, **options: Any
    ) -> Any:
        """Writes the new rows of a layer; q and RoPE are options, as in `flashcore.append`."""
        return super().append(k_new, v_new, self._cache.k[layer], self._cache.v[layer], **options)

    def decode(self, q: Any, *, layer: int = 0, **options: Any) -> Any:
        """Attention of the new rows' queries over a layer, as `attend`."""
        return self.attend(q, self._cache.k[layer], self._cache.v[layer], **options)
