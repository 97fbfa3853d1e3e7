"""Which rows of a bank make each few-shot task: the protocols, and the draws behind them.

Episode i depends only on (labels, protocol, seed, i) and its sizes: every random number is a hash of where it is used.
The order of classes and of their rows does not depend on the sizes: a 5-shot support begins with that of 1-shot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot import query_sizes
from sinkshot.counter_random import GOLDEN, mix, shuffled, streams
from sinkshot.errors import InputError, number, unknown_name
from sinkshot.query_sizes import ALPHA, RATIO

Int = NDArray[np.int32]


@dataclass(frozen=True)
class Episodes:
    """Row numbers and labels of R episodes, sample-major: in a balanced one row i belongs to class i % way.

    Parameters
    ----------
    support : array of shape (R, l)
        Row numbers of the labelled rows.
    support_labels : array of shape (R, l)
        Their classes within the episode, 0 .. way-1.
    query : array of shape (R, q)
        Row numbers of the rows to classify.
    query_labels : array of shape (R, q)
        Their classes; -1 where the class has no support.
    recipe : Recipe
        How they were drawn.
    first : int
        The number of the first episode.

    See Also
    --------
    draw : Draw episodes.

    Examples
    --------
    >>> import numpy as np
    >>> import sinkshot
    >>> some = sinkshot.draw(np.repeat(np.arange(20), 30), shot=1, query=2, episodes=100)
    >>> len(some), len(some[10:20]), some.support_labels[0].tolist()
    (100, 10, [0, 1, 2, 3, 4])
    """

    support: Int  # [R, l]
    support_labels: Int  # [R, l]
    query: Int  # [R, q]
    query_labels: Int  # [R, q]; -1 where the class has no support
    recipe: Recipe
    first: int = 0

    def __len__(self) -> int:
        return len(self.support)

    def __getitem__(self, part: slice) -> Episodes:
        start, stop, step = part.indices(len(self))
        if step != 1:
            raise InputError(f"episodes can only be sliced with step 1; the step given is {step}.")
        support, labels = self.support[start:stop], self.support_labels[start:stop]
        query, query_labels = self.query[start:stop], self.query_labels[start:stop]
        return Episodes(support, labels, query, query_labels, self.recipe, self.first + start)


@dataclass(frozen=True)
class Recipe:
    """Everything but the labels that determines a set of episodes. Draw them all at once or in parts.

    Parameters
    ----------
    protocol : {"balanced", "official", "dirichlet", "long-tail", "open-set"}
        How queries are chosen; see `draw`.
    way : int
        Classes in an episode.
    shot : int
        Labelled rows per class.
    query : int
        Queries per class.
    episodes : int
        Number of episodes.
    seed : int
        Seed of the random numbers.
    alpha : float
        For the protocol `dirichlet`: the smaller, the less equal the class sizes.
    ratio : float
        For the protocol `long-tail`: ratio of the largest to the smallest class size.

    See Also
    --------
    draw : Draw without a recipe.
    evaluate : Evaluates a recipe part by part, in bounded memory.

    Examples
    --------
    >>> import sinkshot
    >>> bank = sinkshot.load("cifar-fs_wrn-28-10_novel")
    >>> recipe = sinkshot.Recipe(way=5, shot=1, query=15, episodes=100)
    >>> recipe.draw(bank.labels, first=10, count=5).query.shape
    (5, 75)
    """

    protocol: str = "balanced"
    way: int = 5
    shot: int = 1
    query: int = 15  # per class
    episodes: int = 10_000
    seed: int = 0
    alpha: float = ALPHA  # for `dirichlet`
    ratio: float = RATIO  # for `long-tail`: largest to smallest class

    @property
    def unequal(self) -> bool:
        """Whether query sizes differ from class to class."""
        return self.protocol in UNEQUAL

    @property
    def drawn_by(self) -> str:
        """The protocol and its parameter, for display: "dirichlet (alpha 2)"."""
        return {
            "dirichlet": f"dirichlet (alpha {self.alpha:g})",
            "long-tail": f"long-tail (ratio {self.ratio:g})",
        }.get(self.protocol, self.protocol)

    def draw(
        self,
        labels: NDArray[Any],
        first: int = 0,
        count: int | None = None,
        class_names: Sequence[str] | None = None,
    ) -> Episodes:
        """Draw episodes of this recipe.

        Parameters
        ----------
        labels : array of shape (n,)
            Class of each row of a bank.
        first : int
            The number of the first episode.
        count : int, optional
            Number of episodes; by default all from `first` on.
        class_names : sequence of str, optional
            Names of the classes in error messages.

        Returns
        -------
        Episodes
            An episode has the same rows whichever part of the recipe is drawn.
        """
        return draw(
            labels,
            protocol=self.protocol,
            way=self.way,
            shot=self.shot,
            query=self.query,
            episodes=self.episodes - first if count is None else count,
            seed=self.seed,
            first=first,
            alpha=self.alpha,
            ratio=self.ratio,
            class_names=class_names,
        )


@dataclass(frozen=True)
class _Classes:
    """Rows of a bank by class: class c owns `rows[start[c] : start[c] + size[c]]`, in file order."""

    rows: Int
    start: NDArray[np.int64]
    size: NDArray[np.int64]


def draw(
    labels: NDArray[Any],
    *,
    protocol: str = "balanced",
    way: int = 5,
    shot: int = 1,
    query: int = 15,
    episodes: int = 10_000,
    seed: int = 0,
    first: int = 0,
    alpha: float = ALPHA,
    ratio: float = RATIO,
    class_names: Sequence[str] | None = None,
) -> Episodes:
    """Draw few-shot episodes from the labels of a bank.

    Parameters
    ----------
    labels : array [n]
        Class of each row, 0 .. C-1.
    protocol : {"balanced", "official", "dirichlet", "long-tail", "open-set"}
        `balanced`: `query` queries of each class. `official`: the same, bit for bit the draws of the published code
        of BMS and PT-MAP. `dirichlet`: way * query queries whose class sizes follow a Dirichlet; a class may
        have none. `long-tail`: way * query queries whose class sizes fall geometrically from the largest to the
        smallest, at least one each; sizes are assigned to classes at random.
        `open-set`: `way` more classes without support, `query` queries each, labelled -1.
    way, shot, query : int
        Classes in an episode, supports and queries of a class.
    episodes, seed, first : int
        Number of episodes, seed of the random numbers, and number of the first episode.
    alpha : float
        For `dirichlet`, above 0: the smaller, the less equal the sizes. 2 is the field's setting.
    ratio : float
        For `long-tail`, at least 1: ratio of the largest to the smallest size, before rounding.
    class_names : sequence of str, optional
        Names of the classes in error messages.

    Returns
    -------
    Episodes
        With `support` [R, way*shot] and `query` [R, q]; the two never share a row.

    Examples
    --------
    >>> import numpy as np
    >>> some = draw(np.repeat(np.arange(20), 600), way=5, shot=1, query=15, episodes=100)
    >>> some.support.shape, some.query.shape
    ((100, 5), (100, 75))

    See Also
    --------
    Recipe : The same arguments, kept for later.
    Episodes : What is returned.
    """
    if protocol not in PROTOCOLS:
        raise unknown_name("protocol", protocol, PROTOCOLS)
    recipe = Recipe(protocol, way, shot, query, first + episodes, seed, alpha, ratio)
    classes = _group(labels)
    _check(recipe, first, classes, way if protocol == "open-set" else 0, class_names)
    support, query_rows, query_labels = PROTOCOLS[protocol](classes, recipe, first, episodes)  # [R, shot, way], ...
    support_labels = np.tile(np.arange(way, dtype=np.int32), (episodes, shot))
    return Episodes(support.reshape(episodes, way * shot), support_labels, query_rows, query_labels, recipe, first)


def query_counts(labels: NDArray[Any], recipe: Recipe, first: int, count: int) -> NDArray[np.int64]:
    """Return the number of queries of each class in episodes of unequal sizes, [R, way]; the recipe is checked."""
    return _counts(_group(labels), recipe, first, count)


def by_class(labels: NDArray[Any]) -> tuple[Int, Int, Int]:
    """Return rows sorted by class, and the start and size of each class, all int32."""
    classes = _group(labels)
    return classes.rows, classes.start.astype(np.int32), classes.size.astype(np.int32)


def _group(labels: NDArray[Any]) -> _Classes:
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not len(labels) or labels.min() < 0:
        raise InputError("labels must be whole numbers from 0 on, one per row; FeatureBank.from_arrays makes them.")
    size = np.bincount(labels)
    rows = np.argsort(labels, kind="stable").astype(np.int32)
    return _Classes(rows, np.cumsum(size) - size, size)


def _check(recipe: Recipe, first: int, classes: _Classes, open_classes: int, class_names: Sequence[str] | None) -> None:
    smallest = {"way": 2, "shot": 1, "query": 1, "seed": 0}
    for name, least in smallest.items():
        if getattr(recipe, name) < least:
            raise InputError(f"{name} must be at least {least}; {getattr(recipe, name)} was given.")
    bits = 32 if recipe.protocol == "official" else 63
    if recipe.seed >= 2**bits:
        raise InputError(f"seed must be below 2^{bits} under {recipe.protocol}; {recipe.seed} was given.")
    if first < 0 or recipe.episodes <= first:
        raise InputError(f"at least one episode must be drawn; {recipe.episodes - first} were requested.")
    number("alpha", recipe.alpha, above=0)
    if number("ratio", recipe.ratio) < 1:
        raise InputError(f"ratio (largest to smallest class) must be at least 1; {recipe.ratio:g} was given.")
    need, have = recipe.way + open_classes, len(classes.size)
    if need > have:
        extra = f" ({recipe.way} closed and {open_classes} open)" if open_classes else ""
        raise InputError(f"{need}-way episodes{extra} need {need} classes; the bank has {have}. Lower the way.")
    short = int(np.argmin(classes.size))
    tail = recipe.protocol == "long-tail"
    query = int(query_sizes.long_tail(recipe.way, recipe.query, recipe.ratio)[0]) if tail else recipe.query
    if classes.size[short] < recipe.shot + query:
        name = repr(class_names[short]) if class_names else str(short)
        what = f"the largest class of a long tail, {query} queries," if tail else f"{query} queries"
        raise InputError(
            f"class {name} has {classes.size[short]} rows; {recipe.shot} shots and {what} need "
            f"{recipe.shot + query}. Lower {'ratio, ' if tail else ''}shot or query, or leave the class out."
        )


def _pick(
    classes: _Classes, recipe: Recipe, first: int, episodes: int, ways: int, rows: int
) -> tuple[NDArray[np.int64], Int]:
    """Classes [R, ways] and, for each, `rows` of its row numbers in random order [R, rows, ways]."""
    keys = streams(recipe.seed, first, episodes)
    amount = np.full(episodes, len(classes.size))
    chosen = shuffled(amount, ways, keys).T  # [R, ways]
    position = np.arange(1, ways + 1, dtype=np.uint64)
    of_class = mix(keys[:, None] ^ mix(position * GOLDEN))  # [R, ways]
    within = shuffled(classes.size[chosen].ravel(), rows, of_class.ravel())  # [rows, R * ways]
    row = classes.rows[classes.start[chosen].ravel() + within]
    return chosen, np.ascontiguousarray(row.reshape(rows, episodes, ways).transpose(1, 0, 2))


# --- protocols: support rows [R, shot, way], query rows [R, q], query labels [R, q] ---------------------------------

_Drawn = tuple[Int, Int, Int]


def _balanced(classes: _Classes, recipe: Recipe, first: int, episodes: int) -> _Drawn:
    _, rows = _pick(classes, recipe, first, episodes, recipe.way, recipe.shot + recipe.query)
    return _split(rows, recipe)


def _split(rows: Int, recipe: Recipe) -> _Drawn:
    """Cut rows [R, shot + query, way] into supports and balanced queries."""
    labels = np.tile(np.arange(recipe.way, dtype=np.int32), (len(rows), recipe.query))
    return rows[:, : recipe.shot], rows[:, recipe.shot :].reshape(labels.shape), labels


def _official(classes: _Classes, recipe: Recipe, first: int, episodes: int) -> _Drawn:
    least = int(classes.size.min())  # larger classes are truncated to their first `least` rows
    key = (recipe.seed, len(classes.size), least, recipe.way)
    stream = _STREAMS.pop(key, None)  # removed while in use: another thread, or a call after an interrupt, starts again
    if stream is None or stream.next > first:
        stream = _OfficialStream(*key)
    while stream.next < first:
        stream.draw(1)
    rows = np.empty((episodes, recipe.shot + recipe.query, recipe.way), dtype=np.int32)
    for episode in rows:
        chosen, within = stream.draw(len(episode))
        episode[:] = classes.rows[classes.start[chosen] + within]
    _STREAMS[key] = stream
    return _split(rows, recipe)


class _OfficialStream:
    """The published sampler: one legacy generator for all episodes, so episode i requires drawing the i before it."""

    def __init__(self, seed: int, classes: int, size: int, way: int) -> None:
        self.classes, self.size, self.way = classes, size, way
        self.generator = np.random.RandomState(seed)  # legacy, as published
        self.next = 0

    def draw(self, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Classes [way] and positions within their classes [count, way] of the next episode."""
        chosen = self.generator.permutation(self.classes)[: self.way]
        index, within = np.arange(self.size), np.empty((count, self.way), dtype=np.int64)
        for column in range(self.way):
            index = self.generator.permutation(index)  # state kept from class to class
            within[:, column] = index[:count]
        self.next += 1
        return chosen, within


