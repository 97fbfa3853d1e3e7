"""Soft k-means: Bendou et al., "EASY: ensemble augmented-shot Y-shaped learning", J. Imaging 2022.

Class centres and soft assignments of the queries are refined alternately; supports always have weight one. Nothing is
assumed about the class sizes.
"""

from __future__ import annotations

from array_api_compat import array_namespace

from sinkshot.errors import number, whole
from sinkshot.methods.algebra import by_query, rows_of, softmax
from sinkshot.methods.registry import register
from sinkshot.task import Array, GramTask, Scores, Task


@register("soft-kmeans", transductive=True, preprocess="MnE", gram=True, reference="Bendou et al. 2022 (EASY)")
def soft_kmeans(task: Task | GramTask, *, temperature: float = 5.0, steps: int = 30) -> Scores:
    """Refine class means by soft assignments of the queries.

    Parameters
    ----------
    temperature : float
        T in softmax(-T ||x - mu||^2).
    steps : int
        Number of assignments; the last one, with the centres of the step before, is the result.
    """
    temperature, steps = number("temperature", temperature, above=0), whole("steps", steps, least=1)
    assignment, _ = refine(task, temperature, steps)
    return Scores(by_query(assignment))


def refine(task: Task | GramTask, temperature: float, steps: int) -> tuple[Array, Array]:
    """Return the last assignment [R, way, q] and the coefficients [R, way, N] of the centres that gave it."""
    rows = rows_of(task)
    xp = array_namespace(rows.member)
    centres = rows.means()
    assignment = softmax(-temperature * rows.distances(centres), axis=-2)  # [R, way, q]
    for _ in range(steps - 1):
        mass = rows.with_queries(rows.member, assignment)
        centres = mass / xp.sum(mass, axis=-1, keepdims=True)
        assignment = softmax(-temperature * rows.distances(centres), axis=-2)
    return assignment, centres
