"""FeatureBank: features, labels, class names and provenance, checked once and never changed.

`load` reads one from a file, `FeatureBank.from_arrays` makes one from arrays, `describe` summarises it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from sinkshot.arrays import blocks
from sinkshot.errors import InputError
from sinkshot.statistics import skewness_by_blocks

if TYPE_CHECKING:
    from sinkshot.formats.parts import PartedFeatures


@dataclass(frozen=True, eq=False, repr=False)
class FeatureBank:
    """Features of labelled items. Arrays are read-only, numbers are finite, and every class has at least one row.

    Parameters
    ----------
    features : array of shape (n, d)
        One row per item; kept as float32. Of a bank in parts, rows are read as they are indexed.
    labels : array of shape (n,)
        The class of each row, 0 .. classes-1.
    class_names : sequence of str
        One name per class, all different.
    meta : mapping of str to str
        Provenance: data_set, split, backbone, made, source_sha256 and so on.
    base : mapping of str to array of shape (d,)
        Means of the base classes by the chain before them: "", "E", "PE".

    See Also
    --------
    load : Read a bank from a file.

    Examples
    --------
    >>> import sinkshot
    >>> bank = sinkshot.FeatureBank.from_arrays([[0.1, 2.0], [0.3, 1.0], [4.0, 0.2]], ["cat", "cat", "dog"])
    >>> bank
    FeatureBank(3 rows, 2 classes, width 2)
    >>> bank.class_names, bank.labels.tolist()
    (('cat', 'dog'), [0, 0, 1])
    """

    features: NDArray[np.float32]  # [n, d]
    labels: NDArray[np.int64]  # [n], 0 .. classes-1
    class_names: tuple[str, ...]
    meta: Mapping[str, str] = field(default_factory=dict)  # data_set, split, backbone, made, source_sha256, ...
    base: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)  # chain prefix -> mean of base rows [d]

    def __post_init__(self) -> None:
        parts = validate(self.features, self.labels, self.class_names, self.meta, self.base)
        for name, value in parts.items():
            object.__setattr__(self, name, value)

    @classmethod
    def from_arrays(
        cls,
        features: Any,
        labels: Any,
        class_names: Sequence[str] | None = None,
        meta: Mapping[str, str] | None = None,
        base: Mapping[str, Any] | None = None,
    ) -> FeatureBank:
        """Make a bank from labels of any kind: strings, or integers that need not be 0 .. C-1.

        Classes are numbered in the order in which they first appear.

        Parameters
        ----------
        features : array of shape (n, d)
            One row per item.
        labels : array of shape (n,)
            Strings or integers; with `class_names`, indexes into it or names in it.
        class_names : sequence of str, optional
            Names of the classes, reordered with them. Names without rows are dropped.
        meta : mapping of str to str, optional
            Provenance.
        base : mapping of str to array of shape (d,), optional
            Means of the base classes by the chain before them.

        Returns
        -------
        FeatureBank
            The checked bank.
        """
        values, first, inverse = np.unique(_label_values(labels), return_index=True, return_inverse=True)
        order = np.argsort(first)  # order[k] is the index in `values` of the k-th class to appear
        number = np.argsort(order)  # and number[order[k]] = k
        names = _names_of(values[order], first[order], class_names)
        return cls(features, number[inverse], names, meta or {}, base or {})

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.class_names)

    @property
    def width(self) -> int:
        """The number of features in a row."""
        return int(self.features.shape[1])

    @property
    def counts(self) -> NDArray[np.int64]:
        """The number of rows of each class [classes]."""
        return np.bincount(self.labels, minlength=self.classes).astype(np.int64, copy=False)

    def content_hash(self) -> str:
        """Return the SHA-256 of features, labels and class names, without meta and base.

        Returns
        -------
        str
            64 hexadecimal digits.
        """
        digest = hashlib.sha256(json.dumps([self.features.shape, self.class_names]).encode())
        for rows in blocks(*self.features.shape):
            digest.update(np.ascontiguousarray(self.features[rows], "<f4").data)
        digest.update(self.labels.astype("<i8", copy=False).data)
        return digest.hexdigest()

    def save(
        self,
        path: str | os.PathLike[str],
        store: str = "float32",
        *,
        part_rows: int | None = None,
        part_format: str = "safetensors",
    ) -> None:
        """Write a `.safetensors` or `.npz` file, completely or not at all; or a bank in parts.

        Parameters
        ----------
        path : path-like
            The file; its suffix chooses the format. With `part_rows` a folder, or an address such as "s3://bucket/birds".
        store : {"float32", "float16", "uint8"}
            How features are stored; the last two are for `.safetensors` only.
        part_rows : int, optional
            Rows of a part.
        part_format : {"safetensors", "parquet"}
            Format of the parts.
        """
        from sinkshot import formats

        content = formats.BankContent(self.features, self.labels, self.class_names, self.meta, self.base)
        if part_rows is None:
            formats.write(content._replace(features=np.asarray(self.features)), path, store)
        else:
            formats.write_parts(content, path, store, part_rows, part_format)

    def __reduce__(self) -> tuple[Any, ...]:
        return FeatureBank, (self.features, self.labels, self.class_names, dict(self.meta), dict(self.base))

    def __repr__(self) -> str:
        known = [f"{key}={self.meta[key]!r}" for key in ("data_set", "split", "backbone") if key in self.meta]
        facts = [f"{len(self.labels)} rows", f"{self.classes} classes", f"width {self.width}", *known]
        return f"FeatureBank({', '.join(facts)})"


def load(path: str | os.PathLike[str], labels: str | os.PathLike[str] | None = None) -> FeatureBank:
    """Read a bank from a file, or a bundled bank by its name.

    Parameters
    ----------
    path : path-like
        A `.safetensors`, `.npz`, `.npy` or `.plk` file; a folder with a bank in parts, or its address, such as
        "s3://bucket/birds"; or a name such as "cifar-fs_wrn-28-10_novel".
    labels : path-like, optional
        Labels of an `.npy` file; `<stem>_labels.npy` beside it by default.

    Returns
    -------
    FeatureBank
        The checked bank. Opening a file never runs code in it.

    See Also
    --------
    FeatureBank : What is returned.
    FeatureBank.save : Write one.

    Examples
    --------
    >>> import sinkshot
    >>> sinkshot.load("cifar-fs_wrn-28-10_novel").features.shape
    (12000, 640)
    """
    from sinkshot import formats
    from sinkshot.formats import parts

    if formats.in_parts(path):
        if labels is not None:
            raise InputError(f"{path} holds its own labels; a labels file is for .npy only, so leave it out.")
        features, labels_, names, meta, base, _ = parts.read(path)
        try:
            return FeatureBank(features, labels_, tuple(names or ()), meta, base)
        except InputError as error:
            raise InputError(f"{os.fsdecode(path)}: {error}") from error
    with formats.located(path) as file:
        content = formats.read(file, labels)
        with formats.errors_name(file):
            features, labels_, names, meta, base, numbered = content
            if numbered:
                return FeatureBank(features, labels_, tuple(names or ()), meta, base)
            return FeatureBank.from_arrays(features, labels_, names, meta, base)


def in_parts(bank: FeatureBank) -> PartedFeatures | None:
    """Return the features of a bank in parts; None where they are an array."""
    features: Any = bank.features
    return features if _are_in_parts(features) else None


def _are_in_parts(features: Any) -> TypeGuard[PartedFeatures]:
    """Whether features are read from parts; formats are imported only if they may be."""
    if isinstance(features, np.ndarray):
        return False
    from sinkshot.formats.parts import PartedFeatures

    return isinstance(features, PartedFeatures)


def describe(bank: FeatureBank) -> dict[str, Any]:
    """Return what `sinkshot info` shows of a bank, as plain Python values.

    `sparsity` is Hoyer's, (sqrt(d) - |x|_1 / |x|_2) / (sqrt(d) - 1), averaged over rows that are not zero; `skew` is
    the skewness averaged over columns that are not constant, raw and after a square root. None where undefined.
    """
    x, counts, root = bank.features, bank.counts, bank.width**0.5
    parts = in_parts(bank)
    if parts is not None:
        parts.verify()
    zeros, negative, sparsity = 0, 0, []
    for rows in blocks(*x.shape):
        zeros += int(np.count_nonzero(x[rows] == 0))
        negative += int(np.count_nonzero(x[rows] < 0))
        size = np.abs(x[rows], dtype=np.float64)
        size = size[size.any(axis=1)]
        if bank.width > 1:
            sparsity.append((root - size.sum(axis=1) / np.linalg.norm(size, axis=1)) / (root - 1))
    return {
        "rows": len(x),
        "classes": bank.classes,
        "counts": {"min": int(counts.min()), "median": float(np.median(counts)), "max": int(counts.max())},
        "width": bank.width,
        "dtype": str(x.dtype),
        **({} if parts is None else {"parts": len(parts.index.parts)}),
        "share_of_zeros": zeros / x.size,
        "negative": negative,
        "sparsity": _mean(sparsity),
        "skew": {"raw": _skew(x), "sqrt": None if negative else _skew(x, np.sqrt)},
        "base": sorted(bank.base),
        "meta": dict(bank.meta),
    }


def validate(features: Any, labels: Any, class_names: Any, meta: Any, base: Any) -> dict[str, Any]:
    """Return the parts of a bank, cast and read-only. Raise an InputError that says what is wrong and where."""
    x = features if _are_in_parts(features) else _float32(features, 2, "features")
    names, y = _names(class_names), _array(labels, "labels")
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise InputError(
            f"labels: {y.dtype} {y.shape} was given, one integer per row expected; see FeatureBank.from_arrays."
        )
    if len(y) != len(x):
        raise InputError(f"there are {len(x)} rows of features but {len(y)} labels; give one label per row.")
    if (outside := (y < 0) | (y >= len(names))).any():
        row = int(outside.argmax())
        raise InputError(
            f"row {row} has label {y[row]}, but with {len(names)} classes labels are 0 .. {len(names) - 1}."
        )
    y = y.astype(np.int64)
    y.flags.writeable = False
    if not (counts := np.bincount(y, minlength=len(names))).all():
        raise InputError(
            f"class {names[counts.argmin()]!r} has no rows; drop its name, as FeatureBank.from_arrays does."
        )
    mappings = isinstance(meta, Mapping) and isinstance(base, Mapping)
    if not mappings or not all(isinstance(text, str) for text in [*meta.keys(), *meta.values(), *base.keys()]):
        raise InputError(f"meta maps strings to strings and base strings to vectors; {meta!r:.80}, {base!r:.80} given.")
    means = {prefix: _float32(mean, 1, f"base mean {prefix!r}") for prefix, mean in base.items()}
    for prefix, mean in means.items():
        if len(mean) != x.shape[1]:
            raise InputError(f"base mean {prefix!r} has {len(mean)} entries, but features have {x.shape[1]} columns.")
    frozen = {"meta": MappingProxyType(dict(meta)), "base": MappingProxyType(means)}
    return {"features": x, "labels": y, "class_names": names, **frozen}


def _float32(values: Any, rank: int, what: str) -> NDArray[np.float32]:
    given = _array(values, what)
    if given.ndim != rank or given.size == 0 or given.dtype.kind not in "fiub":
        wanted = "numbers [rows, columns]" if rank == 2 else "numbers [columns]"
        raise InputError(
            f"{what}: {given.dtype} of shape {given.shape} was given, {wanted} with at least one entry expected."
        )
    keep = given.dtype == np.float32 and given.base is None and given.flags.c_contiguous and not given.flags.writeable
    cast = given if keep else np.empty(given.shape, np.float32)
    width = given.size // len(given)
    for part in blocks(len(given), width):
        if not keep:
            with np.errstate(over="ignore", invalid="ignore"):
                cast[part] = given[part]
        if not (finite := np.isfinite(cast[part])).all():
            at = np.unravel_index(part.start * width + int(finite.argmin()), given.shape)
            place = ", ".join(f"{axis} {i}" for axis, i in zip(("row", "column")[-rank:], at, strict=True))
            raise InputError(f"{what}: {given[at]} at {place} (from 0) is not a finite float32; remove or repair it.")
    cast.flags.writeable = False
    return cast


def _array(values: Any, what: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except MemoryError:
        raise
    except Exception as error:  # ragged lists, tensors with a gradient or on a device: the type depends on the library
        raise InputError(f"{what} could not be read as an array: {error} Give a NumPy array.") from error


def _names(given: Any) -> tuple[str, ...]:
    names = tuple(given) if isinstance(given, list | tuple | np.ndarray) else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"class names: {given!r:.80} was given, a sequence of strings expected, one per class.")
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise InputError(f"the class name {twice!r} is given twice; class names must be unique.")
    return tuple(str(name) for name in names)


def _label_values(labels: Any) -> NDArray[Any]:
    given = _array(labels, "labels")
    if given.dtype.kind == "O" and len({isinstance(label, str) for label in given.flat}) == 1:
        given = _array(given.tolist(), "labels")
    if given.dtype.kind == "S":
        given = np.char.decode(given, "utf-8", "surrogateescape")
    if given.dtype.kind == "f" and (np.abs(given, dtype=np.float64) < 2**53).all() and (given == np.trunc(given)).all():
        given = given.astype(np.int64)
    if given.ndim != 1 or given.size == 0 or given.dtype.kind not in "iubU":
        raise InputError(f"labels: {given.dtype} {given.shape} was given, one integer or string per row expected.")
    return given


def _names_of(values: NDArray[Any], rows: NDArray[Any], class_names: Sequence[str] | None) -> tuple[str, ...]:
    if class_names is None:
        return tuple(str(value) for value in values)
    names = _names(class_names)
    known = {name: name for name in names} if values.dtype.kind == "U" else dict(enumerate(names))
    for value, row in zip(values.tolist(), rows, strict=True):
        if value not in known:
            raise InputError(
                f"row {row} has label {value!r}, neither a class name nor an index into the {len(names)} names."
            )
    return tuple(known[value] for value in values.tolist())


def _skew(features: NDArray[np.float32], function: Callable[[Any], Any] | None = None) -> float | None:
    skews, varies = skewness_by_blocks(features, function)
    return float(skews[varies].mean()) if varies.any() else None


def _mean(parts: list[NDArray[np.floating[Any]]]) -> float | None:
    values = np.concatenate(parts) if parts else np.empty(0)
    return float(values.mean()) if values.size else None
