"""The small network that reads the clues of a pool: how many rows belong to none of the classes, and which.

It was trained on pools of many kinds of features, by `tools/train_strangers.py`, on base and validation classes alone;
docs/strangers.md shows what networks trained in the same way do on features that they have never seen. A row is looked
at beside the mean of its class, of the labelled rows of that class, and of the whole pool; then means over the pool are
taken. So the answer does not depend on the order of rows or classes.

    h = relu(row2 relu(row1 [clues of the row, clues of the pool]))
    h = h + relu(seen2 relu(seen1 [h, means of h over its class, over the pool]))
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
LIMIT, FEW_LABELS = 1.5, 0.4
"""Log odds of strangers above which they are believed in are the first and, over the labels per class, the second:
with one label, a class whose labelled row is an outlier looks like strangers. docs/strangers.md tells how they were
chosen."""
PIECES, CLUSTERS, RAMP = 1.5, 10.5, 1.5
"""The limit rises by the first where classes have fewer dimensions than the second, fully at the third fewer. Classes
of such features, pixels for example, lie in pieces, and a piece without a label looks like strangers."""
SLOPE = 6.0  # of the step at the limit
STRETCHED, STRETCH = 0.3, 1.15  # what an estimated share has above the first is multiplied with the second
_CLIP = 4.0  # deviations from the mean of a clue


@dataclass(frozen=True)
class Opinion:
    """What the network says of a pool."""

    odds: float  # log odds that there are strangers, above the limit from which they are believed in
    share: float  # of strangers, if there are any
    rows: Floats  # log odds that a row is a stranger, [q]


class StrangerNetwork:
    """The network with its weights: a matrix and an offset for each layer."""

    def __init__(self, weights: Mapping[str, Floats]) -> None:
        self._weights = {name: np.asarray(value, np.float32) for name, value in weights.items()}

    def __call__(self, clues: Clues) -> Opinion:
        """Read the clues of one pool."""
        of_rows = self._standard("row", np.asarray(clues.rows[0]))  # [N, 35]
        of_pool = self._standard("pool", np.asarray(clues.pool[0]))  # [18]
        classes, labelled = np.asarray(clues.nearest[0]), clues.supports
        h = self._relu("row1", _joined(of_rows, of_pool))
        h = self._relu("row2", h)
        member = np.eye(int(classes.max()) + 1, dtype=np.float32)[:, classes]  # [way, N]
        ours, free = member[:, :labelled], member[:, labelled:]
        by_class = np.concatenate(
            [
                free @ h[labelled:] / (free.sum(axis=1, keepdims=True) + 1),
                ours @ h[:labelled] / np.maximum(ours.sum(axis=1, keepdims=True), 1),
            ],
            axis=1,
        )
        whole = np.concatenate([h[labelled:].mean(axis=0), h[:labelled].mean(axis=0)])
        h = h + self._relu("seen2", self._relu("seen1", _joined(np.concatenate([h, by_class[classes]], axis=1), whole)))
        odds = self._layer("stranger", h[labelled:])[:, 0]  # [q]
        mean = h[labelled:].mean(axis=0)
        spread = np.sqrt(h[labelled:].var(axis=0) + 1e-4)
        of_classes = self._relu("classes", by_class).mean(axis=0)
        weight = 0.5 * (1 + np.tanh(0.5 * odds))
        likely = weight @ h[labelled:] / max(float(weight.sum()), 1.0)
        told = np.concatenate([mean, spread, h[:labelled].mean(axis=0), of_classes, likely, of_pool])
        shares = self._layer("pool2", self._relu("pool1", told)).astype(np.float64)
        some = np.exp(shares[1:] - shares[1:].max())
        for_some = float(np.log(some.sum()) + shares[1:].max())
        share = float(some @ SHARES[1:] / some.sum())
        share += (STRETCH - 1) * max(share - STRETCHED, 0.0)
        return Opinion(for_some - float(shares[0]) - limit_of(clues), share, odds.astype(np.float64))

    def _standard(self, name: str, clues: Floats) -> Floats:
        standard = (clues - self._weights[f"{name}_mean"]) / self._weights[f"{name}_spread"]
        return np.asarray(np.clip(standard, -_CLIP, _CLIP), np.float32)

    def _layer(self, name: str, x: Floats) -> Floats:
        return np.asarray(x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"])

    def _relu(self, name: str, x: Floats) -> Floats:
        return np.maximum(self._layer(name, x), 0)


def limit_of(clues: Clues) -> float:
    """Log odds of strangers above which they are believed in, in one pool."""
    shots, dimension = float(np.exp(clues.pool[0, SHOTS])), float(clues.pool[0, DIMENSION])
    in_pieces = min(max((CLUSTERS - dimension) / RAMP, 0.0), 1.0)
    return LIMIT + FEW_LABELS / shots + PIECES * in_pieces


@cache
def stranger_network() -> StrangerNetwork:
    """Read the weights, once."""
    file = resources.files("sinkshot") / "data" / "strangers.npz"
    with file.open("rb") as opened, np.load(opened, allow_pickle=False) as weights:
        return StrangerNetwork(dict(weights))


def _joined(rows: Floats, same: Floats) -> Floats:
    """Append the same values to every row."""
    return np.concatenate([rows, np.broadcast_to(same, (len(rows), len(same)))], axis=1)
