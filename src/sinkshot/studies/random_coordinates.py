"""Evaluate episodes of a cell; with random coordinates, episode i uses selection i mod `selections`.

So episode i does not depend on the number of episodes, and selections share the episodes evenly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.bank import FeatureBank
from sinkshot.episodes import Episodes
from sinkshot.evaluate import Result, evaluate
from sinkshot.studies.merge import selection, selection_seed
from sinkshot.studies.study import BankKey


def results(
    key: BankKey, episodes: Episodes, bank: FeatureBank, base: FeatureBank | None, **how: Any
) -> Iterator[tuple[NDArray[np.intp], Result]]:
    """Yield indices of episodes [r] and their result; `how` is passed to `evaluate`."""
    numbers = np.arange(len(episodes))
    if key.coordinates is None:
        yield numbers, evaluate(bank, episodes, base=base, **how)
        return
    which = (episodes.first + numbers) % key.selections
    for number in np.unique(which):
        places = np.flatnonzero(which == number)
        few, touched = _touched(_take(episodes, places), bank)
        chosen, base_chosen = (selected(part, key, episodes.recipe.seed, int(number)) for part in (touched, base))
        yield places, evaluate(chosen, few, base=base_chosen, **how)


def selected(bank: FeatureBank | None, key: BankKey, seed: int, number: int = 0) -> Any:
    """Return a bank with the coordinates of selection `number`; unchanged if none are selected."""
    if bank is None or key.coordinates is None:
        return bank
    chosen = selection(bank, key.coordinates, selection_seed(seed, number))
    return replace(chosen, meta={})  # it is not the whole bank


def _take(episodes: Episodes, places: NDArray[np.intp]) -> Episodes:
    names = ("support", "support_labels", "query", "query_labels")
    return replace(episodes, **{name: getattr(episodes, name)[places] for name in names})


def _touched(episodes: Episodes, bank: FeatureBank) -> tuple[Episodes, FeatureBank]:
    """Reduce a bank to the rows that some episodes use."""
    supports = episodes.support.shape[1]
    both = np.hstack([episodes.support, episodes.query])  # [R, N]
    rows, places = np.unique(both, return_inverse=True)
    places = places.reshape(both.shape)
    small = FeatureBank(bank.features[rows], np.zeros(len(rows), np.int64), ("any",), bank.meta, bank.base)
    support, query = (part.astype(np.int32) for part in np.split(places, [supports], axis=1))
    return replace(episodes, support=support, query=query), small
