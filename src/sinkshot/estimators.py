"""The scikit-learn face: a transformer for the preprocessing chain, and classifiers that label a pool from a handful.

Every classifier here sends its rows through a chain such as "PEMnE", holds one prototype per class in the space behind
it, and reads unlabelled rows (y == -1) as the queries of a single task.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from sinkshot import preprocess as chain
from sinkshot.bank import FeatureBank
from sinkshot.errors import InputError, number
from sinkshot.kernels import LARGE
from sinkshot.methods import METHODS
from sinkshot.methods._algebra import by_query, rows_of, softmax
from sinkshot.methods._prior import Prior, estimate
from sinkshot.methods.bms import Settings, decide, solve
from sinkshot.methods.soft_kmeans import refine
from sinkshot.rejecting import Rejecting
from sinkshot.task import Task

Rows = NDArray[Any]
UNKNOWN = "unknown"  # the label of a row of no class, among strings
# float32 stays, all else becomes float64; `_refuse_unusable` says better than scikit-learn where a NaN stands.
_FORM = {"dtype": (np.float64, np.float32), "ensure_all_finite": False}


class _Chained(BaseEstimator):  # type: ignore[misc]
    """An estimator with a chain: takes its means from the rows of `fit` and uses them again on every later row."""

    def _fit_chain(self, x: Rows) -> Rows:
        """Return checked rows [n, d] behind the chain, and keep what the chain took from them."""
        steps = chain.parse(self.preprocess)
        prepared = _run(x, steps, base_mean=self._base_mean(steps, x.shape[1]))
        self.chain_, self.statistics_ = steps, prepared.statistics
        return np.asarray(prepared.x)

    def _apply_chain(self, X: Any) -> Rows:
        """Return new rows behind the fitted chain, each whatever the others are."""
        check_is_fitted(self, "statistics_")
        x = validate_data(self, X, reset=False, **_FORM)
        return np.asarray(_run(x, self.chain_, statistics=self.statistics_).x)

    def _base_mean(self, steps: chain.Chain, width: int) -> chain.BaseMean | None:
        if self.base is None or not chain.needs_base(steps):
            return None
        base = check_array(self.base, input_name="base", **_FORM)
        if base.shape[1] != width:
            raise InputError(f"base has {base.shape[1]} columns and X has {width}; both must come from one backbone.")
        _refuse_unusable(base, steps, "base")
        return chain.base_mean_of({}, FeatureBank(base, np.zeros(len(base), dtype=np.int64), ("base",)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = any(step.name == "P" for step in chain.parse(self.preprocess))
        return tags


def _run(x: Rows, steps: chain.Chain, **means: Any) -> chain.Prepared:
    _refuse_unusable(x, steps, "X")
    prepared = chain.run(x, steps, **means)
    chain.warn_of_zero_rows(prepared.zero_rows)
    return prepared


def _refuse_unusable(x: Rows, steps: chain.Chain, name: str) -> None:
    """Raise the error for entries that no chain, or not this one, can take: it names the first."""
    finite = np.isfinite(x)
    if not finite.all():
        row, column = np.unravel_index(finite.argmin(), x.shape)
        value = "NaN" if np.isnan(x[row, column]) else str(x[row, column])
        raise InputError(f"{name} is {value} in row {row}, column {column} (from 0); remove or repair that row.")
    if any(step.name == "P" for step in steps):
        try:
            chain.refuse_negative(x, "row")
        except InputError as error:  # scikit-learn's checks look for its own words before ours
            raise InputError(f"Negative values in data passed as {name}: {error}") from None


def _plain(value: Any) -> Any:
    """Return a NumPy scalar, as a search over np.linspace gives, as a Python number, which keeps float32 float32."""
    return value.item() if isinstance(value, np.generic) else value


class PEME(OneToOneFeatureMixin, TransformerMixin, _Chained):  # type: ignore[misc]
    """Preprocess features by a chain of steps: power, unit length, mean subtraction, unit length.

    Parameters
    ----------
    preprocess : str, default="PEMnE"
        The chain, read from left to right: P power (features >= 0), Ps signed power, E unit length, Mn subtract the
        mean of the rows given to `fit`, Mb subtract the mean of `base` at that point, Z batch norm; see
        `sinkshot.preprocess`.
    base : array of shape (n, d), optional
        Features of the base classes, for the step Mb.

    Attributes
    ----------
    statistics_ : tuple of (shift, scale)
        What each step Mn, Mb, Z subtracts and divides by (None: does not divide).
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from sinkshot import PEME
    >>> features = np.random.default_rng(0).gamma(0.5, size=(100, 8))
    >>> prepared = PEME().fit_transform(features)
    >>> bool(np.allclose(np.linalg.norm(prepared, axis=1), 1))
    True
    """

    def __init__(self, preprocess: str = "PEMnE", base: Any = None) -> None:
        self.preprocess = preprocess
        self.base = base

    def fit(self, X: Any, y: Any = None) -> Self:
        """Take the means of the chain from rows X of shape (n, d); y is ignored."""
        self._fit_chain(validate_data(self, X, **_FORM))
        return self

    def transform(self, X: Any) -> Rows:
        """Send rows of shape (n, d) through the chain with the means of `fit`."""
        return self._apply_chain(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class _PrototypeClassifier(ClassifierMixin, _Chained):  # type: ignore[misc]
    """What the classifiers share: a task from labelled and unlabelled rows, and answers from prototypes."""

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from labelled rows and label the others.

        Parameters
        ----------
        X : array of shape (n, d)
            Features; float32 is computed in float32, every other type in float64.
        y : array of shape (n,)
            Labels; -1, or the string "-1" among strings, marks a row as unlabelled.
        """
        x, y = validate_data(self, X, y, **_FORM)
        labelled = ~((y == -1) | (y == "-1"))
        if not labelled.any():
            raise InputError("every row of y is -1, which means unlabelled; label at least one row of each class.")
        check_classification_targets(y[labelled])
        self.classes_, labels = np.unique(y[labelled], return_inverse=True)
        rows = self._fit_chain(x)
        task = Task(rows[labelled][None], labels[None], rows[~labelled][None], len(self.classes_))
        del rows  # a pool is large, and the task holds it
        self.prototypes_, assignment = self._solve(task)
        self.label_distributions_ = np.zeros((len(y), task.way), dtype=x.dtype)
        self.label_distributions_[labelled, labels] = 1.0
        self.label_distributions_[~labelled] = assignment
        self.transduction_ = self.classes_[self.label_distributions_.argmax(axis=1)]
        self._fitted(labelled)
        return self

    def _fitted(self, labelled: NDArray[np.bool_]) -> None:
        """Add what only some classifiers hold."""

    def predict_proba(self, X: Any) -> Rows:
        """Return the probabilities (n, classes) of new rows, each whatever the others are."""
        return np.asarray(softmax(self._logits(self._apply_chain(X)), axis=-1))

    def predict(self, X: Any) -> Rows:
        """Return the most probable class of each new row."""
        best = self.predict_proba(X).argmax(axis=1)  # first: it says so where nothing was fitted
        return np.asarray(self.classes_[best])

    def _solve(self, task: Task) -> tuple[Rows, Rows]:
        """Return prototypes [way, d] and the assignment [q, way] of the queries of a single task."""
        raise NotImplementedError

    def _logits(self, rows: Rows) -> Rows:
        """Return what the softmax of rows [n, d] is taken of, [n, way]: -||x - w||^2 without ||x||^2, which cancels."""
        return np.asarray(2.0 * (rows @ self.prototypes_.T) - np.sum(self.prototypes_**2, axis=-1))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # The checks' toy data has two columns; P and E leave it no more than an angle.
        tags.classifier_tags.poor_score = tags.input_tags.positive_only
        return tags


