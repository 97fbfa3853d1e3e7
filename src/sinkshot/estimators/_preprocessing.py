"""Estimators with a preprocessing chain: what they share, and the chain alone as a transformer."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from sinkshot import preprocess as chain
from sinkshot.bank import FeatureBank
from sinkshot.errors import InputError

Rows = NDArray[Any]
# float32 stays, all else becomes float64; `refuse_unusable` says more precisely than scikit-learn where a NaN is.
FORM = {"dtype": (np.float64, np.float32), "ensure_all_finite": False}


class PreprocessedEstimator(BaseEstimator):  # type: ignore[misc]
    """An estimator with a chain: it computes means on the rows of `fit` and reuses them on later rows."""

    def _fit_chain(self, x: Rows) -> Rows:
        """Check rows [n, d], apply the chain, and keep its means and scales."""
        steps = chain.parse(self.preprocess)
        prepared = _run(x, steps, base=self._base_statistics(steps, x.shape[1]))
        self.chain_, self.statistics_ = steps, prepared.statistics
        return np.asarray(prepared.x)

    def _apply_chain(self, X: Any) -> Rows:
        """Apply the fitted chain to new rows, each independent of the others."""
        check_is_fitted(self, "statistics_")
        x = validate_data(self, X, reset=False, **FORM)
        return np.asarray(_run(x, self.chain_, statistics=self.statistics_).x)

    def _base_statistics(self, steps: chain.Chain, width: int) -> chain.BaseStatistics | None:
        if self.base is None or not chain.needs_base(steps):
            return None
        return chain.base_statistics({}, base_bank(self.base, steps, width))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = any(step.name == "P" for step in chain.parse(self.preprocess))
        return tags


def base_bank(given: Any, steps: chain.Chain, width: int) -> FeatureBank:
    """Check the features of base classes, and return them as a bank; an array [n, d] becomes one of a single class."""
    rows = check_array(given.features if isinstance(given, FeatureBank) else given, input_name="base", **FORM)
    if rows.shape[1] != width:
        raise InputError(f"base has {rows.shape[1]} columns and X has {width}; both must come from one backbone.")
    refuse_unusable(rows, steps, "base")
    return given if isinstance(given, FeatureBank) else FeatureBank(rows, np.zeros(len(rows), np.int64), ("base",))


def _run(x: Rows, steps: chain.Chain, **means: Any) -> chain.Prepared:
    refuse_unusable(x, steps, "X")
    prepared = chain.run(x, steps, **means)
    chain.warn_of_zero_rows(prepared.zero_rows)
    return prepared


def refuse_unusable(x: Rows, steps: chain.Chain, name: str) -> None:
    """Raise an error that names the first entry, or the step, that an estimator cannot process."""
    if any(step.name == "Wb" for step in steps):
        raise InputError("estimators do not whiten by base classes: leave out the step Wb, or use `sinkshot eval`.")
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


def plain(value: Any) -> Any:
    """Convert a NumPy scalar, such as from np.linspace, to a Python number, so that float32 stays float32."""
    return value.item() if isinstance(value, np.generic) else value


class PEME(OneToOneFeatureMixin, TransformerMixin, PreprocessedEstimator):  # type: ignore[misc]
    """Preprocess features by a chain of steps: power, unit length, mean subtraction, unit length.

    Parameters
    ----------
    preprocess : str, default="PEMnE"
        The chain, read from left to right: P power (features >= 0), Ps signed power, E unit length, Mn subtract the
        mean of the rows given to `fit`, Mb subtract the mean of `base` at that point, Z batch norm; see
        `sinkshot.preprocess`.
    base : array of shape (n, d) or FeatureBank, optional
        Features of the base classes, for the step Mb.

    Attributes
    ----------
    statistics_ : tuple of (shift, scale)
        What each step Mn, Mb, Z subtracts and divides by (None: does not divide).
    n_features_in_ : int

    See Also
    --------
    sinkshot.preprocess.run : The same as a function.
    BMSClassifier : A classifier with such a chain inside.

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
        """Compute the means of the chain from rows.

        Parameters
        ----------
        X : array of shape (n, d)
            Features.
        y : None
            Ignored.

        Returns
        -------
        PEME
            Itself.
        """
        self._fit_chain(validate_data(self, X, **FORM))
        return self

    def transform(self, X: Any) -> Rows:
        """Apply the chain to rows, with the means of `fit`.

        Parameters
        ----------
        X : array of shape (n, d)
            Features.

        Returns
        -------
        array of shape (n, d)
            The prepared rows.
        """
        return self._apply_chain(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
