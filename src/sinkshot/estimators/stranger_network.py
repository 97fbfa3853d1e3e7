"""The small network that reads the clues of a pool: how many rows belong to none of the classes, and which.

It was trained on pools of many kinds of features, by `tools/train_strangers.py`, on base and validation classes alone;
docs/strangers.md shows what it does, and how. Twice, a row is looked at beside the mean of its class, of the labelled
rows of that class, of the rows where walks from it end, and of the whole pool; then means over the pool are taken. So
the answer does not depend on the order of rows or classes.

    h = relu(row2 relu(row1 [clues of the row, clues of the pool]))
    h = h + relu(moved relu(seen [h, means of h over its class, where walks end, over the pool]))      in each round
    log odds of being a stranger = stranger h
    log probabilities of shares  = pool2 relu(pool1 [mean, spread, mean of the labelled, classes, strangers, pool])
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.methods.stranger_clues import DIMENSION, SHOTS, Clues

Floats = NDArray[Any]
SHARES = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65)
"""Shares of strangers, of which the network gives probabilities."""
CLUSTERS, RAMP = 10.5, 1.5
"""Classes of fewer dimensions than the first lie in pieces, fully at the second fewer, as those of pixels do."""
SLOPE = 6.0  # of the step at the limit
STRETCHED = 0.3  # larger shares are stretched
LINKS = 12  # of a row, to those where most walks from it end
_CLIP = 4.0  # deviations from the mean of a clue


@dataclass(frozen=True)
class Opinion:
    """What the network says of a pool, and what decides how far that is believed."""

    odds: float  # log odds that there are strangers
    share: float  # of strangers, if there are any
    rows: Floats  # log odds that a row is a stranger, [q]
    labels: float  # per class
    pieces: float  # how far classes lie in pieces, from 0 to 1


@dataclass(frozen=True)
class Belief:
    """How far an opinion is believed; `tools/choose_stranger_limit.py` chose the limits (docs/strangers.md).

    With one label, a class whose labelled row is an outlier looks like strangers, and so does a piece without a label.
    """

    limit: float  # log odds from which strangers are believed in, with many labels
    few_labels: float  # over the labels per class, added to the limit
    in_pieces: float  # added where classes lie in pieces
    stretch: float  # over the labels per class: by how much what shares have above `STRETCHED` grows

    def share(self, odds: Any, share: Any, labels: Any, pieces: Any) -> Floats:
        """Return the share of strangers that is believed in, for one pool or for arrays of pools.

        The share that the network gives is a mean over all that is possible, so large ones come out too small.
        """
        above = odds - self.limit - self.few_labels / labels - self.in_pieces * pieces
        stretched = share + self.stretch / labels * np.maximum(share - STRETCHED, 0)
        return np.asarray(stretched / (1 + np.exp(-np.clip(SLOPE * above, -50, 50))))


BELIEF = Belief(limit=1.6, few_labels=0.4, in_pieces=2.5, stretch=0.5)


class StrangerNetwork:
    """The network with its weights: a matrix and an offset for each layer."""

    def __init__(self, weights: Mapping[str, Floats]) -> None:
        self._weights = {name: np.asarray(value, np.float32) for name, value in weights.items()}
        self._rounds = sum(name.startswith("seen.") for name in weights) // 2

    def __call__(self, clues: Clues) -> Opinion:
        """Read the clues of one pool."""
        of_rows = self._standard("row", np.asarray(clues.rows[0]))  # [N, 35]
        of_pool = self._standard("pool", np.asarray(clues.pool[0]))  # [18]
        classes, labelled = np.asarray(clues.nearest[0]), clues.supports
        member = np.eye(int(classes.max()) + 1, dtype=np.float32)[:, classes]  # [way, N]
        ours, free = member[:, :labelled], member[:, labelled:]
        sizes = free.sum(axis=1, keepdims=True) + 1, np.maximum(ours.sum(axis=1, keepdims=True), 1)
        links, weights = links_of(np.asarray(clues.walk[0]))

        def means_of_classes() -> Floats:  # [way, 2 width]
            return np.concatenate([free @ h[labelled:] / sizes[0], ours @ h[:labelled] / sizes[1]], axis=1)

        h = self._relu("row2", self._relu("row1", _joined(of_rows, of_pool)))
        for turn in range(self._rounds):
            around = np.einsum("nl,nlw->nw", weights, h[links])
            whole = np.concatenate([h[labelled:].mean(axis=0), h[:labelled].mean(axis=0)])
            seen = _joined(np.concatenate([h, means_of_classes()[classes], around], axis=1), whole)
            h = h + self._relu(f"moved.{turn}", self._relu(f"seen.{turn}", seen))
        odds = self._layer("stranger", h[labelled:])[:, 0]  # [q]
        mean = h[labelled:].mean(axis=0)
        spread = np.sqrt(h[labelled:].var(axis=0) + 1e-4)
        of_classes = self._relu("classes", means_of_classes()).mean(axis=0)
        weight = 0.5 * (1 + np.tanh(0.5 * odds))
        likely = weight @ h[labelled:] / max(float(weight.sum()), 1.0)
        told = np.concatenate([mean, spread, h[:labelled].mean(axis=0), of_classes, likely, of_pool])
        shares = self._layer("pool2", self._relu("pool1", told)).astype(np.float64)
        some = np.exp(shares[1:] - shares[1:].max())
        for_some = float(np.log(some.sum()) + shares[1:].max())
        share = float(some @ SHARES[1:] / some.sum())
        labels, dimension = float(np.exp(clues.pool[0, SHOTS])), float(clues.pool[0, DIMENSION])
        pieces = min(max((CLUSTERS - dimension) / RAMP, 0.0), 1.0)
        return Opinion(for_some - float(shares[0]), share, odds.astype(np.float64), labels, pieces)

    def _standard(self, name: str, clues: Floats) -> Floats:
        standard = (clues - self._weights[f"{name}_mean"]) / self._weights[f"{name}_spread"]
        return np.asarray(np.clip(standard, -_CLIP, _CLIP), np.float32)

    def _layer(self, name: str, x: Floats) -> Floats:
        return np.asarray(x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"])

    def _relu(self, name: str, x: Floats) -> Floats:
        return np.maximum(self._layer(name, x), 0)


def links_of(walk: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return the rows where most walks from each row end, and what share of these ends there, [N, LINKS] each."""
    most = min(LINKS, walk.shape[1])
    links = np.argpartition(-walk, most - 1, axis=1)[:, :most]
    weights = np.take_along_axis(walk, links, axis=1)
    return links, np.asarray(weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-6), np.float32)


@cache
def stranger_network() -> StrangerNetwork:
    """Read the weights, once."""
    file = resources.files("sinkshot") / "data" / "strangers.npz"
    with file.open("rb") as opened, np.load(opened, allow_pickle=False) as weights:
        return StrangerNetwork(dict(weights))


def _joined(rows: Floats, same: Floats) -> Floats:
    """Append the same values to every row."""
    return np.concatenate([rows, np.broadcast_to(same, (len(rows), len(same)))], axis=1)
