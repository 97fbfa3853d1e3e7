"""SinkShot, the default of this library: one set of constants for any class sizes, with or without outliers.

Queries are allocated to classes by optimal transport, as in BMS, but class sizes are estimated: they are counted, then
shrunk towards equal sizes. If their spread is within the noise of counting, the pool is treated as balanced; the more
the spread exceeds that noise, the less the counts are shrunk. With many classes and unsure probabilities there is more
noise. Class probabilities are averaged over nearest neighbours before they are counted and before they move the class
weights. Each query is weighted by its probability of belonging to a class, on a scale estimated from the pool
(`strangers`). A temperature calibrates the final probabilities.

Steps, for centred rows of unit length: the centre is the mean of the base classes if known, else that of the class
means (Mc). [supports; p] are class-major coefficients [way, N], supports one-hot; a cosine is between a row and a class
weight.

1.  Graph: each row's 6 nearest others by cosine, weight max(cosine, 0)^4, A = (A + A^T) / 2, S = D^-1/2 A D^-1/2.
    In a pool of more than 40,000 rows neighbours are looked for in a sample (`sinkshot.kernels.landmarks`).
2.  Class weights are support means of unit length; pi = 1/way.
3.  Four times, t = 0 .. 3:
    a. p = softmax(lam_t cosine + log pi) of the queries, lam_t = 5 (22/5)^(t/4).
    b. smooth: M <- 0.3 [supports; p] + 0.7 M S, twice from M = [supports; p]; p = M / sum, then p^1.75 / sum. Where
       neighbours are close (mean cosine c above 0.68) they give more: 1 - 3 (1 - c)^2 in place of 0.7, at most 0.95,
       and as many times more as it takes for a row's own value to fade as far.
    c. At t = 1 only: known = (1 - unknown) weight and moves by `strangers`, which has more constants; before, both
       are 1.
    d. pi = counts shrunk towards equal ones (`sinkshot.methods.priors.shrunken_shares`), the more so the less sure p is
       where classes and supports are many; queries counted as far as known.
    e. p = Sinkhorn of p: class sums pi sum(known), row sums known, ten passes, ending on rows; p / known.
    f. weights = 1.5 supports + sum known moves p^2 row, of unit length.
4.  p = Sinkhorn of exp(9 cosine); b; Sinkhorn again, each as in e.
5.  Probabilities are p^(1/T) / sum, with log T = 0.2 - 0.15 log shots - 0.15 log(way / 5) + 1.6 (share of queries
    that are not where step 2 had them nearest) + 0.25 (way sum counts^2 - 1).

In a pool by itself, not in an episode, classes may have few dimensions, so that neighbours tell more than class means.
From step t = 1 on, labels spread over the graph then count beside or instead of the cosines (`_spread_labels`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeGuard

from array_api_compat import array_namespace, device, is_numpy_array

from sinkshot.arrays import kept, to_numpy
from sinkshot.kernels import LARGE_POOL, jit_disabled
from sinkshot.methods._graph import Graph, neighbour_graph
from sinkshot.methods._spread_labels import Joined, cosines_alone, spread_labels
from sinkshot.methods.algebra import PreparedTask, Rows, at_least, by_query, centred_rows, one_hot, rows_of, softmax
from sinkshot.methods.bms import transport_kernel, unit
from sinkshot.methods.oslo import sigmoid
from sinkshot.methods.priors import shrunken_shares
from sinkshot.methods.registry import register
from sinkshot.settings.sinkshot import (
    FAINT,
    FEWEST,
    LEAST_GAP,
    LEAST_KNOWN,
    LEAST_SQUARE,
    LEAST_STRANGERS,
    LEAST_VARIANCE,
    POOL_SETTINGS,
    PROBIT,
    SETTINGS,
    SinkShotSettings,
)
from sinkshot.task import Array, GramTask, Scores, Task

_TINY = 1e-30
Spreading = Callable[[Array], Array]
"""Class values of all rows [R, way, N] -> mixed with those of neighbours."""


@register(
    "sinkshot",
    transductive=True,
    preprocess="PEMbE",
    without_base="PEMcE",
    with_base="PEMbEWbE",
    gram=True,
    fused="sinkshot",
    rejects=True,
    reference="this library",
)
def sinkshot(task: Task | GramTask) -> Scores:
    """Alternate between estimating class sizes and allocating the queries to classes of those sizes."""
    return solve(task, SETTINGS)


def sinkshot_of_pool(task: Task) -> Scores:
    """Label a pool by itself, as estimators do: labels are spread over the graph where class means tell less."""
    return solve(task, POOL_SETTINGS)


def solve(task: Task | GramTask | PreparedTask, s: SinkShotSettings) -> Scores:
    """Run the method with given constants; `tools/choose_sinkshot.py` compares them."""
    if isinstance(task, PreparedTask):
        return run_steps(task.rows, task.graph(s.neighbours, s.sharpness), s)
    if is_large(task):
        return of_large_pool(task, s)
    rows = rows_of(task)
    return run_steps(rows, neighbour_graph(rows, s.neighbours, s.sharpness), s)


def is_large(task: Task | GramTask) -> TypeGuard[Task]:
    """Whether a task is a single pool of NumPy arrays with too many rows for matrices between all of them."""
    if isinstance(task, GramTask) or jit_disabled() or not is_numpy_array(task.query):
        return False
    return len(task.query) == 1 and task.supports + task.queries >= LARGE_POOL


def of_large_pool(task: Task, s: SinkShotSettings) -> Scores:
    """Run the method without matrices between all rows: products with features and a sparse graph, in threads."""
    from sinkshot.kernels.sinkshot_large import large_pool

    with large_pool(task) as pool:
        squares = pool.squares()
        member = one_hot(task.labels, task.way, squares)
        graph = pool.graph(s.neighbours, s.sharpness, task.nearest)
        s = s if pool.landmarks is None else replace(s, label_spreads=0)  # labels do not travel through a sample
        return run_steps(Rows(pool.product, squares, member, task.supports, task.queries), graph, s)


def run_steps(rows: Rows, graph: Graph, s: SinkShotSettings) -> Scores:
    """Run the steps on the rows of a task and their graph."""
    spreading = spreading_over(graph, s)
    belongs, first, joined = before_strangers(rows, graph, spreading, s)
    unknown, weight, moves = strangers(belongs, rows, graph, s)  # [R, 1, q] each
    known = at_least((1.0 - unknown) * weight, LEAST_KNOWN)
    share, _, scores = counted(belongs, known, moves, rows, s)
    for step in range(s.stranger_step + 1, s.steps):
        belongs = likely(joined(scores, s.lam_at(step)), share, step, rows, spreading, s)
        share, _, scores = counted(belongs, known, moves, rows, s)
    kernel = kept(transport_kernel(joined(scores, s.lam), s.lam))
    belongs = allocated(kernel, share, known, s.passes)
    belongs = kept(allocated(kept(smoothed(belongs, rows, spreading, s.power)), share, known, s.passes))
    shots = rows.supports / rows.member.shape[-2]
    return Scores(by_query(calibrated(belongs, first, known, shots, s)), unknown=unknown[..., 0, :])


def before_strangers(
    rows: Rows, graph: Graph, spreading: Spreading, s: SinkShotSettings
) -> tuple[Array, Array, Joined]:
    """Class probabilities when strangers are looked for, cosines to support means, [R, way, q] each; and how to join.

    The last is what makes cosines of the queries count beside labels that are spread over the graph.
    """
    _, scores = unit(rows.means(), rows)
    first = scores = scores[..., rows.supports :]
    xp = array_namespace(scores)
    share = xp.full_like(rows.member[..., :1], 1.0 / rows.member.shape[-2])  # pi, [R, way, 1]
    every = xp.ones_like(first[..., :1, :])  # [R, 1, q]
    joined: Joined = cosines_alone
    for step in range(s.stranger_step):
        belongs = likely(joined(scores, s.lam_at(step)), share, step, rows, spreading, s)
        share, belongs, scores = counted(belongs, every, every, rows, s)
        if step == 0 and s.label_spreads:
            joined = spread_labels(belongs, rows, graph, s)
    return likely(joined(scores, s.lam_at(s.stranger_step)), share, s.stranger_step, rows, spreading, s), first, joined


def likely(cosines: Array, share: Array, step: int, rows: Rows, spreading: Spreading, s: SinkShotSettings) -> Array:
    """Class probabilities of the queries from cosines to class weights, averaged over neighbours, [R, way, q]."""
    belongs = softmax(s.lam_at(step) * cosines + array_namespace(cosines).log(share), axis=-2)
    return kept(smoothed(belongs, rows, spreading, s.power))


def counted(belongs: Array, known: Array, moves: Array, rows: Rows, s: SinkShotSettings) -> tuple[Array, Array, Array]:
    """Estimated class sizes pi [R, way, 1], queries allocated to them, and their cosines to new class weights."""
    way = belongs.shape[-2]
    shots = rows.supports / way
    share = shrunken_shares(belongs, known, *s.doubts(way, shots))
    belongs = allocated(belongs, share, known, s.passes)
    _, scores = unit(rows.with_queries(s.support_weight * rows.member, known * moves * belongs * belongs), rows)
    return share, belongs, scores[..., rows.supports :]


def spreading_over(graph: Graph, s: SinkShotSettings) -> Spreading:
    """Return the function that mixes class values [R, way, N] with those of neighbours, by how close these are."""
    reaches = [s.reach(float(closeness)) for closeness in to_numpy(graph.closeness)] or [(s.spread, s.spreads)]
    if len(set(reaches)) == 1:
        return lambda values: graph.smooth(values, *reaches[0])
    shares, averages = zip(*reaches, strict=True)

    def spreading(values: Array) -> Array:
        xp = array_namespace(values)
        like = {"dtype": values.dtype, "device": device(values)}
        spread, times = (xp.asarray(each, **like)[:, None, None] for each in (shares, averages))
        mixed = values
        for done in range(max(averages)):
            further = (1.0 - spread) * values + spread * graph.smooth(mixed, 1.0, 1)
            mixed = xp.where(times > done, further, mixed)
        return mixed

    return spreading


def smoothed(belongs: Array, rows: Rows, spreading: Spreading, power: float) -> Array:
    """Average class probabilities [R, way, q] over neighbours, and sharpen them again."""
    mixed = spreading(rows.with_queries(rows.member, belongs))[..., rows.supports :]
    return _to_one(_to_one(mixed) ** power)


def allocated(kernel: Array, share: Array, known: Array, passes: int) -> Array:
    """Sinkhorn to class sums in proportion to `share` and row sums `known`; each row is then divided by its sum."""
    xp = array_namespace(kernel)
    target = share * xp.sum(known, axis=-1, keepdims=True)
    u = known / xp.sum(kernel, axis=-2, keepdims=True)
    for _ in range(passes):
        v = target / at_least(xp.sum(kernel * u, axis=-1, keepdims=True), _TINY)
        u = known / at_least(xp.sum(kernel * v, axis=-2, keepdims=True), _TINY)
    return _to_one(kernel * v)


def strangers(belongs: Array, rows: Rows, graph: Graph, s: SinkShotSettings) -> tuple[Array, Array, Array]:
    """Probability that each query belongs to none of the classes, on a scale estimated from the pool, and its weights.

    All are [R, 1, q]; the weights say how far a query counts, and how far it moves class weights.

    The evidence that a row belongs to a class is its cosine to that class plus its mean cosine to all classes, both
    after centring the pool and averaged over neighbours. It ranks the queries. How many of them are outliers is told by
    the supports, which are none: `share_of_strangers` compares how near supports and queries are to their classes.

    1.  Subtract half of the mean of all rows and half of the mean of the class means of [supports; p]; unit length.
        c0 = cosines to support means; over = mean of c0 over classes.
    2.  inlier = sigmoid(average(over) / 0.06), where `average` mixes three times over neighbours by D^-1 A with spread
        0.7 and supports have evidence 2.5. c1 = cosines to the means of supports and p inlier.
    3.  evidence e = average(sum p c1 + 2 over).
    4.  near = average(largest of c1, each to the mean of the other rows). left out = mean over queries of the largest
        c1 except that to their own class (largest p).
    5.  short = (mean of supports' near, by class sizes, less the mean of queries') / (the former less left out). f =
        the estimated share of outliers, by `share_of_strangers`.
    6.  e of the queries, less its mean and over its deviation, is a mixture of outliers and members with a common
        variance and share f, as `rejected` says. Where both are apart, f need not be exact: the cut is in the valley
        between them. Where they are one lump, f decides.
    7.  moves = sigmoid((e - 2 (short - 0.25)) / 0.06). With few labels nothing is rejected, but a query far from all
        classes should not move their weights either, the less so the more outliers there may be.
    8.  Where outliers are likely though not shown (`suspicion_of`), queries of less than usual evidence count for less:
        weight = (1 - suspicion sigmoid((0.5 - standardised e) / 0.4))^(1/2), and moves = weight (moves + suspicion (1 -
        moves)).
    """
    evidence, near, left_out = evidence_of(belongs, rows, graph, s)
    short, gap = shortfall(belongs, near, left_out, rows)
    unknown = rejected(evidence, share_of_strangers(belongs, near, short, gap, rows, s), s)
    moves = sigmoid((evidence - s.wary * (short - s.wary_from)) / s.inlier)
    suspicion = suspicion_of(belongs, evidence, short, rows, s)
    xp = array_namespace(evidence)
    weight = xp.sqrt(1.0 - suspicion * sigmoid((s.suspicion_below - standardised(evidence)) / s.suspicion_width))
    return unknown, weight, weight * (moves + suspicion * (1.0 - moves))


def suspicion_of(belongs: Array, evidence: Array, short: Array, rows: Rows, s: SinkShotSettings) -> Array:
    """How likely it is that some queries are outliers, [R, 1, 1].

    suspicion = sigmoid(30 (short - few - 0.85 mean of e - 0.77 unsure + 0.57)). Evidence is low where there are
    outliers, but also where p is unsure. It fades in a large pool, in which every class has rows enough, with
    the square of the rows over forty a class.
    """
    xp = array_namespace(belongs)
    unsure = 1.0 - xp.sum(belongs * belongs, axis=(-2, -1), keepdims=True) / rows.queries
    low = short - s.suspicion_few * labels_that_count(belongs, rows) - s.suspicion_unsure * unsure
    low = low - s.suspicion_evidence * xp.mean(evidence, axis=-1, keepdims=True)
    return s.suspicion_fade(belongs.shape[-2], rows.queries) * sigmoid(s.suspicion_slope * (low + s.suspicion_from))


def labels_that_count(belongs: Array, rows: Rows) -> Array:
    """One over the number of supports that a mean by class sizes depends on, [R, 1, 1]: sum of size^2 / shots."""
    xp = array_namespace(belongs)
    size = xp.mean(belongs, axis=-1, keepdims=True)  # [R, way, 1]
    return xp.sum(size * size / xp.sum(rows.member, axis=-1, keepdims=True), axis=-2, keepdims=True)


def standardised(evidence: Array) -> Array:
    """Evidence [R, 1, q] less its mean, over its deviation."""
    xp = array_namespace(evidence)
    centred = evidence - xp.mean(evidence, axis=-1, keepdims=True)
    return centred / xp.sqrt(at_least(xp.mean(centred * centred, axis=-1, keepdims=True), LEAST_VARIANCE))


def evidence_of(belongs: Array, rows: Rows, graph: Graph, s: SinkShotSettings) -> tuple[Array, Array, Array]:
    """Evidence of being known [R, 1, q], how near rows are to a class [R, 1, N], queries to the next [R, 1, 1]."""
    xp = array_namespace(belongs)
    way, count = belongs.shape[-2], rows.supports + rows.queries
    everywhere = rows.with_queries(rows.member, belongs)  # [R, way, N]
    of_classes = xp.mean(everywhere / xp.sum(everywhere, axis=-1, keepdims=True), axis=-2, keepdims=True)  # [R, 1, N]
    centred = centred_rows(rows, s.by_classes * of_classes + (1.0 - s.by_classes) / count)
    _, by_supports = unit(rows.means(), centred)
    overall = xp.mean(by_supports, axis=-2, keepdims=True)  # [R, 1, N]
    of_supports = xp.full_like(overall[..., : rows.supports], s.support_evidence)

    def averaged(values: Array) -> Array:
        return graph.average(values, s.spread, s.evidence_spreads)

    def with_supports(values: Array) -> Array:
        return xp.concat([of_supports, values[..., rows.supports :]], axis=-1)

    inlier = sigmoid(averaged(with_supports(overall))[..., rows.supports :] / s.inlier)
    scaled, cosine = unit(rows.with_queries(rows.member, inlier * belongs), centred)
    own = xp.sum(everywhere * cosine, axis=-2, keepdims=True)
    evidence = averaged(with_supports(own + s.overall * overall))[..., rows.supports :]
    near = averaged(xp.max(to_others(scaled, cosine, centred), axis=-2, keepdims=True))
    if way == 1:
        return evidence, near, xp.zeros_like(near[..., :1])
    left_out = one_hot(xp.argmax(belongs, axis=-2), way, cosine)
    second = xp.max(cosine[..., rows.supports :] - 9.0 * left_out, axis=-2, keepdims=True)
    return evidence, near, xp.mean(second, axis=-1, keepdims=True)


def to_others(scaled: Array, cosine: Array, rows: Rows) -> Array:
    """Cosines [R, way, N] of rows to class weights without the row itself, from `scaled` and `cosine` with it."""
    xp = array_namespace(scaled)
    itself = scaled * rows.squares[..., None, :]  # zero for a row without direction
    length = xp.sqrt(at_least(1.0 - 2.0 * scaled * cosine + scaled * itself, LEAST_SQUARE))
    return (cosine - itself) / length


def shortfall(belongs: Array, near: Array, left_out: Array, rows: Rows) -> tuple[Array, Array]:
    """How far queries are less near than supports, where the next class stands at one; that distance, [R, 1, 1] each.

    The reference is the mean of each class's supports in `near` [R, 1, N], weighted by class sizes.
    """
    xp = array_namespace(belongs)
    size = xp.mean(belongs, axis=-1, keepdims=True)  # [R, way, 1]
    of_supports, of_queries = near[..., : rows.supports], near[..., rows.supports :]
    by_class = xp.sum(rows.member * of_supports, axis=-1, keepdims=True) / xp.sum(rows.member, axis=-1, keepdims=True)
    reference = xp.sum(size * by_class, axis=-2, keepdims=True)  # [R, 1, 1]
    gap = at_least(reference - left_out, LEAST_GAP)
    return (reference - xp.mean(of_queries, axis=-1, keepdims=True)) / gap, gap


def share_of_strangers(belongs: Array, near: Array, short: Array, gap: Array, rows: Rows, s: SinkShotSettings) -> Array:
    """Estimate which share of the queries belongs to none of the classes, [R, 1, 1].

    Supports belong to a class, so queries that do are as `near` to theirs as supports are; outliers are less near, but
    nearer than queries are to the next class. So f = (short - offset) / 0.12, at most 0.6, with `short` and `gap` of
    `shortfall`. The offset is what `short` may be without outliers. Its reference is a mean of as many supports as 1 /
    few, few = sum of size^2 / shots: where sizes are unequal, it depends on the few labels of a large class, which may
    be nearer to each other than its rows are. So the offset has its standard error, and a part in proportion to `few`.
    Few supports are also too near to the rows that they themselves have attracted, the more so the less sure p is.
    Where p is unsure of most rows, nothing is rejected. Last, f is shrunk to f^3 / (f^2 + 0.3^2); at least 0.001.
    """
    xp = array_namespace(belongs)
    shots = xp.sum(rows.member, axis=-1, keepdims=True)  # [R, way, 1]
    size = xp.mean(belongs, axis=-1, keepdims=True)  # [R, way, 1]
    of_supports = near[..., : rows.supports]
    unsure = 1.0 - xp.sum(belongs * belongs, axis=(-2, -1), keepdims=True) / rows.queries
    attracted = xp.sum(size / (shots * xp.sqrt(shots)), axis=-2, keepdims=True)
    few = labels_that_count(belongs, rows)
    spread = xp.mean((of_supports - xp.mean(of_supports, axis=-1, keepdims=True)) ** 2, axis=-1, keepdims=True)
    error = xp.sqrt(few * spread * (rows.supports / max(rows.supports - 1, 1))) / gap
    offset = s.offset + error + s.offset_unsure * unsure * attracted + s.offset_few * few + s.offset_torn * unsure**8
    part = xp.clip((short - offset) / s.depth, min=1e-3, max=s.most_strangers)
    return at_least(part**3 / (part * part + s.few_strangers**2), LEAST_STRANGERS)


def rejected(evidence: Array, part: Array, s: SinkShotSettings) -> Array:
    """Probability [R, 1, q] of being the lower of two kinds of evidence, of which a share `part` [R, 1, 1] is.

    Expectation maximisation with that share given: means of both kinds and their common variance are estimated anew,
    then log odds = (m0 - m1)(e - (m0 + m1) / 2) / v + log(part / (1 - part)), eight times.
    """
    xp = array_namespace(evidence)
    queries = evidence.shape[-1]
    standard = standardised(evidence)
    prior = xp.log(part / (1.0 - part))
    odds = 2.0 * (prior / PROBIT - standard)
    for _ in range(s.rounds):
        unknown = sigmoid(odds)
        strange = xp.sum(unknown, axis=-1, keepdims=True) + FEWEST
        known = queries - strange + 2.0 * FEWEST
        low = xp.sum(unknown * standard, axis=-1, keepdims=True) / strange
        high = xp.sum((1.0 - unknown) * standard, axis=-1, keepdims=True) / known
        within = unknown * (standard - low) ** 2 + (1.0 - unknown) * (standard - high) ** 2
        variance = at_least(xp.mean(within, axis=-1, keepdims=True), s.least_within)
        odds = (low - high) * (standard - 0.5 * (low + high)) / variance + prior
    return sigmoid(odds)


def calibrated(belongs: Array, first: Array, known: Array, shots: float, s: SinkShotSettings) -> Array:
    """Soften probabilities [R, way, q] by a temperature, so that they are right as often as they say.

    An answer is less sure than it looks where many queries have left the support mean that was nearest to them at
    `first`, and where class sizes are unequal.
    """
    xp = array_namespace(belongs)
    way = belongs.shape[-2]
    rows = xp.sum(known, axis=-1, keepdims=True)  # [R, 1, 1]
    nearest = one_hot(xp.argmax(first, axis=-2), way, belongs)
    stayed = xp.sum(nearest * belongs * known, axis=(-2, -1), keepdims=True) / rows
    counts = xp.sum(belongs * known, axis=-1, keepdims=True) / rows  # [R, way, 1]
    spread = way * xp.sum(counts * counts, axis=-2, keepdims=True) - 1.0
    logarithm = s.log_temperature(shots, way) + s.temperature_change * (1.0 - stayed) + s.temperature_spread * spread
    temperature = xp.exp(at_least(logarithm, 0.0))
    return softmax(xp.log(at_least(belongs, FAINT)) / temperature, axis=-2)


def _to_one(values: Array) -> Array:
    """Divide class values [R, way, q] by their sum; where all are zero, every class gets the same."""
    xp = array_namespace(values)
    total = xp.sum(values, axis=-2, keepdims=True)
    return xp.where(total > 0, values / xp.where(total > 0, total, xp.ones_like(total)), 1.0 / values.shape[-2])