_STREAMS: dict[
    tuple[int, int, int, int], _OfficialStream
] = {}  # the last stream of each kind, at the position where it stopped


def _unequal(classes: _Classes, recipe: Recipe, first: int, episodes: int) -> _Drawn:
    way, shot, total = recipe.way, recipe.shot, recipe.way * recipe.query
    counts = _counts(classes, recipe, first, episodes)
    _, rows = _pick(classes, recipe, first, episodes, way, shot + int(counts.max()))
    queries = rows[:, shot:]
    taken = np.arange(queries.shape[1])[:, None] < counts[:, None, :]  # [R, most, way], `total` of them in each episode
    labels = np.broadcast_to(np.arange(way, dtype=np.int32), taken.shape)
    return rows[:, :shot], queries[taken].reshape(-1, total), labels[taken].reshape(-1, total)


def _counts(classes: _Classes, recipe: Recipe, first: int, episodes: int) -> NDArray[np.int64]:
    """Queries of each class [R, way] under a protocol of unequal sizes."""
    if recipe.protocol == "long-tail":
        return query_sizes.long_tails(recipe.way, recipe.query, recipe.seed, first, episodes, recipe.ratio)
    chosen, _ = _pick(classes, recipe, first, episodes, recipe.way, 0)
    return query_sizes.dirichlet(classes.size[chosen] - recipe.shot, recipe.query, recipe.seed, first, recipe.alpha)


def _open_set(classes: _Classes, recipe: Recipe, first: int, episodes: int) -> _Drawn:
    way = recipe.way
    _, rows = _pick(classes, recipe, first, episodes, 2 * way, recipe.shot + recipe.query)
    support, closed, labels = _split(np.ascontiguousarray(rows[:, :, :way]), recipe)
    strangers = rows[:, recipe.shot :, way:].reshape(closed.shape)
    return support, np.hstack([closed, strangers]), np.hstack([labels, np.full_like(labels, -1)])


PROTOCOLS: dict[str, Callable[[_Classes, Recipe, int, int], _Drawn]] = {
    "balanced": _balanced,
    "official": _official,
    "dirichlet": _unequal,
    "long-tail": _unequal,
    "open-set": _open_set,
}
UNEQUAL = ("dirichlet", "long-tail")
"""Protocols whose query sizes differ from class to class."""
