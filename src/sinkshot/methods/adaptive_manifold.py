"""Adaptive manifold: Lazarou, Stathaki, Avrithis, "Adaptive manifold for imbalanced transductive few-shot learning",
WACV 2024.

The similarity of a query to a class comes from label propagation from the class centroid over a graph of nearest
neighbours. Adam optimises the centroids, and a width and a strength of every edge, for the loss of TIM, or of alpha-TIM
for unequal query sizes. The settings are those of the authors' code.
"""

from __future__ import annotations

from functools import partial

from array_api_compat import array_namespace, is_torch_array

from sinkshot.errors import number, whole
from sinkshot.methods import _tim
from sinkshot.methods._adam import Adam
from sinkshot.methods._manifold import ManifoldRows, compiled, in_triton, propagate, rows_of, slopes, start_of
from sinkshot.methods.algebra import by_query
from sinkshot.methods.registry import register
from sinkshot.settings.tim import TIMSettings
from sinkshot.task import Array, Scores, Task


@register(
    "adaptive-manifold",
    transductive=True,
    preprocess="PEMnE",
    balanced=True,
    imbalanced={"weights": (1.0, 1.0, 1.0), "alpha": "auto"},
    reference="Lazarou, Stathaki, Avrithis 2024",
)
def adaptive_manifold(
    task: Task,
    *,
    k: int | str = "auto",
    spread: float | str = "auto",
    alpha: float | str = 1.0,
    weights: tuple[float, float, float] = (1.0, 10.0, 1.0),
    temperature: float = 15.0,
    steps: int = 1000,
    lr: float = 1e-4,
) -> Scores:
    """Classify queries by label propagation with learnt class centroids and graph edges.

    Parameters
    ----------
    k : int or "auto"
        Neighbours that a row chooses; ties are all chosen. "auto" follows the authors: 20 below two shots on average,
        else 10.
    spread : float or "auto"
        Fraction that propagation passes on in each step; "auto": 0.8 below two shots, else 0.9.
    alpha : float or "auto"
        Order of the entropies of the queries, 1 being Shannon's; "auto": 2 below two shots, else 5.
    weights : three numbers
        Weights of the supports' cross-entropy, the entropy of the mean prediction, and the mean entropy of predictions.
    temperature : float
        Multiplies the propagated similarities.
    steps, lr : int, float
        Steps and learning rate of Adam; the result is the prediction of the last step, before its update.
    """
    few = task.supports < 2 * task.way
    k = (20 if few else 10) if k == "auto" else whole("k (unless 'auto')", k, least=1)
    spread = (0.8 if few else 0.9) if spread == "auto" else number("spread (unless 'auto')", spread, above=0)
    alpha = (2.0 if few else 5.0) if alpha == "auto" else number("alpha (unless 'auto')", alpha, above=0)
    settings = _tim.decide(weights, alpha, temperature, whole("steps", steps, least=1), lr)
    x, member, first = start_of(task)
    if compiled(x, spread, settings):
        from sinkshot.kernels.manifold_numba import probabilities

        return Scores(by_query(probabilities(x, member, first, k, spread, settings)))
    if in_triton(x, task.way):
        from sinkshot.kernels.manifold_cuda import ManifoldOnGPU

        found = ManifoldOnGPU(x, member, first, k, spread, settings).descend(settings.steps)
        return Scores(by_query(found[..., task.supports :]))
    if is_torch_array(x):
        from sinkshot.kernels.manifold_torch import Manifold

        slope = partial(_tim.slope_by_logits, member=member, settings=settings)
        found = Manifold(x, first, k, spread, settings.temperature, settings.lr, slope).descend(settings.steps)
        return Scores(by_query(found[..., task.supports :]))
    return Scores(by_query(_descend(rows_of(x, member, first, k, spread), settings)[..., task.supports :]))


def _descend(rows: ManifoldRows, settings: TIMSettings) -> Array:
    """Return p of all rows [R, way, n] in the last step."""
    xp = array_namespace(rows.x)
    pairs = rows.apart.shape[-1] + rows.first.shape[1]
    shift = Adam(xp.zeros_like(rows.first), settings.lr)  # of the centroids, [R, way, d]
    width = Adam(xp.ones_like(rows.x[:, :1, :1]) + xp.zeros((pairs, pairs), **rows.kind), settings.lr)
    strength = Adam(width.at * rows.spread, settings.lr)
    for _ in range(settings.steps - 1):
        found = propagate(rows, shift.at, width.at, strength.at, settings.temperature)
        by_logits = _tim.slope_by_logits(found.p, rows.member, settings)
        for moving, slope in zip((shift, width, strength), slopes(rows, found, by_logits, settings), strict=True):
            moving.move(slope)
    return propagate(rows, shift.at, width.at, strength.at, settings.temperature).p
