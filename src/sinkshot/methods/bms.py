"""Boosted Min-size Sinkhorn: Hu, Pateux, Gripon, "Squeezing backbone feature distributions to the max", 2021.

Two steps alternate: optimal transport allocates the queries to classes, each of at least a minimum size (Algorithm 1),
and logistic regression on that allocation refines the class weights (Algorithm 2). With a prior on the class sizes it
is BMS*. The published way to count the smallest class suits balanced queries; the variant `robust` suits others. This
is the readable reference that faster engines are tested against.

The paper contradicts itself on lambda: after its Eq. 5, the allocation has the form exp(-C / lambda), which sharpens as
lambda falls; Algorithm 1 starts at softmax(-lambda C), which sharpens as lambda grows. We follow Algorithm 1, as the
authors' code and the paper's Figure 5 do.

Every weight is a linear combination w_j = sum_i a_ji x_i of the task's rows, so the code holds the coefficients `a` and
uses only the inner products of the rows (`Rows`). This Gram form replaces the QR decomposition by which the paper
shortens its features: both keep all inner products. Arrays are class-major, [R, way, N].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from array_api_compat import array_namespace

from sinkshot.arrays import kept
from sinkshot.errors import number, unknown_name, whole
from sinkshot.methods._sinkhorn import in_triton
from sinkshot.methods.algebra import Rows, at_least, by_query, rows_of, softmax
from sinkshot.methods.priors import Prior, proportions, settled
from sinkshot.methods.registry import register
from sinkshot.settings.bms import BMSSettings, column_target, first_min_size, min_size_of
from sinkshot.settings.constants import LEAST_LOGIT
from sinkshot.task import Array, GramTask, Scores, Task

VARIANTS = ("published", "letter", "robust")
_TINY = 1.2e-38  # of single precision, not zero
_REFERENCE = "Hu, Pateux, Gripon 2021, Algorithms 1 and 2"


@register("bms", transductive=True, preprocess="PEMnE", gram=True, fused="bms", reference=_REFERENCE)
@register(
    "bms-star",
    transductive=True,
    preprocess="PEMnE",
    gram=True,
    fused="bms",
    balanced=True,
    reference=_REFERENCE,
    prior="balanced",
)
def bms(
    task: Task | GramTask,
    *,
    lam: float = 8.5,
    epochs: int | str = "auto",
    steps: int = 20,
    passes: int = 50,
    lr: float = 0.1,
    momentum: float = 0.8,
    kappa: float = 1.0,
    prior: Prior = None,
    variant: str = "published",
) -> Scores:
    """Alternate between allocating queries by min-size Sinkhorn and refining class weights by logistic regression.

    Parameters
    ----------
    lam : float
        lambda, which multiplies the cosines before Sinkhorn (Algorithm 1).
    epochs : int or "auto"
        e, steps of logistic regression in each iteration; 0 leaves the weighted mean (Eq. 10, 11). "auto" follows the
        paper: below two shots on average 0, or 20 with a prior; else 40.
    steps, passes : int
        Iterations of Algorithm 2, and of Algorithm 1 within each.
    lr, momentum : float
        Learning rate and momentum of stochastic gradient descent.
    kappa : float
        Initial scale of the logits (Eq. 13) in each iteration; it is learnt with the weights.
    prior : None, "balanced", "estimated" or class proportions [way]
        None estimates the size of the smallest class (BMS); otherwise every class gets exactly its proportion of the
        queries (BMS*): equal, estimated from the task, or given.
    variant : {"published", "letter", "robust"}
        `published`: as the authors' code does: Sinkhorn on the queries, supports fixed, the smallest class counted over
        all rows. `letter`: the algorithms as printed, over all rows. `robust`: as published, but the smallest class is
        counted over queries only, which does not assume balanced queries.
    """
    shares = settled(prior, task)
    settings = decide(task.way, task.supports, lam, epochs, steps, passes, lr, momentum, kappa, shares, variant)
    return Scores(by_query(solve(task, settings).assignment))


def decide(
    way: int,
    supports: int,
    lam: float,
    epochs: int | str,
    steps: int,
    passes: int,
    lr: float,
    momentum: float,
    kappa: float,
    prior: Prior,
    variant: str,
) -> BMSSettings:
    """Check hyper-parameters and resolve those that depend on the size of the task."""
    if variant not in VARIANTS:
        raise unknown_name("variant of BMS", variant, VARIANTS)
    if epochs == "auto":
        few = supports < 2 * way
        epochs = (0 if prior is None else 20) if few else 40
    return BMSSettings(
        number("lam", lam, above=0),
        whole("epochs (unless 'auto')", epochs, least=0),
        whole("steps", steps, least=1),
        whole("passes", passes, least=1),
        number("lr", lr, above=0),
        number("momentum", momentum),
        number("kappa", kappa, above=0),
        proportions(prior, way),
        variant,
    )


@dataclass(frozen=True)
class Solution:
    """The last allocation of the queries, rows summing to one, and the weights it leads to."""

    assignment: Array  # [R, way, q]
    refine: Callable[[], Array]  # computes the coefficients [R, way, N] of those weights


def solve(task: Task | GramTask, settings: BMSSettings) -> Solution:
    """Run Algorithm 2."""
    rows = rows_of(task)
    xp = array_namespace(rows.member)
    letter = settings.variant == "letter"
    shots = xp.sum(rows.member, axis=-1, keepdims=True)  # [R, way, 1]
    min_size = first_min_size(settings, shots, rows.queries, task.way)
    target = column_target(settings, shots, rows.queries)

    _, scores = unit(rows.means(), rows)
    for step in range(settings.steps):
        free = scores if letter else scores[..., rows.supports :]  # the rows that Sinkhorn allocates
        kernel = kept(transport_kernel(free, settings.lam))
        if target is None:
            allocated = min_size_sinkhorn(kernel, min_size, settings.passes)
        else:
            allocated = sinkhorn(kernel, target, settings.passes)
        assignment = allocated if letter else rows.with_queries(rows.member, allocated)  # [R, way, N]
        if step == settings.steps - 1:
            break
        min_size = min_size_of(assignment, rows.queries, settings.variant)
        _, scores = update(assignment, rows, settings)

    of_queries = assignment[..., rows.supports :]
    xp = array_namespace(of_queries)
    of_queries = of_queries / xp.sum(of_queries, axis=-2, keepdims=True)
    return Solution(of_queries, refine=lambda: update(assignment, rows, settings)[0])


def transport_kernel(scores: Array, lam: float) -> Array:
    """Return exp(-lam C) with C = 1 - scores, up to a factor for each row, which the row step removes."""
    xp = array_namespace(scores)
    logits = lam * (scores - xp.max(scores, axis=-2, keepdims=True))
    return xp.exp(xp.clip(logits, min=LEAST_LOGIT))


def min_size_sinkhorn(kernel: Array, min_size: Array, passes: int, mass: Array | float = 1.0) -> Array:
    """Algorithm 1 in scaling form: P = diag(u) K diag(v), classes below the minimum size scaled up to it.

    Each row has mass one, or its `mass` [R, 1, n].

    A pass that scales no class is a fixed point, so stopping there does not change the result. Only ratios of v matter:
    its largest entry is kept at one, since with fewer rows than way * min_size it would grow without bound.
    """
    if in_triton(kernel):
        from sinkshot.kernels.sinkhorn_triton import min_size as on_gpu

        return on_gpu(kernel, min_size, mass, passes)
    xp = array_namespace(kernel)
    v = xp.ones_like(kernel[..., :1])  # [R, way, 1]
    for _ in range(passes):
        v = v / xp.max(v, axis=-2, keepdims=True)
        u = mass / xp.sum(kernel * v, axis=-2, keepdims=True)  # [R, 1, n]: each row sums to its mass
        size = v * xp.sum(kernel * u, axis=-1, keepdims=True)  # [R, way, 1]
        small = size < min_size
        if not bool(xp.any(small)):
            break
        v = xp.where(small, v * min_size / at_least(size, _TINY), v)
    return u * kernel * v


def sinkhorn(kernel: Array, target: Array, passes: int) -> Array:
    """Alternately scale classes to their targets and rows to one, ending on the rows."""
    xp = array_namespace(kernel)
    v = xp.ones_like(kernel[..., :1])
    u = 1.0 / xp.sum(kernel, axis=-2, keepdims=True)
    for _ in range(passes):
        v = target / xp.sum(kernel * u, axis=-1, keepdims=True)
        u = 1.0 / xp.sum(kernel * v, axis=-2, keepdims=True)
    return u * kernel * v


def update(assignment: Array, rows: Rows, settings: BMSSettings) -> tuple[Array, Array]:
    """Weighted means of unit length (Eq. 10, 11), then `epochs` steps of logistic regression on them (Eq. 12, 13)."""
    xp = array_namespace(assignment)
    a, scores = unit(assignment, rows)
    mass = xp.sum(assignment, axis=-2, keepdims=True)  # [R, 1, N]
    kappa = xp.full_like(assignment[..., :1, :1], settings.kappa)  # [R, 1, 1]
    speed, kappa_speed = xp.zeros_like(a), xp.zeros_like(kappa)
    for _ in range(settings.epochs):
        error = (softmax(kappa * scores, axis=-2) * mass - assignment) / assignment.shape[-1]  # d loss / d logits
        pull = kappa * error
        along = xp.sum(scores * pull, axis=-1, keepdims=True)  # the part that would only change the length of w_j
        speed = settings.momentum * speed + (pull - along * a)
        kappa_speed = settings.momentum * kappa_speed + xp.sum(error * scores, axis=(-2, -1), keepdims=True)
        a, scores = unit(a - settings.lr * speed, rows)
        kappa = kappa - settings.lr * kappa_speed
    return a, scores


def unit(a: Array, rows: Rows) -> tuple[Array, Array]:
    """Coefficients of unit-length weights, and their scores w_j . x_i, both [R, way, N]."""
    xp = array_namespace(a)
    scores = rows.product(a)
    length = xp.sqrt(xp.clip(xp.sum(a * scores, axis=-1, keepdims=True), min=0.0))  # [R, way, 1]
    length = xp.where(length > 0, length, xp.ones_like(length))
    return a / length, scores / length
