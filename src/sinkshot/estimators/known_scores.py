"""A classifier from scores that are known: of a sample of a pool that was labelled in parts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data

from sinkshot import preprocess as chain
from sinkshot.estimators._preprocessing import FORM
from sinkshot.estimators.few_shot import FewShotClassifier
from sinkshot.estimators.label_input import read_labels
from sinkshot.estimators.outsiders import Taught
from sinkshot.task import Scores


def fit_to_scores(
    model: FewShotClassifier, x: Any, y: Any, scores: Scores, kin: NDArray[Any] | None = None
) -> FewShotClassifier:
    """Fit a classifier to rows whose scores the method gave before, as part of a larger pool.

    Parameters
    ----------
    model : FewShotClassifier
        With the method and the chain (not "auto") that gave the scores.
    x : array of shape (n, d)
    y : array-like of shape (n,)
        As in `FewShotClassifier.fit`.
    scores : Scores
        Of the unlabelled rows, in their order: probabilities [1, q, way] and unknown [1, q].
    kin : array of shape (q,), optional
        Their probability of being of a known kind of outsider.
    """
    rows = validate_data(model, x, **FORM)
    labels = read_labels(rows, y, None)
    model.preprocess_, model.classes_ = model.preprocess, labels.classes
    row_wise, _ = chain.split(chain.parse(model.preprocess))
    done = chain.run(rows, row_wise)
    model._row_wise, model._statistics = row_wise, done.statistics
    taught = None
    if kin is not None:
        taught = Taught(np.zeros(len(kin)) if scores.unknown is None else np.asarray(scores.unknown[0]), kin)
    model._learn(np.asarray(done.x), labels, scores, taught, None)
    return model
