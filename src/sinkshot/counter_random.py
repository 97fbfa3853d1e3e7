"""Counter-based random numbers: each episode has its own stream, independent of what else is drawn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_ROWS_AT_ONCE = 1 << 22  # entries of the shuffled index table: bounds memory for any number of episodes
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser: a bijection of 64-bit words whose output bits look independent."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def streams(seed: int, first: int, episodes: int) -> NDArray[np.uint64]:
    """Key of each episode's stream of random words, shape [R]."""
    number = np.arange(first, first + episodes, dtype=np.uint64)
    start = mix(np.array([seed], dtype=np.uint64) * GOLDEN + GOLDEN)
    return mix(start + (number + np.uint64(1)) * GOLDEN)


def word(keys: NDArray[np.uint64], counter: int) -> NDArray[np.uint64]:
    """Random word number `counter` of each stream."""
    return mix(keys + np.uint64(counter * int(GOLDEN) % 2**64))


def below(bound: NDArray[np.int64] | int, keys: NDArray[np.uint64], counter: int) -> NDArray[np.int64]:
    """Integers in [0, bound) from word `counter` of each stream (bias below bound / 2^32)."""
    half = np.uint64(32)
    return ((word(keys, counter) >> half) * np.asarray(bound, dtype=np.uint64) >> half).astype(np.int64)


def shuffled(size: NDArray[np.int64], count: int, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
    """First `count` entries of a random permutation of 0 .. size-1 for each stream, shape [count, streams].

    Fisher-Yates on a table of all streams at once; rows are exchanged `count` times and never sorted.
    """
    picked = np.empty((count, len(keys)), dtype=np.int64)
    widest = int(size.max())
    block = max(1, _ROWS_AT_ONCE // widest)
    for begin in range(0, len(keys), block):
        part = slice(begin, begin + block)
        stream = np.arange(len(keys[part]))
        table = np.tile(np.arange(widest, dtype=np.int32), (len(stream), 1))
        for t in range(count):
            left = np.maximum(size[part] - t, 1)  # a class with too few rows repeats some; the caller drops them
            other = np.minimum(t, size[part] - 1) + below(left, keys[part], t)
            here = table[stream, other]
            table[stream, other] = table[:, min(t, widest - 1)]
            picked[t, part] = here
    return picked
