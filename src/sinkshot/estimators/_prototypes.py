"""Classifiers with one prototype per class: their base class, and the two whose prototypes are means."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from sinkshot.errors import InputError
from sinkshot.estimators._preprocessing import FORM, PreprocessedEstimator, Rows
from sinkshot.methods.algebra import by_query, softmax
from sinkshot.methods.soft_kmeans import refine
from sinkshot.task import Task


class PrototypeClassifier(ClassifierMixin, PreprocessedEstimator):  # type: ignore[misc]
    """Base class: makes a task from labelled and unlabelled rows, and predicts from prototypes."""

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from labelled rows and label the others.

        Parameters
        ----------
        X : array of shape (n, d)
            Features; float32 is computed in float32, every other type in float64.
        y : array of shape (n,)
            Labels; -1, or "-1" if labels are strings, marks a row as unlabelled.

        Returns
        -------
        estimator
            Itself.
        """
        x, y = validate_data(self, X, y, **FORM)
        labelled = ~((y == -1) | (y == "-1"))
        if not labelled.any():
            raise InputError("every row of y is -1 (unlabelled); label at least one row of each class.")
        check_classification_targets(y[labelled])
        self.classes_, labels = np.unique(y[labelled], return_inverse=True)
        rows = self._fit_chain(x)
        task = Task(rows[labelled][None], labels[None], rows[~labelled][None], len(self.classes_))
        del rows  # free memory: a pool is large, and the task holds a copy
        self.prototypes_, assignment = self._solve(task)
        self.label_distributions_ = np.zeros((len(y), task.way), dtype=x.dtype)
        self.label_distributions_[labelled, labels] = 1.0
        self.label_distributions_[~labelled] = assignment
        self.transduction_ = self.classes_[self.label_distributions_.argmax(axis=1)]
        self._fitted(labelled)
        return self

    def _fitted(self, labelled: NDArray[np.bool_]) -> None:
        """Set attributes that only some classifiers have."""

    def predict_proba(self, X: Any) -> Rows:
        """Return the class probabilities of new rows, each independent of the others.

        Parameters
        ----------
        X : array of shape (n, d)
            Features.

        Returns
        -------
        array of shape (n, classes)
            Rows sum to one.
        """
        return np.asarray(softmax(self._logits(self._apply_chain(X)), axis=-1))

    def predict(self, X: Any) -> Rows:
        """Return the most probable class of each new row.

        Parameters
        ----------
        X : array of shape (n, d)
            Features.

        Returns
        -------
        array of shape (n,)
            Labels.
        """
        best = self.predict_proba(X).argmax(axis=1)  # first: it raises if nothing was fitted
        return np.asarray(self.classes_[best])

    def _solve(self, task: Task) -> tuple[Rows, Rows]:
        """Return prototypes [way, d] and the assignment [q, way] of the queries of a single task."""
        raise NotImplementedError  # each classifier has its own

    def _logits(self, rows: Rows) -> Rows:
        """Return the logits [n, way] of rows [n, d]: -||x - w||^2 without ||x||^2, which cancels in the softmax."""
        return np.asarray(2.0 * (rows @ self.prototypes_.T) - np.sum(self.prototypes_**2, axis=-1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # The toy data of the checks has two columns; after P and E only an angle is left.
        tags.classifier_tags.poor_score = tags.input_tags.positive_only
        return tags


def points(coefficients: Rows, task: Task) -> Rows:
    """Return the points [way, d] that have coefficients [1, way, N] of a task's rows, without joining those."""
    of_support, of_query = np.split(coefficients[0], [task.supports], axis=-1)
    return np.asarray(of_support @ task.support[0] + of_query @ task.query[0])


class NearestClassMean(PrototypeClassifier):
    """Assign each row to the class with the nearest mean: the paper's method for the inductive case.

    Parameters
    ----------
    preprocess : str, default="PE"
        The chain, as in `PEME`. If you have features of base classes, give them as `base` and use "PEMbE".
    base : array of shape (n, d) or FeatureBank, optional
        Features of the base classes, for the step Mb.

    Attributes
    ----------
    classes_ : array of shape (classes,)
    prototypes_ : array of shape (classes, d)
        Class means after the chain.
    transduction_ : array of shape (n,)
        The label of every row given to `fit`; labelled rows keep theirs.
    label_distributions_ : array of shape (n, classes)
        Its probabilities, softmax(-||x - mean||^2) for unlabelled rows.
    statistics_, n_features_in_
        As in `PEME`.

    See Also
    --------
    BMSClassifier : Uses the unlabelled rows as well.
    SoftKMeansClassifier : Refines the means by the unlabelled rows.

    Examples
    --------
    >>> import numpy as np
    >>> from sinkshot import NearestClassMean
    >>> truth = np.array(["cat", "dog"] * 50)
    >>> features = np.random.default_rng(0).gamma(1 + (truth[:, None] == np.array(["cat", "dog"] * 16)))
    >>> model = NearestClassMean().fit(features[:10], truth[:10])
    >>> model.predict(features[10:14]).tolist()
    ['cat', 'dog', 'cat', 'dog']
    """

    def __init__(self, preprocess: str = "PE", base: Any = None) -> None:
        self.preprocess = preprocess
        self.base = base

    def _solve(self, task: Task) -> tuple[Rows, Rows]:
        assignment, means = refine(task, temperature=1.0, steps=1)  # soft k-means before its first refinement
        return points(means, task), by_query(assignment)[0]


class SoftKMeansClassifier(PrototypeClassifier):
    """Refine class means by soft assignments of the unlabelled rows; nothing is assumed about the class sizes.

    Parameters
    ----------
    preprocess : str, default="PEMnE"
        The chain, as in `PEME`; `base` belongs to it.
    temperature : float, default=5.0
        T in softmax(-T ||x - mean||^2).
    steps : int, default=30
        Number of alternating updates of assignments and means.
    base : array of shape (n, d) or FeatureBank, optional
        Features of the base classes, for the step Mb.

    Attributes
    ----------
    classes_, prototypes_, transduction_, label_distributions_, statistics_, n_features_in_
        As in `NearestClassMean`; `prototypes_` are the refined means.

    See Also
    --------
    NearestClassMean : The means without refinement.
    BMSClassifier : Assigns rows by optimal transport.

    Examples
    --------
    >>> import numpy as np
    >>> from sinkshot import SoftKMeansClassifier
    >>> truth = np.arange(200) % 2
    >>> pool = np.random.default_rng(0).gamma(1 + (truth[:, None] == np.arange(32) % 2))  # 200 rows of 32 features
    >>> y = np.where(np.arange(200) < 10, truth, -1)  # 10 of them labelled
    >>> model = SoftKMeansClassifier().fit(pool, y)
    >>> float(np.mean(model.transduction_ == truth))
    0.995
    """

    def __init__(self, preprocess: str = "PEMnE", temperature: float = 5.0, steps: int = 30, base: Any = None) -> None:
        self.preprocess = preprocess
        self.temperature = temperature
        self.steps = steps
        self.base = base

    def _solve(self, task: Task) -> tuple[Rows, Rows]:
        assignment, centres = refine(task, float(self.temperature), self.steps)
        return points(centres, task), by_query(assignment)[0]

    def _logits(self, rows: Rows) -> Rows:
        return float(self.temperature) * super()._logits(rows)