def _points(coefficients: Rows, task: Task) -> Rows:
    """Return the points [way, d] that have coefficients [1, way, N] of a task's rows, without joining those."""
    of_support, of_query = np.split(coefficients[0], [task.supports], axis=-1)
    return np.asarray(of_support @ task.support[0] + of_query @ task.query[0])


class NearestClassMean(_PrototypeClassifier):
    """Give each row to the class with the nearest mean: the paper's method for the inductive case.

    Parameters
    ----------
    preprocess : str, default="PE"
        The chain, as in `PEME`. Where features of base classes are at hand, give them as `base` and write "PEMbE".
    base : array of shape (n, d), optional
        Features of the base classes, for the step Mb.

    Attributes
    ----------
    classes_ : array of shape (classes,)
    prototypes_ : array of shape (classes, d)
        Class means behind the chain.
    transduction_ : array of shape (n,)
        The label of every row given to `fit`; labelled rows keep theirs.
    label_distributions_ : array of shape (n, classes)
        Its probabilities, softmax(-||x - mean||^2) for unlabelled rows.
    statistics_, n_features_in_
        As in `PEME`.

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
        return _points(means, task), by_query(assignment)[0]


class SoftKMeansClassifier(_PrototypeClassifier):
    """Refine class means by soft assignments of the unlabelled rows; nothing is assumed of the class sizes.

    Parameters
    ----------
    preprocess : str, default="PEMnE"
        The chain, as in `PEME`; `base` belongs to it.
    temperature : float, default=5.0
        T in softmax(-T ||x - mean||^2).
    steps : int, default=30
        Assignments computed in turn with the means.
    base : array of shape (n, d), optional

    Attributes
    ----------
    classes_, prototypes_, transduction_, label_distributions_, statistics_, n_features_in_
        As in `NearestClassMean`; `prototypes_` are the refined means.

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
        return _points(centres, task), by_query(assignment)[0]

    def _logits(self, rows: Rows) -> Rows:
        return float(self.temperature) * super()._logits(rows)


