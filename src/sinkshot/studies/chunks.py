"""Parts of cells: what a process or a machine is asked to compute, without the features it needs for it.

A chunk names files, a settled cell and a range of episodes. Whoever computes it opens the bank once and keeps it.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from sinkshot.bank import FeatureBank, load
from sinkshot.errors import InputError
from sinkshot.open_set import OPEN_SET
from sinkshot.studies.environment import Machine, this_machine
from sinkshot.studies.merge import merge
from sinkshot.studies.random_coordinates import results
from sinkshot.studies.resolve import Settled, code_version
from sinkshot.studies.study import BankKey

CHUNK = 1000
"""Episodes that are computed and stored together: what a kill can cost. No number depends on it."""

_WARM: set[tuple[str, str]] = set()  # methods and engines that have run in this process
_KEPT = 3  # banks in memory: one with its base classes, and the one before


class Unfit(InputError):
    """This process cannot compute the chunk, though another might."""


class OtherCode(Unfit):
    """This process has other sources than the one that asks."""


@dataclass(frozen=True)
class Source:
    """A bank that a process can open for itself."""

    key: BankKey
    files: tuple[str, ...]
    content: str  # hash

    @classmethod
    def of(cls, key: BankKey, files: tuple[str, ...]) -> Source:
        """Open files for the first time, and say what is in them."""
        bank = _read(key, files)
        source = cls(key, files, bank.content_hash())
        with _OPENING:
            _keep(source.content, bank)
        return source

    def open(self) -> FeatureBank:
        """Return the bank, read at most once in this process."""
        with _OPENING:
            bank = _BANKS.pop(self.content, None) or self._again()
            _keep(self.content, bank)
            return bank

    def _again(self) -> FeatureBank:
        try:
            bank = _read(self.key, self.files)
        except InputError as error:
            raise Unfit(str(error)) from None
        if bank.content_hash() != self.content:
            raise Unfit(f"the features of {self.key} ({self.files[0]}) are not those that the run began with.")
        return bank


_BANKS: OrderedDict[str, FeatureBank] = OrderedDict()
_OPENING = Lock()


def _keep(content: str, bank: FeatureBank) -> None:
    """Remember a bank, and forget the one that was not asked for longest."""
    _BANKS[content] = bank
    while len(_BANKS) > _KEPT:
        _BANKS.popitem(last=False)


def _read(key: BankKey, files: tuple[str, ...]) -> FeatureBank:
    banks = [load(file) for file in files]
    return banks[0] if len(banks) == 1 else merge(banks, key.backbones)


@dataclass(frozen=True)
class Chunk:
    """Episodes `first` to `first + count - 1` of a cell."""

    settled: Settled
    bank: Source
    base: Source | None
    first: int
    count: int


@dataclass(frozen=True)
class Part:
    """What came of a chunk."""

    accuracy: NDArray[np.float64]  # [count]
    rejection: Mapping[str, NDArray[np.float64]]  # under `open-set`: auroc, aupr and fpr95, [count] each
    seconds: dict[str, float]  # as in Result
    machine: Machine


def cut(episodes: int) -> Iterator[tuple[int, int]]:
    """Yield first episode and count of the chunks of a cell."""
    return ((first, min(CHUNK, episodes - first)) for first in range(0, episodes, CHUNK))


def compute(chunk: Chunk, bank: FeatureBank | None = None, base: FeatureBank | None = None) -> Part:
    """Measure the episodes of a chunk; banks that are not given are opened.

    Seconds are of the episodes: opening a bank, and what a compiler takes, happens before they are counted.
    """
    settled, cell = chunk.settled, chunk.settled.cell
    if (own := code_version(cell.method)) != settled.version:
        raise OtherCode(f"sinkshot is {own} there, and the run was begun by {settled.version}: begin it again")
    bank = chunk.bank.open() if bank is None else bank
    if chunk.base is not None and base is None:
        base = chunk.base.open()
    how = {"preprocess": settled.preprocess, "engine": settled.engine, "device": settled.device, **dict(settled.hyper)}
    how["method"] = cell.method
    if (cell.method, settled.engine) not in _WARM:
        two = cell.recipe.draw(bank.labels, chunk.first, 2, bank.class_names)
        list(results(cell.bank, two, bank, base, **how))
        _WARM.add((cell.method, settled.engine))
    start = time.perf_counter()
    episodes = cell.recipe.draw(bank.labels, chunk.first, chunk.count, bank.class_names)
    seconds = {"sample": time.perf_counter() - start, "prepare": 0.0, "classify": 0.0}
    accuracy = np.empty(chunk.count)
    rejection = {name: np.empty(chunk.count) for name in OPEN_SET if cell.recipe.protocol == "open-set"}
    for places, result in results(cell.bank, episodes, bank, base, **how):
        accuracy[places] = result.per_episode
        for name, values in rejection.items():
            values[places] = result.values(name)
        for stage in seconds:
            seconds[stage] += result.seconds[stage]
    seconds["total"] = time.perf_counter() - start
    return Part(accuracy, rejection, seconds, this_machine(settled.device))
