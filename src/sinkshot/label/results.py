"""What `label` returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.errors import InputError
from sinkshot.label.classifier import Answers
from sinkshot.label.items import Items


@dataclass(frozen=True)
class Labelled:
    """What `label` found.

    Parameters
    ----------
    items : Items
        What was labelled, in input order.
    answers : Answers or None
        None where nothing was labelled yet; `summary["next"]` says what to label first.
    summary : dict
        Numbers about the whole, as in summary.json.
    features : array of shape (n, d)
        Features of the items, in the same order.

    See Also
    --------
    label : Makes it.

    Examples
    --------
    >>> import numpy as np, pandas as pd, sinkshot
    >>> table = pd.DataFrame({"x": [0.0, 0.1, 5.0, 5.1], "y": [5.0, 5.1, 0.0, 0.1], "label": ["a", "", "b", ""]})
    >>> sinkshot.label(table, unknown=None).to_frame()["label"].tolist()
    ['a', 'a', 'b', 'b']
    """

    items: Items
    answers: Answers | None
    summary: dict[str, Any]
    features: NDArray[Any]

    def to_frame(self) -> Any:
        """Return one row per item as a pandas data frame, with the columns of labels.csv.

        Returns
        -------
        pandas.DataFrame
            In input order.
        """
        try:
            import pandas as pd
        except ImportError:
            raise InputError("to_frame needs pandas: pip install pandas.") from None
        if self.answers is None:
            return pd.DataFrame({self.items.column: list(self.items.names), "label": ""})
        ranked, answers = self.answers.ranked, self.answers
        ordered = np.take_along_axis(answers.probabilities, ranked, axis=1)
        several = len(answers.classes) > 1
        return pd.DataFrame(
            {
                self.items.column: list(self.items.names),
                "label": list(answers.labels),
                "confidence": answers.confidence,
                "unknown": answers.unknown,
                "second": [answers.classes[row[1]] for row in ranked] if several else "",
                "margin": ordered[:, 0] - ordered[:, 1] if several else 1.0,
                "source": list(answers.sources),
            }
        )
