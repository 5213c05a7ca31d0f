"""The ranks of a process group: what they agree on, and the tensors that they send each other."""

import json
import threading
import time
import weakref
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from ._errors import ArgumentTypeError, DeviceError, InvalidArgumentError

_MOST_AGREEMENTS = 4096
_BEAT_SECONDS = 1.0
_DEAD_AFTER = 5.0


class Transfer:
    """Tensors on their way. They may be used again after `wait`."""

    def __init__(self, ranks: "Ranks", works: list[Any], peers: list[int], kept: Any):
        self.ranks, self.works, self.peers, self.kept = ranks, works, peers, kept

    def wait(self) -> None:
        try:
            for work in self.works:
                work.wait()
        except RuntimeError as problem:
            raise self.ranks.failure(self.peers, problem) from problem
        self.works = []
        self.kept = None


class Ranks:
    """A process group, by its own numbers of ranks."""

    def __init__(self, group: dist.ProcessGroup):
        self._group = weakref.ref(group)  # which PyTorch keeps until it is destroyed
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self.peers = [dist.get_global_rank(group, rank) for rank in range(self.world)]
        self.timeout = _timeout_of(group)
        self.agreements: dict[str, None] = {}
        self.number = 0  # of agreements so far
        self.is_ready = False
        self.heart: _Heart | None = None

    @property
    def group(self) -> Any:
        return self._group()

    @property
    def store(self) -> Any:
        return distributed_c10d._get_process_group_store(self.group)

    def exchange(
        self,
        sends: Sequence[tuple[int, Sequence[torch.Tensor]]],
        receives: Sequence[tuple[int, Sequence[torch.Tensor]]],
    ) -> Transfer:
        """Starts to send and receive tensors, each pair of ranks in the order of the sequences.

        The tensors are contiguous. On CUDA they travel on the process group's own stream, which
        waits for the current one now; `Transfer.wait` makes the current stream wait for it.
        """
        operations, peers, kept = [], [], []
        for operation, transfers in ((dist.isend, sends), (dist.irecv, receives)):
            for rank, tensors in transfers:
                for tag, x in enumerate(tensors):
                    if x.numel() > 0:
                        peer = self.peers[rank]
                        operations.append(dist.P2POp(operation, x, peer, self.group, tag=tag))
                        kept.append(x)
                        peers.append(rank)
        if not operations:
            return Transfer(self, [], [], None)
        try:
            works = dist.batch_isend_irecv(operations)
        except RuntimeError as problem:
            raise self.failure(peers, problem) from problem
        return Transfer(self, works, peers, kept)

    def all_gather(self, mine: torch.Tensor) -> torch.Tensor:
        """Returns every rank's tensor, [world, ...]. It can be captured in a CUDA graph."""
        if self.world == 1:
            return mine[None]
        found = mine.new_empty(self.world, *mine.shape)
        try:
            dist.all_gather_into_tensor(found.flatten(), mine.flatten(), group=self.group)
        except RuntimeError as problem:
            others = [rank for rank in range(self.world) if rank != self.rank]
            raise self.failure(others, problem) from problem
        return found

    def prepare(self, device: torch.device) -> None:
        """Makes NCCL's communicator, for which all ranks must come together, before some send."""
        if device.type == "cuda" and not self.is_ready:
            dist.all_reduce(torch.zeros(1, device=device), group=self.group)
            self.is_ready = True

    def agree(
        self, same: dict[str, Any], rows: dict[str, int], wanted: dict[str, list[int]]
    ) -> None:
        """Raises on all ranks if `same` differs, or if a rank has not the rows that it should have.

        It costs an exchange by the group's store where this rank has something new, and nothing
        otherwise. All ranks must have something new in the same calls.
        """
        text = json.dumps([same, rows])
        if text in self.agreements:
            return
        if self.heart is None and self.world > 1:
            self.heart = _Heart(self)
        found = self._collect(text) if self.world > 1 else [json.loads(text)]
        for name in same:
            self._compare(name, [of[name] for of, _ in found])
        for name, shares in wanted.items():
            for rank, share in enumerate(shares):
                if found[rank][1][name] != share:
                    raise InvalidArgumentError(
                        f"{name}: rank {rank} has {found[rank][1][name]} rows, wanted {share}: its "
                        f"share of {sum(shares)} in the layout {same['layout']}"
                    )
        if len(self.agreements) >= _MOST_AGREEMENTS:  # the oldest, which is the same on all ranks
            del self.agreements[next(iter(self.agreements))]
        self.agreements[text] = None

    def _collect(self, text: str) -> list[Any]:
        store, number = self.store, self.number
        self.number += 1
        store.set(self._key(number, self.rank), text)
        deadline = time.monotonic() + self.timeout
        missing = list(range(self.world))
        found = {}
        while missing:
            rank = missing[0]
            try:
                store.wait([self._key(number, rank)], timedelta(seconds=_BEAT_SECONDS))
            except RuntimeError as problem:  # not there yet, or no store
                if time.monotonic() > deadline or self.heart_of(rank) is False:
                    raise self.failure(
                        [r for r in missing if r != self.rank], problem, "did not make this call"
                    ) from problem
                continue
            found[rank] = json.loads(store.get(self._key(number, rank)))
            missing.pop(0)
        if number > 0:  # everybody has read it
            store.delete_key(self._key(number - 1, self.rank))
        return [found[rank] for rank in range(self.world)]

    def _key(self, number: int, rank: int) -> str:
        return f"flashcore/{number}/{rank}"

    def _compare(self, name: str, values: Sequence[Any]) -> None:
        texts = [json.dumps(value) for value in values]
        usual = texts.index(Counter(texts).most_common(1)[0][0])
        for rank, text in enumerate(texts):
            if text != texts[usual]:
                raise InvalidArgumentError(
                    f"{name}: is {values[rank]} on rank {rank}, wanted {values[usual]} as on rank "
                    f"{usual}"
                )

    def heart_of(self, rank: int) -> bool | None:
        """Returns whether the rank's heart beats; None: not known, as before its first call."""
        return True if rank == self.rank or self.heart is None else self.heart.of(rank)

    def failure(
        self,
        peers: Sequence[int],
        problem: BaseException,
        what: str = "sent or took nothing",
    ) -> DeviceError:
        """Returns an error that names the dead ranks, or else those that this one waited for."""
        ahead: list[int] = []
        if self.heart is not None:
            deadline = time.monotonic() + _DEAD_AFTER + 2 * _BEAT_SECONDS
            while time.monotonic() < deadline:
                dead = [rank for rank in range(self.world) if self.heart_of(rank) is False]
                if dead:
                    peers, what = dead, "stopped"
                    break
                time.sleep(_BEAT_SECONDS / 4)
            else:
                ahead = self.heart.ahead_of(self.number)
        if ahead:
            peers, what = ahead, "made another call, with shapes or options that are new there"
        reason = (str(problem).splitlines() or [type(problem).__name__])[0]
        return DeviceError(
            f"{_named(sorted(set(peers)))} {what}, so rank {self.rank} cannot go on: {reason}"
        )


