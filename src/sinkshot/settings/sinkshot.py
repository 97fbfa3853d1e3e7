"""The constants of the method `sinkshot`, in one place that methods, kernels and engines read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SinkShotSettings:
    """One set of constants for pools of any balance; chosen on validation classes (docs/sinkshot-choice.md)."""

    neighbours: int = 6  # other rows that each row chooses
    sharpness: float = 4.0  # weight of a neighbour: its cosine, where positive, to this power
    spread: float = 0.7  # share of a row's probabilities that its neighbours give it
    spreads: int = 20  # averages over neighbours
    steps: int = 5  # estimates of the class sizes
    lam_first: float = 6.0  # what multiplies the cosines in the first step ...
    lam_last: float = 20.0  # ... and would in the one after the last
    noise: float = 6.0  # of counting, at one shot
    noise_fall: float = 0.5  # share of it that is gone at `most_shots`
    most_shots: float = 5.0
    noise_floor: float = 0.02  # of class sizes, however many rows are counted; over the way
    least_share: float = 0.004  # of a class
    passes: int = 10  # of Sinkhorn
    recentre: int = 3  # the step that centres anew
    refinements: int = 4  # rounds of logistic regression
    epochs: int = 40  # steps in each
    lam: float = 8.5  # what multiplies the cosines of refined weights
    refine_passes: int = 20  # of Sinkhorn, there


SETTINGS = SinkShotSettings()
