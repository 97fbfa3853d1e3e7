"""What a file keeps of a bank, before it is checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class BankContent(NamedTuple):
    """Features, labels, class names, meta and base means as a file holds them.

    With `numbered`, labels are 0 .. C-1 in the order of `class_names`. Otherwise they are labels of any kind, and
    classes are numbered when the bank is made (`FeatureBank.from_arrays`).
    """

    features: NDArray[Any]  # [n, d]
    labels: NDArray[Any]  # [n]
    class_names: Sequence[str] | None
    meta: Mapping[str, str]
    base: Mapping[str, NDArray[np.float32]]
    numbered: bool = True
