"""A classifier from scores that are known: of a sample of a pool that was labelled in parts."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from sinkshot import preprocess as chain
from sinkshot.estimators._preprocessing import FORM
from sinkshot.estimators.few_shot import FewShotClassifier
from sinkshot.estimators.label_input import read_labels
from sinkshot.task import Scores


def fit_to_scores(model: FewShotClassifier, x: Any, y: Any, scores: Scores) -> FewShotClassifier:
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
    """
    rows = validate_data(model, x, **FORM)
    labels = read_labels(rows, y, None)
    model.preprocess_, model.classes_ = model.preprocess, labels.classes
    row_wise, _ = chain.split(chain.parse(model.preprocess))
    done = chain.run(rows, row_wise)
    model._row_wise, model._statistics = row_wise, done.statistics
    model._learn(np.asarray(done.x), labels, scores, model._threshold(labels), None)
    return model