class BMSClassifier(_PrototypeClassifier):
    """Boosted Min-size Sinkhorn: label a pool by optimal transport in turn with logistic regression.

    Parameters
    ----------
    preprocess : str, default="PEMnE"
        The chain, as in `PEME`; `base` belongs to it.
    prior : None, "balanced", "estimated" or array of shape (classes,), default=None
        None estimates the size of the smallest class (BMS). Otherwise every class gets its share of the unlabelled rows
        (BMS*), equal, estimated from them, or given; proportions are in the order of `classes_`.
    variant : {"robust", "published", "letter"}, default="robust"
        How the size of the smallest class is counted; see Notes.
    lam : float, default=8.5
        lambda, which multiplies the cosines before Sinkhorn and before the softmax of `predict_proba`.
    epochs : int or "auto", default="auto"
        Steps of logistic regression in each iteration. "auto": below two labelled rows a class 0, or 20 with a prior;
        else 40.
    steps, passes : int, default=20 and 50
        Iterations of the whole, and of Sinkhorn within each.
    lr, momentum, kappa : float, default=0.1, 0.8 and 1.0
        Of the logistic regression: rate, momentum, and the scale of its logits, learnt, at the start.
    base : array of shape (n, d), optional
    unknown : float in (0, 1), optional
        For pools in which some rows belong to none of the classes: rows whose probability of that is above this number,
        0.5 say, are called unknown, -1 among numbers and "unknown" among strings, and hardly move the classes. It runs
        the method `bms-open` in place of BMS, for which `prior`, `variant` and `steps` do not count.

    Attributes
    ----------
    classes_, prototypes_, transduction_, label_distributions_, statistics_, n_features_in_
        As in `NearestClassMean`; `prototypes_` are the weights, of unit length, one update after `transduction_`. New
        rows meet them alone: `predict_proba` is softmax(lam * x . w), without Sinkhorn, which sees a whole pool.
    unknown_ : array of shape (n,)
        Where `unknown` was given, the probability of every row given to `fit` to belong to none of the classes; 0 for
        labelled rows. Rows of `label_distributions_` sum to one all the same: they say which class, if any.

    Notes
    -----
    Why `robust` is the default. The published code counts the smallest class over labelled and unlabelled rows
    together, which quietly assumes balanced pools; `robust` counts unlabelled rows only. On balanced tasks (CIFAR-FS,
    WRN-28-10, 5-way, 1-shot / 5-shot, 1,000 episodes) that costs a little: published 89.31 / 92.91 %, robust 88.82 /
    91.32 %, letter (the algorithms as printed) 88.73 / 90.92 %. Where query sizes follow a Dirichlet of alpha 2 (2,000
    episodes) it holds at 5 shots: published 79.20 / 71.61 %, robust 80.15 / 89.57 % (`sinkshot eval
    cifar-fs_wrn-28-10_novel --method bms --set variant=robust --protocol dirichlet --shot 5 --episodes 2000`). A real
    pool is seldom balanced. Where one class of a pool is many times another, compare with `NearestClassMean` all the
    same.

    With no unlabelled row there is nothing to transport: each class is its mean at unit length, and the nearest wins.

    References
    ----------
    Hu, Pateux, Gripon, "Squeezing backbone feature distributions to the max for efficient few-shot learning", 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from sinkshot import BMSClassifier
    >>> truth = np.arange(200) % 2
    >>> pool = np.random.default_rng(0).gamma(1 + (truth[:, None] == np.arange(32) % 2))  # 200 rows of 32 features
    >>> y = np.where(np.arange(200) < 10, truth, -1)  # 10 of them labelled
    >>> model = BMSClassifier().fit(pool, y)
    >>> float(np.mean(model.transduction_ == truth))
    0.995

    A pool with rows of neither class:

    >>> strange = np.random.default_rng(1).gamma(1 + 2 * (np.arange(32) // 2 % 2), size=(60, 32))
    >>> model = BMSClassifier(unknown=0.5).fit(np.vstack([pool, strange]), np.append(y, np.full(60, -1)))
    >>> rejected = model.transduction_ == -1
    >>> bool(rejected[:200].mean() < 0.05), bool(rejected[200:].mean() > 0.95)
    (True, True)
    """

    def __init__(
        self,
        preprocess: str = "PEMnE",
        prior: Prior = None,
        variant: str = "robust",
        lam: float = 8.5,
        epochs: int | str = "auto",
        steps: int = 20,
        passes: int = 50,
        lr: float = 0.1,
        momentum: float = 0.8,
        kappa: float = 1.0,
        base: Any = None,
        unknown: float | None = None,
    ) -> None:
        self.preprocess = preprocess
        self.prior = prior
        self.variant = variant
        self.lam = lam
        self.epochs = epochs
        self.steps = steps
        self.passes = passes
        self.lr = lr
        self.momentum = momentum
        self.kappa = kappa
        self.base = base
        self.unknown = unknown

    def predict(self, X: Any) -> Rows:
        """Return the most probable class of each new row, or that it is unknown, where `unknown` was given."""
        labels = super().predict(X)
        if self._rejecting is None:
            return labels
        return self._marked(labels, self.predict_unknown(X) > self._rejecting.threshold)

    def predict_unknown(self, X: Any) -> Rows:
        """Return the probability (n,) of each new row to belong to none of the classes; needs `unknown`."""
        rows = self._apply_chain(X)
        if self._rejecting is None:
            raise InputError(
                "this classifier gives every row a class; give a threshold, say unknown=0.5, and fit again."
            )
        return self._rejecting.of_new(rows)

    def _fitted(self, labelled: NDArray[np.bool_]) -> None:
        self.__dict__.pop("unknown_", None)  # of an earlier fit
        if self._rejecting is not None:
            self.unknown_ = np.zeros(len(labelled), dtype=self.label_distributions_.dtype)
            self.unknown_[~labelled] = self._rejecting.unknown
            self.transduction_ = self._marked(self.transduction_, self.unknown_ > self._rejecting.threshold)

    def _marked(self, labels: Rows, rejected: Rows) -> Rows:
        """Return labels, and the mark of the unknown where a row is rejected."""
        mark: Any = UNKNOWN if self._strings() else np.int64(-1)
        return np.asarray(np.where(rejected, mark, labels))

    def _strings(self) -> bool:
        return isinstance(self.classes_[0], str)

    def _solve(self, task: Task) -> tuple[Rows, Rows]:
        apart = ("preprocess", "base", "unknown")
        hyper = {name: _plain(value) for name, value in self.get_params().items() if name not in apart}
        if isinstance(self.prior, str) and self.prior == "estimated":
            hyper["prior"] = estimate(task)[0] if task.queries and self.unknown is None else None
        settings = decide(task.way, task.supports, **hyper)
        self._rejecting = None if self.unknown is None else self._reject(task, settings)
        if self._rejecting is not None:
            return self._rejecting.weights, self._rejecting.assignment
        if task.queries == 0:
            means = _points(rows_of(task).means(), task)
            return np.asarray(chain.run(means, chain.parse("E")).x), np.empty((0, task.way))
        if task.queries * task.way >= LARGE:
            from sinkshot.kernels import large

            assignment, weights = large.solve(task, settings)
            return np.asarray(weights), np.asarray(assignment.T)
        solution = solve(task, settings)
        return _points(solution.refine(), task), by_query(solution.assignment)[0]

    def _reject(self, task: Task, settings: Settings) -> Rejecting:
        """Solve a task some of whose queries belong to none of the classes."""
        threshold = number("unknown", self.unknown)
        if not 0 < threshold < 1:
            raise InputError(f"unknown is a probability above which a row is rejected, 0.5 say; given: {threshold:g}.")
        if self._strings() and UNKNOWN in self.classes_:
            raise InputError(f"a class is called {UNKNOWN!r}, which is how rows of no class are marked; rename it.")
        own = METHODS["bms-open"].hyper
        epochs = own["epochs"] if self.epochs == "auto" else settings.epochs
        settings = replace(settings, epochs=epochs, steps=own["steps"], prior=None, variant="robust")
        return Rejecting(task, settings, own, threshold)

    def _logits(self, rows: Rows) -> Rows:
        return np.asarray(float(self.lam) * (rows @ self.prototypes_.T))
