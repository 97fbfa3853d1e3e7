"""Random rows: the baseline for every strategy."""

from __future__ import annotations

import numpy as np

from sinkshot.selection.registry import Pool, register


@register("random", reference="uniform, without replacement")
def random(pool: Pool, count: int) -> list[int]:
    """Choose rows at random."""
    chosen = np.random.default_rng(pool.seed).permutation(pool.candidates)[:count]
    return [int(row) for row in chosen]
