"""Greedy choice of rows whose gains only fall as others are chosen, without computing every gain every time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sinkshot.selection.registry import Floats

_AT_ONCE = 256  # candidates whose gains are computed together


def lazy_greedy(
    count: int,
    candidates: int,
    gains_of: Callable[[NDArray[np.int64]], Floats],
    choose: Callable[[int], None],
) -> list[int]:
    """Choose `count` of the candidates, each time the one with the largest gain; ties go to the first.

    Parameters
    ----------
    count : int
        How many, at most.
    candidates : int
        Their number; they are called 0 .. candidates-1.
    gains_of : callable
        The gains of some candidates, given what has been chosen. A candidate's gain must never rise.
    choose : callable
        Called with each candidate that is chosen.
    """
    bounds = np.full(candidates, np.inf)  # no gain is larger
    chosen: list[int] = []
    for _ in range(min(count, candidates)):
        while True:
            top = np.sort(np.argsort(-bounds, kind="stable")[:_AT_ONCE])
            top = top[bounds[top] > -np.inf]
            bounds[top] = gains_of(top)
            best = int(top[np.argmax(bounds[top])])
            rest = np.delete(bounds, top)
            if not len(rest) or bounds[best] >= rest.max():
                break
        chosen.append(best)
        choose(best)
        bounds[best] = -np.inf
    return chosen