def _named(ranks: Sequence[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


class _Heart:
    """Beats in the group's store while this process lives, and watches the others.

    A beat is a count, and the number of the rank's agreements.
    """

    def __init__(self, ranks: Ranks):
        store = ranks.store
        # A connection of its own: a store that waits for a key is locked.
        self.store = store.clone() if hasattr(store, "clone") else store
        self.rank, self.world = ranks.rank, ranks.world
        self.seen: dict[int, tuple[str, float]] = {}
        self.is_over = False
        self.ranks = weakref.ref(ranks)
        self.thread = threading.Thread(target=self._run, name="flashcore-heart", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        beats = 0
        while (ranks := self.ranks()) is not None and ranks.group is not None:
            try:
                self.store.set(_heart_key(self.rank), f"{beats} {ranks.number}")
                for rank in range(self.world):
                    if self.store.check([_heart_key(rank)]):
                        value = self.store.get(_heart_key(rank)).decode()
                        if rank not in self.seen or self.seen[rank][0] != value:
                            self.seen[rank] = (value, time.monotonic())
            except RuntimeError:  # the store is gone, and with it the rank that had it
                self.is_over = True
                return
            del ranks
            beats += 1
            time.sleep(_BEAT_SECONDS)

    def of(self, rank: int) -> bool | None:
        """Returns whether a rank's heart beats; None: it has not been seen."""
        if self.is_over:
            return False if rank == 0 else None
        if rank not in self.seen:
            return None
        return time.monotonic() - self.seen[rank][1] < _DEAD_AFTER

    def ahead_of(self, number: int) -> list[int]:
        return [rank for rank, (beat, _) in self.seen.items() if int(beat.split()[1]) > number]


def _heart_key(rank: int) -> str:
    return f"flashcore/heart/{rank}"


def _timeout_of(group: dist.ProcessGroup) -> float:
    try:
        return group._get_backend(group._device_types[0]).options._timeout.total_seconds()
    except (AttributeError, IndexError, RuntimeError):
        return distributed_c10d.default_pg_timeout.total_seconds()


_known: "weakref.WeakKeyDictionary[dist.ProcessGroup, Ranks]" = weakref.WeakKeyDictionary()


def ranks_of(group: Any) -> Ranks:
    """Takes a process group, a DeviceMesh of one dimension, or None: all ranks."""
    if not dist.is_available() or not dist.is_initialized():
        raise InvalidArgumentError(
            "group: there is no process group, wanted torch.distributed.init_process_group before"
        )
    if hasattr(group, "get_group"):  # a DeviceMesh
        if group.ndim != 1:
            raise InvalidArgumentError(
                f"group: is a mesh of {group.ndim} dimensions, wanted one of them, such as "
                'mesh["context"]'
            )
        group = group.get_group()
    group = dist.group.WORLD if group is None else group
    if not isinstance(group, dist.ProcessGroup):
        raise ArgumentTypeError(
            f"group: is a {type(group).__name__}, wanted a process group of this rank, a "
            "DeviceMesh, or None"
        )
    found = _known.get(group)
    if found is None:
        found = _known[group] = Ranks(group)
    return found
