"""What each step sees: which images, and how they are rotated, paired and mixed.

Every number is a function of (seed, stage, step), drawn on the host by a counter-based generator. So a run that goes on
needs no generator's state, a GPU sees what a CPU sees, and several processes each take their groups of one batch.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sinkshot.backbones.recipes import GROUPS, Stage

NUMBERS = 10  # uniform random numbers that augmentation takes for a view
_ORDER, _STEP, _OTHER = 0, 1, 2  # streams


@dataclass(frozen=True)
class Plan:
    """One step of one process, as arrays. Views are in the order mixed, plain, turned; m, p, t of them, v in all."""

    rows: NDArray[np.int64]  # [b] images
    source: NDArray[np.int64]  # [v] the image of each view
    turn: NDArray[np.int64]  # [v] quarter turns
    partner: NDArray[np.int64]  # [v] the view it is mixed with, which is mixed with it; itself where unmixed
    lam: NDArray[np.float32]  # [v] its own share; 1 where unmixed
    numbers: NDArray[np.float32]  # [v, NUMBERS] in [0, 1)
    depth: int  # where activations are mixed; 0: the images
    mixed: int  # m
    plain: int  # p
    seed: int  # of whatever else is random on this process, such as dropout


def generator(seed: int, *place: int) -> np.random.Generator:
    """Return the generator of one place of a run."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, *place))))


def rows_at(seed: int, stage: int, images: int, start: int, count: int) -> NDArray[np.int64]:
    """Return `count` image numbers from position `start` of an endless row of shuffled epochs on."""
    found, position = [], start
    while count > 0:
        epoch, within = divmod(position, images)
        part = _shuffled(seed, stage, epoch, images)[within : within + count]
        found.append(part)
        position, count = position + len(part), count - len(part)
    return np.concatenate(found)


@functools.lru_cache(maxsize=2)
def _shuffled(seed: int, stage: int, epoch: int, images: int) -> NDArray[np.int64]:
    return generator(seed, _ORDER, stage, epoch).permutation(images)


def plan(stage: Stage, *, seed: int, number: int, step: int, images: int, blocks: int, rank: int, world: int) -> Plan:
    """Return what process `rank` of `world` sees in a step of stage `number`.

    Images are shuffled, so pairing the first of a group with its last, and so on inwards, is as random as any pairing.
    """
    group = stage.batch // GROUPS
    rng = generator(seed, _STEP, number, step)
    depth = int(rng.integers(0, blocks + 1))
    mixed = _members(stage.views.mixed, group)  # [m / GROUPS] places in a group, as below
    plain = _members(stage.views.plain, group)
    rotated = _members(stage.views.rotated, group)
    four = _members(stage.views.four, group)
    lam = rng.beta(stage.alpha, stage.alpha, (GROUPS, len(mixed)) if stage.lam == "image" else ())
    turns = rng.integers(0, 4, (GROUPS, len(rotated)))
    numbers = rng.random((GROUPS, len(mixed) + len(plain) + len(rotated) + len(four), NUMBERS), np.float32)

    mine = slice(rank * GROUPS // world, (rank + 1) * GROUPS // world)
    groups = mine.stop - mine.start
    first = (np.arange(groups) * group)[:, None]  # where each of my groups begins among my images
    once = len(numbers[0]) - len(four)  # views of a group before those that come four times
    kinds = [mixed, plain, rotated, np.repeat(four, 4)]
    draws = np.split(numbers[mine, :once], np.cumsum([len(mixed), len(plain)]), axis=1)
    draws.append(np.repeat(numbers[mine, once:], 4, axis=1))
    quarter = np.tile(np.arange(4), (groups, len(four)))

    count = [groups * len(kind) for kind in kinds]
    place = np.arange(count[0]).reshape(groups, -1)
    upright = np.zeros(count[0] + count[1], np.int64)
    position = step * stage.batch + mine.start * group
    return Plan(
        rows=rows_at(seed, number, images, position, groups * group),
        source=np.concatenate([(first + kind).ravel() for kind in kinds]),
        turn=np.concatenate([upright, turns[mine].ravel(), quarter.ravel()]),
        partner=np.concatenate([place[:, ::-1].ravel(), np.arange(count[0], sum(count))]),
        lam=np.concatenate([_own(lam, mine, count[0]), np.ones(sum(count[1:]))]).astype(np.float32),
        numbers=np.concatenate([draw.reshape(-1, NUMBERS) for draw in draws]),
        depth=depth,
        mixed=count[0],
        plain=count[1],
        seed=int(generator(seed, _OTHER, number, step, rank).integers(2**63)),
    )


def _members(share: float, group: int) -> NDArray[np.int64]:
    """Return the places in a group that a kind of view takes: all, as often as whole, then the first ones."""
    return np.arange(round(share * group)) % group


def _own(lam: NDArray[np.float64] | float, mine: slice, count: int) -> NDArray[np.float64]:
    return np.full(count, lam) if np.ndim(lam) == 0 else np.asarray(lam)[mine].ravel()
