"""The grammar of preprocessing chains such as "PEMnE": parse a chain, write it back, split it in two.

`sinkshot.preprocess` implements the steps.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sinkshot.errors import InputError

_STEP = re.compile(r"(?P<name>Ps|P|Wb|W)(?P<number>\d*\.?\d+)?|E|Mn|Ma|Mb|Mc|Z|B")
_NAMES = "P, Ps, E, Mn, Ma, Mb, Mc, W, Wb, Z, B"
_USUAL = {"W": 10.0, "Wb": 10.0}  # the number of a step where none is written; 0.5 for all others
OF_TASK = ("Mn", "Ma", "Mc", "W", "Z", "B")  # steps that need the whole task, not just one row


_WHOSE_MEAN = (
    " M needs a second letter: Mn (mean of the task), Ma (of supports and of queries separately), Mb (of the base "
    "classes) or Mc (of the class means)."
)


@dataclass(frozen=True)
class Step:
    """One step of a chain.

    Parameters
    ----------
    name : str
        P, Ps, E, Mn, Ma, Mb, Mc, W, Wb, Z or B.
    beta : float
        The exponent of P and Ps; the shrinkage of W and Wb.

    See Also
    --------
    parse : Read a chain into steps.

    Examples
    --------
    >>> from sinkshot.preprocess import Step
    >>> str(Step("P", 0.4))
    'P0.4'
    """

    name: str
    beta: float = 0.5

    def __str__(self) -> str:
        return self.name if self.beta == _USUAL.get(self.name, 0.5) else f"{self.name}{self.beta:g}"


Chain = tuple[Step, ...]


def parse(chain: str) -> Chain:
    """Read a chain such as "PEMnE".

    Parameters
    ----------
    chain : str
        Steps from left to right; "" for none.

    Returns
    -------
    tuple of Step
        The steps in order.

    See Also
    --------
    spell : The inverse.

    Examples
    --------
    >>> from sinkshot.preprocess import parse
    >>> [step.name for step in parse("PEMnE")]
    ['P', 'E', 'Mn', 'E']
    """
    if not isinstance(chain, str):
        raise InputError(f"a chain is a string such as 'PEMnE', or '' for none; {chain!r} was given.")
    steps: list[Step] = []
    at, signed = 0, False
    while at < len(chain):
        match = _STEP.match(chain, at)
        if match is None:
            hint = _WHOSE_MEAN if chain[at] == "M" else ""
            raise InputError(f"unknown preprocessing step {chain[at:]!r} in {chain!r}; the steps are {_NAMES}.{hint}")
        name = match["name"] or match[0]
        beta = float(match["number"] or _USUAL.get(name, 0.5))
        if beta == 0 and name in ("W", "Wb"):
            raise InputError(f"the shrinkage of {name} in {chain!r} is 0, which divides by zero; 10 is usual.")
        if beta == 0:
            raise InputError(f"the power in {chain!r} is 0, which makes all features equal; 0.5 is usual.")
        step = Step(name, beta)
        if step.name == "P" and signed:
            raise InputError(f"P needs features >= 0, but the mean was subtracted before it in {chain!r}; use Ps.")
        signed = step.name != "B" and (signed or step.name in ("Mn", "Ma", "Mb", "Mc", "W", "Wb", "Z"))
        steps.append(step)
        at = match.end()
    return tuple(steps)


def spell(steps: Sequence[Step]) -> str:
    """Write steps as a chain.

    Parameters
    ----------
    steps : sequence of Step
        The steps in order.

    Returns
    -------
    str
        The chain.

    See Also
    --------
    parse : The inverse.

    Examples
    --------
    >>> from sinkshot.preprocess import parse, spell
    >>> spell(parse("P0.5EMnE"))
    'PEMnE'
    """
    return "".join(str(step) for step in steps)


def needs_base(steps: Sequence[Step]) -> bool:
    """Whether the chain has a step that uses the base classes: Mb their mean, Wb their features."""
    return any(step.name in ("Mb", "Wb") for step in steps)


def needs_base_features(steps: Sequence[Step]) -> bool:
    """Whether the chain has the step Wb, which needs features of the base classes, not only their mean."""
    return any(step.name == "Wb" for step in steps)


def split(steps: Chain) -> tuple[Chain, Chain]:
    """Split a chain into its row-wise part, which can be applied to a bank once, and the part that needs the task."""
    cut = next((i for i, step in enumerate(steps) if step.name in OF_TASK), len(steps))
    return steps[:cut], steps[cut:]
