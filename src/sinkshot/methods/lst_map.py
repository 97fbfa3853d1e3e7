"""LST+MAP: Chobola, Vašata, Kordík, "Transfer learning based few-shot classification using optimal transport mapping
from preprocessed latent space of backbone neural network", 2021.

The latent space transform divides rows by a power of their length instead of the length, subtracts the mean of the task
and divides by another power; then MAP follows, as in PT+MAP. The authors chose the powers, and how far and how often
centres move, for each data set and shot.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from array_api_compat import array_namespace

from sinkshot.errors import number, unknown_name, whole
from sinkshot.methods.priors import Prior
from sinkshot.methods.pt_map import pt_map
from sinkshot.methods.registry import register
from sinkshot.task import Array, Scores, Task


@dataclass(frozen=True)
class Constants:
    """What the authors' code sets for one data set and number of shots."""

    delta: float
    gamma: float
    alpha: float
    steps: int


PUBLISHED = {
    "cifar-fs": (Constants(0.3, 0.98, 0.3, 20), Constants(0.4, 0.95, 0.2, 20)),
    "cub": (Constants(0.7, 0.95, 0.4, 30), Constants(0.3, 0.90, 0.2, 20)),
}
"""By data set: at one shot, and at five."""


@register(
    "lst-map",
    transductive=True,
    preprocess="P",
    balanced=True,
    reference="Chobola, Vašata, Kordík 2021 (LST+MAP); Hu, Gripon, Pateux 2021 (PT+MAP)",
)
def lst_map(
    task: Task,
    *,
    constants: str = "cifar-fs",
    delta: float | str = "auto",
    gamma: float | str = "auto",
    alpha: float | str = "auto",
    steps: int | str = "auto",
    lam: float = 10.0,
    prior: Prior = "balanced",
) -> Scores:
    """Divide rows by a power of their length, centre them, divide again, and classify as PT+MAP does.

    Parameters
    ----------
    constants : {"cifar-fs", "cub"}
        The data set whose published constants "auto" stands for: below two shots on average those for one shot, else
        those for five.
    delta, gamma : float or "auto"
        Power of the length by which rows are divided before and after the mean is subtracted; one gives unit length.
    alpha : float or "auto"
        How far a centre moves towards the mean of its class's queries.
    steps : int or "auto"
        Updates of the centres.
    lam : float
        lambda in exp(-lambda ||x - mu||^2).
    prior : "balanced", "estimated" or class proportions [way] or [R, way]
        Class proportions among the queries.
    """
    if constants not in PUBLISHED:
        raise unknown_name("set of constants of lst-map", constants, PUBLISHED)
    of = PUBLISHED[constants][0 if task.supports < 2 * task.way else 1]
    delta = of.delta if delta == "auto" else number("delta (unless 'auto')", delta)
    gamma = of.gamma if gamma == "auto" else number("gamma (unless 'auto')", gamma)
    alpha = of.alpha if alpha == "auto" else number("alpha (unless 'auto')", alpha)
    steps = of.steps if steps == "auto" else whole("steps (unless 'auto')", steps, least=0)
    xp = array_namespace(task.support, task.query)
    x = _shortened(xp.concat([task.support, task.query], axis=-2), delta)  # [R, N, d]
    x = _shortened(x - xp.mean(x, axis=-2, keepdims=True), gamma)
    transformed = replace(task, support=x[..., : task.supports, :], query=x[..., task.supports :, :])
    return pt_map(transformed, lam=lam, alpha=alpha, steps=steps, prior=prior)


def _shortened(x: Array, power: float) -> Array:
    """Divide rows by a power of their length; zero rows stay zero."""
    xp = array_namespace(x)
    length = xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True))
    return x / xp.where(length > 0, length, xp.ones_like(length)) ** power
