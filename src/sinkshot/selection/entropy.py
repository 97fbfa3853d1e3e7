"""Entropy: rows whose class is most uncertain (Settles, "Active learning literature survey", 2009)."""

from __future__ import annotations

import numpy as np

from sinkshot.selection.registry import Pool, highest, register


@register("entropy", reference="Settles 2009")
def entropy(pool: Pool, count: int) -> list[int]:
    """Choose the rows with the largest entropy of their class probabilities, rows of no class last."""
    if pool.probabilities is None:
        return highest(pool.known, pool, count)
    p = np.clip(pool.probabilities, 1e-12, 1)
    return highest(-np.sum(p * np.log(p), axis=1) * pool.known, pool, count)
