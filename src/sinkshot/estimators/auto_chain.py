"""Choose the preprocessing chain by looking at the features."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from sinkshot import preprocess
from sinkshot.methods import Method

SIGNED_POWER = False  # whether signed features go through Ps; chosen on validation features, see `auto_chain`


def auto_chain(method: Method, features: NDArray[Any], has_base: bool) -> str:
    """Return the method's own chain, adapted to the features.

    The power step P needs non-negative features, such as those after a ReLU. It is left out for signed features, such
    as sentence vectors.

    Parameters
    ----------
    method : Method
    features : array of shape (n, d)
    has_base : bool
        Whether features of base classes are available for the step Mb.
    """
    spelled = method.preprocess if has_base else method.without_base
    steps = preprocess.parse(spelled)
    if preprocess.needs_base(steps) and not has_base:
        steps = tuple(step for step in steps if step.name != "Mb")
    if features.size and float(features.min()) < 0:
        signed = (preprocess.Step("Ps", step.beta) if step.name == "P" else step for step in steps)
        steps = tuple(step for step in signed if SIGNED_POWER or step.name != "Ps")
    return preprocess.spell(steps)
