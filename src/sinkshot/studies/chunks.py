"""Chunks: ranges of episodes of a cell, each computed by one process and stored when it is done.

A chunk holds no features, only where they are. A worker opens the bank once and keeps it.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sinkshot.bank import FeatureBank
from sinkshot.calibration import Confidence
from sinkshot.episodes import Episodes, Recipe
from sinkshot.methods.plugins import Plugin, plugin_of
from sinkshot.methods.plugins import load as load_plugin
from sinkshot.metrics import PER_EPISODE
from sinkshot.open_set import OPEN_SET
from sinkshot.studies.bank_source import UnsuitableWorker
from sinkshot.studies.code_version import code_version
from sinkshot.studies.environment import Machine, this_machine
from sinkshot.studies.random_coordinates import results
from sinkshot.studies.resolve import ResolvedCell

CHUNK = 1000
"""Episodes that are computed and stored together: the most that a kill can cost. No number depends on it."""

_KEPT_DRAWS = 64  # chunks of at most 1,000 episodes, about 1 MB each: those of one bank in a leaderboard
_DRAWN: OrderedDict[tuple[str, Recipe, int, int], tuple[Episodes, float]] = OrderedDict()
_WARM: set[tuple[str, str]] = set()  # methods and engines that have run in this process


class CodeMismatch(UnsuitableWorker):
    """This process runs a different version of the code than the one that started the run."""


@dataclass(frozen=True)
class Chunk:
    """Episodes `first` to `first + count - 1` of a cell."""

    resolved: ResolvedCell
    first: int
    count: int
    plugin: Plugin | None = None  # which registers the method, if it is not of an installed package


@dataclass(frozen=True)
class ChunkResult:
    """The numbers of a chunk."""

    accuracy: NDArray[np.float64]  # [count]
    metrics: Mapping[str, NDArray[np.float64]]  # others of each episode, by name, [count] each
    seconds: dict[str, float]  # as in Result
    machine: Machine
    confidence: Confidence | None = None


def missing_chunks(resolved: ResolvedCell, present: Mapping[int, int]) -> list[Chunk]:
    """Return the chunks of a cell that are not yet present (first episode -> count)."""
    starts = range(0, resolved.episodes, CHUNK)
    plugin = plugin_of(resolved.cell.method)
    chunks = [Chunk(resolved, first, min(CHUNK, resolved.episodes - first), plugin) for first in starts]
    return [chunk for chunk in chunks if present.get(chunk.first, 0) < chunk.count]


def version_here(chunk: Chunk) -> str:
    """Return the version of the code that would compute a chunk in this process, its plugin loaded."""
    if chunk.plugin is not None:
        load_plugin(chunk.plugin)
    return code_version(chunk.resolved.cell.method)


def _drawn(chunk: Chunk, bank: FeatureBank) -> tuple[Episodes, float]:
    """Return the episodes of a chunk, and the seconds that drawing them took; all methods of a table share them."""
    resolved = chunk.resolved
    key = resolved.bank.content, resolved.cell.recipe, chunk.first, chunk.count
    if key not in _DRAWN:
        start = time.perf_counter()
        episodes = resolved.cell.recipe.draw(bank.labels, chunk.first, chunk.count, bank.class_names)
        _DRAWN[key] = episodes, time.perf_counter() - start
        while len(_DRAWN) > _KEPT_DRAWS:
            _DRAWN.popitem(last=False)
    _DRAWN.move_to_end(key)
    return _DRAWN[key]


def compute(chunk: Chunk, bank: FeatureBank | None = None, base: FeatureBank | None = None) -> ChunkResult:
    """Measure the episodes of a chunk; banks that are not given are opened.

    Seconds exclude opening a bank and compiling.
    """
    resolved, cell = chunk.resolved, chunk.resolved.cell
    if (own := version_here(chunk)) != resolved.version:
        raise CodeMismatch(f"its code is version {own}, and the run was started by {resolved.version}")
    bank = resolved.bank.open() if bank is None else bank
    if resolved.base is not None and base is None:
        base = resolved.base.open()
    how = {
        "preprocess": resolved.preprocess,
        "engine": resolved.engine,
        "device": resolved.device,
        **dict(resolved.hyper),
    }
    how["method"] = cell.method
    if (cell.method, resolved.engine) not in _WARM:
        two = cell.recipe.draw(bank.labels, chunk.first, 2, bank.class_names)
        list(results(cell.bank, two, bank, base, **how))
        _WARM.add((cell.method, resolved.engine))
    episodes, sample = _drawn(chunk, bank)
    start = time.perf_counter() - sample  # as if it had drawn them itself
    seconds = {"sample": sample, "prepare": 0.0, "classify": 0.0}
    opened = cell.recipe.protocol == "open-set"
    metrics = {name: np.empty(chunk.count) for name in PER_EPISODE if opened or name not in OPEN_SET}
    confidence = Confidence()
    for places, result in results(cell.bank, episodes, bank, base, **how):
        for name, values in metrics.items():
            values[places] = result.values(name)
        confidence += result.confidence or Confidence()
        for stage in seconds:
            seconds[stage] += result.seconds[stage]
    seconds["total"] = time.perf_counter() - start
    return ChunkResult(metrics.pop("accuracy"), metrics, seconds, this_machine(resolved.device), confidence)
