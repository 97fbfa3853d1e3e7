"""FewShotClassifier: label a pool from a handful of labels with any registered method, then label new rows."""

from __future__ import annotations

import warnings
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from sinkshot import methods
from sinkshot import preprocess as chain
from sinkshot.bank import FeatureBank
from sinkshot.errors import DataWarning, InputError, number, unknown_name, whole
from sinkshot.estimators._preprocessing import FORM, base_bank, plain, refuse_unusable
from sinkshot.estimators.auto_chain import auto_chain
from sinkshot.estimators.fit_report import FitReport, all_equal, contradiction, nearest_mean_answers
from sinkshot.estimators.label_input import UNKNOWN, Labels, read_labels
from sinkshot.estimators.outsiders import Taught, codes_with_kinds, scores_of, taught_by
from sinkshot.estimators.pool_neighbours import PoolNeighbours, task_of
from sinkshot.estimators.prototype_head import PrototypeHead, fit_head, seen_from
from sinkshot.estimators.unknown_head import AnyUnknownHead, LateUnknownHead, trusted_by_labels
from sinkshot.selection import DEFAULT as DEFAULT_STRATEGY
from sinkshot.selection import Pool
from sinkshot.selection import get as get_strategy
from sinkshot.task import Scores

Rows = NDArray[Any]
_OWN = ("method", "preprocess", "unknown", "base")  # parameters that are not the method's


class FewShotClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Label a pool of rows from a few labelled ones, whatever the class sizes, and say which belong to no class.

    Parameters
    ----------
    method : str, default="sinkshot"
        A registered method, as `sinkshot methods` lists them.
    preprocess : str, default="auto"
        The chain of preprocessing steps, as in `PEME`. "auto" takes the method's own chain, without the power step P
        if any feature is negative or features are hardly skewed; `preprocess_` is the chain that was used.
    unknown : float in (0, 1), optional
        For pools in which some rows belong to none of the classes. A row whose probability of belonging to no class is
        above this threshold is labelled -1, or "unknown" if labels are strings. Without it, every row gets a class.
    base : array of shape (n, d) or FeatureBank, optional
        Features of other classes from the same backbone; the step Mb subtracts their mean.
    **hyper
        Hyper-parameters of the method.

    Attributes
    ----------
    classes_ : array of shape (classes,)
    transduction_ : array of shape (n,)
        The label of every row given to `fit`; labelled rows keep theirs.
    label_distributions_ : array of shape (n, classes)
        The class probabilities of every row, given that it belongs to a class. Rows sum to one.
    left_out_distributions_ : array of shape (n, classes)
        Class probabilities of every row from prototypes computed without that row; check labels that they
        contradict.
    unknown_ : array of shape (n,)
        The probability that a row belongs to no class, if the method gives one; 0 for labelled rows.
    preprocess_ : str
        The chain that was used.
    report_ : FitReport
        How far to trust the fit: leave-one-out accuracy of the labelled rows, agreement with nearest class
        means, estimated class sizes with their standard errors, the share of rejected rows.
    n_features_in_, feature_names_in_
        As in every scikit-learn estimator.

    See Also
    --------
    BMSClassifier : The paper's method.
    NearestClassMean : The inductive baseline.

    Examples
    --------
    >>> import numpy as np
    >>> from sinkshot import FewShotClassifier
    >>> truth = np.where(np.arange(200) % 4 == 0, "cat", "dog")  # three dogs to a cat
    >>> pool = np.random.default_rng(0).gamma(1 + (truth[:, None] == np.array(["cat", "dog"] * 16)))
    >>> y = np.where(np.arange(200) < 12, truth, None)  # twelve labels, no others yet
    >>> model = FewShotClassifier().fit(pool, y)
    >>> bool(np.mean(model.transduction_ == truth) > 0.95)
    True
    >>> model.predict(pool[:3]).tolist()
    ['cat', 'dog', 'dog']
    """

    def __init__(
        self,
        method: str = "sinkshot",
        *,
        preprocess: str = "auto",
        unknown: float | None = None,
        base: Any = None,
        **hyper: Any,
    ) -> None:
        self.method = method
        self.preprocess = preprocess
        self.unknown = unknown
        self.base = base
        for name, value in hyper.items():
            setattr(self, name, value)
        self._hyper_names = tuple(hyper)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, including those of the method."""
        return {name: getattr(self, name) for name in (*_OWN, *self._hyper_names)}

    def set_params(self, **params: Any) -> Self:
        """Set parameters; names beyond the classifier's own are hyper-parameters of the method."""
        wanted = params.get("method", self.method)
        method = methods.METHODS.get(wanted) if isinstance(wanted, str) else None  # `fit` refuses a wrong name
        for name, value in params.items():
            if name not in _OWN and method is not None and name not in method.hyper:
                raise unknown_name(f"parameter of FewShotClassifier or {method.name}", name, [*_OWN, *method.hyper])
            setattr(self, name, value)
            if name not in _OWN and name not in self._hyper_names:
                self._hyper_names = (*self._hyper_names, name)
        return self

    def fit(self, X: Any, y: Any, *, none: Any = None, neighbours: PoolNeighbours | None = None) -> Self:
        """Learn from the labelled rows and label the rest.

        Parameters
        ----------
        X : array or data frame of shape (n, d)
            Features. float32 is computed in float32, any other type in float64.
        y : array-like of shape (n,)
            Labels. -1, None, NaN, pandas' NA and the empty string mean "no label yet".
        none : array of bool of shape (n,), optional
            Rows that are known to belong to none of the classes. The method runs a second time, with kinds of them as
            classes, to learn what to reject. The label "_none" in `y` means the same.
        neighbours : PoolNeighbours, optional
            Makes later fits of the same large pool quicker, with approximate neighbours.

        Returns
        -------
        FewShotClassifier
            The classifier itself.
        """
        x = validate_data(self, X, **FORM)
        labels = read_labels(x, y, none)
        self._threshold(labels)  # refuses a wrong one before any work
        method = methods.get(self.method)
        hyper = method.bind({name: plain(getattr(self, name)) for name in self._hyper_names})
        spelled = auto_chain(method, x, self.base is not None) if self.preprocess == "auto" else self.preprocess
        self.preprocess_ = spelled
        steps = chain.parse(spelled)
        self.classes_ = labels.classes
        rows, base = self._prepared(x, steps)
        _, task_wise = chain.split(steps)
        task = task_of(neighbours, rows, labels.codes, task_wise, base)
        scores = scores_of(method, task, hyper)
        codes = codes_with_kinds(task, labels)
        del task  # a copy of the rows
        taught = None
        if codes is not None:
            first = None if neighbours is None else neighbours.task_rows
            taught = taught_by(method, task_of(neighbours, rows, codes, task_wise, base), scores, labels, hyper)
            if neighbours is not None:
                neighbours.task_rows = first
        self._learn(rows, labels, scores, taught, neighbours)
        return self

    def _prepared(self, x: Rows, steps: chain.Chain) -> tuple[Rows, FeatureBank | None]:
        """Return rows [n, d] after the row-wise part of the chain, and the base rows after the whole chain."""
        refuse_unusable(x, steps, "X")
        base = None if self.base is None else base_bank(self.base, steps, x.shape[1])
        statistics = chain.base_statistics({}, base)
        row_wise, _ = chain.split(steps)
        done = chain.run(x, row_wise, base=statistics)
        chain.warn_of_zero_rows(done.zero_rows)
        self._row_wise, self._statistics = row_wise, done.statistics
        return np.asarray(done.x), None if base is None else chain.base_after(base, steps, statistics)

    def _threshold(self, labels: Labels) -> float | None:
        if self.unknown is None:
            return None
        threshold = number("unknown", plain(self.unknown))
        if not 0 < threshold < 1:
            raise InputError(
                f"unknown is a probability above which a row is rejected, such as 0.5; given: {threshold:g}."
            )
        able = [name for name, method in methods.METHODS.items() if method.rejects]
        if self.method not in able and not labels.outsiders.any():
            raise InputError(
                f"the method {self.method} gives no probability of belonging to no class, which unknown={threshold:g} "
                f"needs; use one of {', '.join(able)}."
            )
        return threshold

    def _learn(self, rows: Rows, labels: Labels, scores: Scores, taught: Taught | None, neighbours: Any) -> None:
        """Store the answers for the rows of `fit`, the heads for new rows, and the report."""
        way, labelled, pool, threshold = len(self.classes_), labels.labelled, labels.pool, self._threshold(labels)
        distributions = np.zeros((len(rows), way), dtype=rows.dtype)
        distributions[labelled, labels.codes[labelled]] = 1
        distributions[~labelled] = np.asarray(scores.probabilities[0])
        unknown = np.zeros(len(rows), dtype=rows.dtype)
        scored = scores.unknown if methods.get(self.method).rejects else None
        if scored is not None:
            unknown[~labelled] = np.asarray(scored[0]) if taught is None else taught.others
            unknown = trusted_by_labels(rows, unknown, labelled, neighbours and neighbours.numbers)
        if taught is not None:
            unknown = taught.joined(unknown, ~labelled)
        unknown[labels.outsiders] = 1
        rejects = scored is not None or bool(labels.outsiders.any())
        membership = distributions * (1 - unknown)[:, None]
        fitted = fit_head(rows, membership, distributions)
        self._head: PrototypeHead = fitted.head
        z = fitted.rows
        self._unknown_head: AnyUnknownHead | None = LateUnknownHead(z, fitted.left_out, unknown) if rejects else None
        self.label_distributions_ = distributions
        self.left_out_distributions_ = fitted.probabilities()
        self._pool = Pool(z, ~pool, distributions, unknown if rejects else None)
        self.__dict__.pop("unknown_", None)  # of an earlier fit
        if rejects:
            self.unknown_ = unknown
        rejected = np.zeros(len(rows), dtype=bool) if threshold is None else unknown > threshold
        self.transduction_ = self._marked(distributions, rejected & ~labelled)
        self._report(z, labels, distributions, unknown, rejected)

    def _report(self, z: Rows, labels: Labels, distributions: Rows, unknown: Rows, rejected: Rows) -> None:
        pool, way = labels.pool, len(self.classes_)
        nearest, leave_one_out = nearest_mean_answers(z, labels.codes, way)
        kept = pool & ~rejected
        known = distributions[pool] * (1 - unknown[pool])[:, None]
        confidence = float(distributions[kept].max(axis=1).mean()) if kept.any() else None
        counts = np.bincount(labels.codes[labels.labelled], minlength=way)
        said = []
        if pool.sum() > 1 and all_equal(z, pool):
            said.append("all unlabelled rows are equal after preprocessing, so nothing tells their classes apart.")
        elif message := contradiction(leave_one_out, int(counts[counts > 1].sum()), confidence):
            said.append(message)
        for message in said:
            warnings.warn(message, DataWarning, stacklevel=4)
        self.report_ = FitReport(
            rows=len(z),
            labelled=int(labels.labelled.sum()),
            leave_one_out=leave_one_out,
            agreement=float(np.mean(nearest[pool] == distributions[pool].argmax(axis=1))) if pool.any() else None,
            confidence=confidence,
            class_sizes=known.sum(axis=0),
            class_size_errors=np.sqrt(np.sum(known * (1 - known), axis=0)),
            rejected=float(rejected[pool].mean()) if pool.any() else 0.0,
            warnings=tuple(said),
        )

    def predict_proba(self, X: Any) -> Rows:
        """Return the class probabilities of new rows, each independent of the others.

        Parameters
        ----------
        X : array or data frame of shape (n, d)

        Returns
        -------
        array of shape (n, classes)
        """
        return np.asarray(self._head_after_check().probabilities(self._new_rows(X)))

    def predict(self, X: Any) -> Rows:
        """Return the class of each new row; if `unknown` was given, -1 or "unknown" for a row of no class.

        Parameters
        ----------
        X : array or data frame of shape (n, d)

        Returns
        -------
        array of shape (n,)
        """
        probabilities = self.predict_proba(X)
        rejected = np.zeros(len(probabilities), dtype=bool)
        if self.unknown is not None:
            rejected = self.predict_unknown(X) > float(self.unknown)
        return self._marked(probabilities, rejected)

    def predict_unknown(self, X: Any) -> Rows:
        """Return the probability that each new row belongs to none of the classes.

        Parameters
        ----------
        X : array or data frame of shape (n, d)

        Returns
        -------
        array of shape (n,)
        """
        head, rows = self._head_after_check(), self._new_rows(X)
        if self._unknown_head is None:
            raise InputError(f"the method {self.method} gives every row a class; use method='sinkshot' and fit again.")
        z = seen_from(head.centre, rows)
        return self._unknown_head.fitted.probabilities(z, z @ head.prototypes.T)

    @property
    def can_reject(self) -> bool:
        """Whether the fitted classifier gives probabilities of belonging to no class."""
        check_is_fitted(self, "classes_")
        return self._unknown_head is not None

    def suggest(self, n: int = 10, strategy: str = DEFAULT_STRATEGY, *, X: Any = None, sure: Any = None) -> Rows:
        """Return the rows whose labels would help most, the most useful first: of `fit` or, before any label, of `X`.

        Parameters
        ----------
        n : int, default=10
            How many.
        strategy : str, default="expected-gain"
            One of `sinkshot.selection.STRATEGIES`.
        X : array or data frame of shape (n, d), optional
            A pool without any labels, to start from; the classifier need not be fitted then.
        sure : array of bool of shape (n,), optional
            Rows that come after all others, and then after them near-twins of labelled or suggested rows.

        Returns
        -------
        array of shape (n,)
            Row numbers; fewer than `n` if fewer rows are unlabelled.
        """
        if X is None:
            check_is_fitted(self, "_pool", msg="suggest needs a pool: call fit, or give X=pool (after load, too)")
            pool = self._pool
        else:
            x = check_array(X, input_name="X", **FORM)
            refuse_unusable(x, (), "X")
            pool = Pool.of_features(x)
        return np.asarray(get_strategy(strategy).choose(pool, whole("n", n, 0), sure), dtype=np.int64)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted classifier to a safetensors file, from which no code can run.

        Parameters
        ----------
        path : path
            The file holds what `predict`, `predict_proba` and `predict_unknown` need, not the answers for the rows
            of `fit`.
        """
        from sinkshot.estimators.model_file import write

        check_is_fitted(self, "classes_")
        write(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a classifier that `save` wrote.

        Parameters
        ----------
        path : path

        Returns
        -------
        FewShotClassifier
        """
        from sinkshot.estimators.model_file import read

        model: Self = read(cls, path)
        return model

    def _head_after_check(self) -> PrototypeHead:
        check_is_fitted(self, "classes_")
        return self._head

    def _new_rows(self, X: Any) -> Rows:
        """Return new rows after the row-wise part of the chain, with the statistics of `fit`."""
        x = validate_data(self, X, reset=False, **FORM)
        refuse_unusable(x, self._row_wise, "X")
        return np.asarray(chain.run(x, self._row_wise, statistics=self._statistics).x)

    def _marked(self, probabilities: Rows, rejected: Rows) -> Rows:
        """Return the most probable class of each row, or the mark for "no class" if the row is rejected."""
        labels = self.classes_[probabilities.argmax(axis=1)]
        if self.unknown is None:
            return np.asarray(labels)
        mark: Any = UNKNOWN if isinstance(self.classes_[0], str) else np.int64(-1)
        return np.asarray(np.where(rejected, mark, labels))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        fixed = () if self.preprocess == "auto" else chain.parse(self.preprocess)
        tags.input_tags.positive_only = any(step.name == "P" for step in fixed)
        tags.classifier_tags.poor_score = True  # the checks' toy data has two columns, and unit length leaves an angle
        return tags
