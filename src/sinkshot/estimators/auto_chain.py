"""Choose the preprocessing chain by looking at the features."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from sinkshot import preprocess
from sinkshot.methods import Method

WHITENED = ("sinkshot",)
"""Methods whose chain goes on with "WE" for non-negative features, where there are no base features.

Chosen on validation classes, 20 draws with strangers: accuracy +4.9 on birds by EfficientNet-Lite0 (15 classes), +0.8
on CIFAR-FS by our WRN-28-10 (10 classes), +0.9 and +0.4 with 48, 24, 12, 6 and 3 unlabelled rows. Shrinkages of 3 and
30 were not better on both. Sentence vectors, which are signed, lose 0.1.
"""
LEAST_SHOTS = 3  # labels per class from which W helps; with one, accuracy on CIFAR-FS (10 classes) falls by 1.6
SIGNED_POWER = False  # whether signed features go through Ps; chosen on validation features, see `auto_chain`


def auto_chain(method: Method, features: NDArray[Any], has_base: bool, shots: float = 0.0) -> str:
    """Return the method's own chain, adapted to the features.

    The power step P needs non-negative features, such as those after a ReLU. It is left out for signed features, such
    as sentence vectors. For `sinkshot` without base features, non-negative features are then whitened with shrinkage
    (W) and brought to unit length, which makes up for networks that were not trained for few-shot classification.

    Parameters
    ----------
    method : Method
    features : array of shape (n, d)
    has_base : bool
        Whether features of base classes are available for the step Mb.
    shots : float, optional
        Labels per class, where known; W needs a few.
    """
    spelled = method.preprocess if has_base else method.without_base
    steps = preprocess.parse(spelled)
    if preprocess.needs_base(steps) and not has_base:
        steps = tuple(step for step in steps if step.name != "Mb")
    if features.size and float(features.min()) < 0:
        signed = (preprocess.Step("Ps", step.beta) if step.name == "P" else step for step in steps)
        steps = tuple(step for step in signed if SIGNED_POWER or step.name != "Ps")
    if method.name in WHITENED and shots >= LEAST_SHOTS and not has_base and any(step.name == "P" for step in steps):
        steps = (*steps, *preprocess.parse("WE"))
    return preprocess.spell(steps)
