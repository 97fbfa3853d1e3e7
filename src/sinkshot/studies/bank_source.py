"""Where the features of a cell are: files that any process can open for itself, and check against a content hash."""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

from sinkshot.bank import FeatureBank, load
from sinkshot.errors import InputError
from sinkshot.studies.catalogue import Catalogue, Missing
from sinkshot.studies.merge import merge
from sinkshot.studies.study import BankKey

_KEPT = 3  # banks in memory: one with its base classes, and the one before


class UnsuitableWorker(InputError):
    """This process cannot compute a chunk, though another might."""


class BankChanged(InputError):
    """The files of a bank were replaced, cut short or deleted while a run used them."""


@dataclass(frozen=True)
class BankSource:
    """The files of a bank and the hash of its content."""

    key: BankKey
    files: tuple[str, ...]
    content: str  # hash
    labels: str  # hash: episodes of two banks are the same rows only if it is equal

    def open(self) -> FeatureBank:
        """Return the bank; a process reads it once and keeps the last few."""
        with _OPENING:
            bank = _BANKS.pop(self.content, None) or self._read_again()
            _keep(self.content, bank)
            return bank

    def check_unchanged(self) -> None:
        """Refuse files that were replaced, cut short or deleted since this process first opened them."""
        known, now = _STATES.get(self.files), _states(self.files)
        if known is None or known == now:
            return
        if gone := [file for file, state in zip(self.files, now, strict=True) if state is None]:
            raise BankChanged(f"{gone[0]} was deleted while the run used it.")
        if _content(self.key, self.files) != self.content:
            changed = next(file for file, a, b in zip(self.files, known, now, strict=True) if a != b)
            raise BankChanged(f"{changed} was changed while the run used it.")
        _STATES[self.files] = now  # written again, or touched

    def _read_again(self) -> FeatureBank:
        try:
            bank = _read(self.key, self.files)
        except InputError as error:
            raise UnsuitableWorker(str(error)) from None
        if bank.content_hash() != self.content:
            raise UnsuitableWorker(f"the features of {self.key} ({self.files[0]}) have changed since the run began.")
        return bank


def find_bank(key: BankKey, catalogue: Catalogue) -> BankSource:
    """Open a bank for the first time; if a file is missing, the InputError says how to get it."""
    found = catalogue.files(key)
    if isinstance(found, Missing):
        raise InputError(str(found))
    files = tuple(map(str, found))
    states = _states(files)
    bank = _read(key, files)
    if None not in states:
        _STATES[files] = states
    source = BankSource(key, files, bank.content_hash(), hashlib.sha256(bank.labels.tobytes()).hexdigest())
    with _OPENING:
        _keep(source.content, bank)
    return source


_STATES: dict[tuple[str, ...], list[tuple[int, ...] | None]] = {}  # of files when they were first opened, by bank
_BANKS: OrderedDict[str, FeatureBank] = OrderedDict()
_OPENING = Lock()


def _keep(content: str, bank: FeatureBank) -> None:
    """Cache a bank, and drop the least recently used one."""
    _BANKS[content] = bank
    while len(_BANKS) > _KEPT:
        _BANKS.popitem(last=False)


def _read(key: BankKey, files: tuple[str, ...]) -> FeatureBank:
    banks = [load(file) for file in files]
    return banks[0] if len(banks) == 1 else merge(banks, key.backbones)


def _content(key: BankKey, files: tuple[str, ...]) -> str | None:
    """Return the hash of what files hold now; None if that is not a bank."""
    try:
        return _read(key, files).content_hash()
    except InputError:
        return None


def _states(files: tuple[str, ...]) -> list[tuple[int, ...] | None]:
    """Return for each file what changes when it is written or replaced; None if it is not there."""
    return [_state(file) for file in files]


def _state(file: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev
