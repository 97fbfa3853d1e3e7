"""The constants of the method `sinkshot`, in one place that methods, kernels and engines read."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]

LEAST_KNOWN = 1e-6  # of a query's weight, however strange it is
LEAST_VARIANCE = 1e-4  # of evidence
LEAST_GAP = 1e-3  # between supports and the next class, in cosines
LEAST_SQUARE = 1e-4  # of the length of a class weight without one row; it is 1 with it
LEAST_STRANGERS = 1e-3  # share of them, which is none
FEWEST = 1e-3  # rows, where none is known or none strange
PROBIT = 1.7  # log odds over this are near the quantile of a normal distribution
FAINT = 1e-9  # a probability below counts as this one
FAINT_LABEL = 1e-6  # a class value of labels spread over the graph below counts as this one
MOST_WITHIN = 0.99  # mean cosine of two rows of a class; more counts as this
LEAST_SHARED, MOST_SHARED = 0.01, 0.99  # part of a row's deviation from its class that neighbours share


@dataclass(frozen=True)
class SinkShotSettings:
    """One set of constants for pools of any balance; docs/sinkshot-choice.md tells how they were chosen."""

    # the graph of nearest neighbours
    neighbours: int = 6  # other rows that each row chooses
    sharpness: float = 4.0  # weight of a neighbour: its cosine, where positive, to this power
    spread: float = 0.7  # share of a row's values that its neighbours give it, at least
    spreads: int = 2  # averages of class probabilities over neighbours, at that share
    distance_doubt: float = 3.0  # the share is 1 less this times (1 - closeness)^2 where that is more ...
    most_spread: float = 0.95  # ... and at most this
    power: float = 1.75  # of averaged probabilities, 1 + 1/2 + 1/4: square roots compute it

    # steps
    steps: int = 4  # estimates of the class sizes
    lam_first: float = 5.0  # multiplies the cosines in the first step ...
    lam_last: float = 22.0  # ... and would in the one after the last
    lam: float = 9.0  # multiplies the cosines in the closing allocation
    passes: int = 10  # of Sinkhorn
    support_weight: float = 1.5  # of a support among queries in a class mean; queries weigh the square of their share

    # doubt about counted class sizes
    noise: float = 6.0  # times the variance of counting, at one shot ...
    noise_fall: float = 0.35  # ... and falling with the shots to this power
    most_shots: float = 5.0  # more shots count as this many
    bias: float = 0.02  # what stays however many rows are counted, at one class ...
    bias_fall: float = 0.8  # ... and falling with the classes to this power
    unsure_noise: float = 5.0  # added noise: this (1 - 1/shots) / way ...
    unsure_from: float = 0.55  # ... times what u = 1 - mean of sum p^2 is above this
    doubt: float = 1.5  # belief is 1 / (1 + (noise / spread)^doubt)
    least_share: float = 0.005  # of a class, over the way

    # labels spread over the graph: how much they count depends on the dimension of the classes
    label_spreads: int = 0  # averages of the labels over neighbours; none in episodes, see POOL_SETTINGS
    label_spread: float = 0.9  # share that neighbours give
    clusters: float = 10.0  # dimension from which classes are clusters and labels are not spread, ...
    clusters_few: float = 3.0  # ... less this over the shots
    ramp: float = 1.5  # by so much less, spread labels count fully
    surfaces: float = 8.5  # dimension below which class means count less ...
    only_surfaces: float = 7.5  # ... and below which they count no more

    # strangers
    stranger_step: int = 1  # in which they are looked for
    by_classes: float = 0.5  # weight of the mean of class means beside the mean of all rows, from which they are seen
    overall: float = 2.0  # weight of a row's mean cosine to all classes beside that to its own
    support_evidence: float = 2.5  # of a support: it is known
    evidence_spreads: int = 3  # averages of evidence over neighbours
    inlier: float = 0.06  # width of the step in which rows near no class stop moving the weights
    depth: float = 0.12  # how far strangers stand below supports, where the next class stands at one
    offset: float = 0.015  # how far known queries stand below supports, beside a standard error ...
    offset_unsure: float = 0.65  # ... and more where p is unsure, falling with the shots to the power 1.5, ...
    offset_few: float = 1.0  # ... and more by this over the number of supports that count, fewer in skewed pools, ...
    offset_torn: float = 4.0  # ... and more by this times the eighth power of how unsure p is
    few_strangers: float = 0.3  # an estimated share of strangers below this is mostly taken as none
    most_strangers: float = 0.6
    wary: float = 2.0  # evidence at which rows stop moving the weights: this times ...
    wary_from: float = 0.25  # ... how far queries stand below supports, less this
    suspicion_slope: float = 30.0  # log odds of outliers: this times how far queries stand below supports ...
    suspicion_few: float = 1.0  # ... less this over the number of supports that count ...
    suspicion_unsure: float = 0.77  # ... less this times how unsure p is ...
    suspicion_evidence: float = 0.85  # ... less this times the mean evidence ...
    suspicion_from: float = 0.57  # ... and this
    suspicion_rows: float = 40.0  # queries over the classes, above which suspicion fades
    suspicion_below: float = 0.5  # rows count for less below this evidence, in deviations from the mean, ...
    suspicion_width: float = 0.4  # ... in a step of this width
    rounds: int = 8  # of the mixture
    least_within: float = 0.05  # variance of each kind of evidence, where that of both together is one

    # temperature of the answer: exp of a sum
    temperature: float = 0.2  # a constant,
    temperature_shots: float = -0.15  # times the logarithm of the shots, up to ten,
    temperature_way: float = -0.15  # times that of a fifth of the way,
    temperature_change: float = 1.6  # times the share of queries that left their nearest support mean,
    temperature_spread: float = 0.25  # times the relative variance of the class sizes

    def noise_at(self, shots: float) -> float:
        """Factor of the variance of counting at a mean number of shots."""
        return float(self.noise * min(max(shots, 1.0), self.most_shots) ** -self.noise_fall)

    def bias_at(self, way: int) -> float:
        """Part of the noise that does not fall with the number of rows."""
        return float(self.bias * way**-self.bias_fall)

    def unsure_at(self, way: int, shots: float) -> float:
        """Factor of the noise where class probabilities are unsure; none at one shot, where `noise` is large anyway."""
        return self.unsure_noise * (1.0 - 1.0 / max(shots, 1.0)) / way

    def doubts(self, way: int, shots: float) -> tuple[float, float, float, float, float, float]:
        """Constants of `sinkshot.methods.priors.shrunken_shares`, in their order."""
        noise, bias = self.noise_at(shots), self.bias_at(way)
        return noise, bias, self.doubt, self.least_share, self.unsure_at(way, shots), self.unsure_from

    def lam_at(self, step: int) -> float:
        """What multiplies the cosines in a step, counted from 0."""
        return float(self.lam_first * (self.lam_last / self.lam_first) ** (step / self.steps))

    def reach(self, closeness: float) -> tuple[float, int]:
        """Share that neighbours of this mean cosine give, and averages: own values fade as after `spreads` of them."""
        spread = min(max(1.0 - self.distance_doubt * (1.0 - closeness) ** 2, self.spread), self.most_spread)
        return spread, math.ceil(self.spreads * math.log(self.spread) / math.log(spread) - 0.01)

    def weights_of_labels_and_means(self, dimension: Floats, shots: float) -> tuple[Floats, Floats]:
        """Weights of labels spread over the graph and of class means, where classes have this dimension."""
        of_labels = np.clip((self.clusters - self.clusters_few / shots - dimension) / self.ramp, 0.0, 1.0)
        less = np.clip((self.surfaces - dimension) / (self.surfaces - self.only_surfaces), 0.0, 1.0)
        return of_labels, 1.0 - of_labels * less

    def suspicion_fade(self, way: int, queries: int) -> float:
        """What the suspicion of outliers is multiplied with in a pool of this size."""
        return float(min(1.0, (self.suspicion_rows * way / max(queries, 1)) ** 2))

    def log_temperature(self, shots: float, way: int) -> float:
        """Part of the temperature's logarithm that the size of a task decides."""
        by_shots = self.temperature_shots * math.log(min(max(shots, 1.0), 10.0))
        return self.temperature + by_shots + self.temperature_way * math.log(way / 5)


SETTINGS = SinkShotSettings()
POOL_SETTINGS = replace(SETTINGS, label_spreads=30)
"""Of a pool by itself, as estimators label it; docs/spread-labels-choice.md tells how they were chosen."""
