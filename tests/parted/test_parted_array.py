"""Arrays in parts follow NumPy: the same expression gives the same values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import array_api_compat
import numpy as np
import pytest

from sinkshot.arrays import at_least, one_hot, softmax
from sinkshot.parted.array import PartedArray, new_array
from sinkshot.parted.work_folder import RowLayout, WorkFolder, work_folder

SUPPORTS, SIZES, WAY = 4, (5, 7, 3), 3
ROWS = SUPPORTS + sum(SIZES)
VALUES = np.random.default_rng(0).gamma(1.0, size=(1, WAY, ROWS)).astype(np.float32)
Expression = Callable[[Any, Any], Any]  # of the namespace and an array


@pytest.fixture
def work(tmp_path: Path) -> Iterator[WorkFolder]:
    """A folder and threads."""
    with work_folder(tmp_path, None, None) as made:
        yield made


@pytest.fixture
def array(work: WorkFolder) -> PartedArray:
    """The values in four parts."""
    made = new_array(work, RowLayout(str(work.path), SUPPORTS, SIZES), WAY, of_queries=False)
    for part, (begin, end) in enumerate(pairwise(made.layout.starts)):
        made.stored().write(made.layout, part, VALUES[0, :, begin:end])
    return made


def whole(x: Any) -> np.ndarray:
    """All values of an array in parts."""
    if not isinstance(x, PartedArray):
        return np.asarray(x)
    return np.concatenate([x.expression.of_part(x.layout, part) for part in x.parts()], axis=-1)


ELEMENTWISE: dict[str, Expression] = {
    "arithmetic": lambda xp, x: (2.0 * x + 1.0 - x / 3.0) ** 1.5 / (1.0 + x),
    "reversed": lambda xp, x: 1.0 - (2.0 / (1.0 + x)) - x,
    "with a small array": lambda xp, x: np.arange(3.0, dtype=np.float32)[None, :, None] * x,
    "functions": lambda xp, x: xp.sqrt(xp.exp(-x)) + xp.log(x + 1.0) + xp.abs(-x),
    "softmax over classes": lambda xp, x: softmax(3.0 * x, axis=-2),
    "bounds": lambda xp, x: xp.clip(at_least(x, 0.2), max=0.7) + xp.minimum(x, xp.full_like(x, 0.5)),
    "where": lambda xp, x: xp.where((x > 0.5) & (x <= 1.0), x, xp.zeros_like(x)) + xp.ones_like(x),
    "sum over classes": lambda xp, x: x / xp.sum(x, axis=-2, keepdims=True),
    "without an axis": lambda xp, x: xp.max(x, axis=-2),
    "one hot of the largest": lambda xp, x: one_hot(xp.argmax(x, axis=-2), WAY, x),
    "axes": lambda xp, x: x[..., :1, :] + x[..., 0, :][..., None, :],
    "queries": lambda xp, x: x[..., SUPPORTS:] * 2.0,
    "joined": lambda xp, x: xp.concat([VALUES[..., :SUPPORTS] * 2.0, x[..., SUPPORTS:]], axis=-1),
}

REDUCTIONS: dict[str, Expression] = {
    "sum over rows": lambda xp, x: xp.sum(x, axis=-1, keepdims=True),
    "sum over both": lambda xp, x: xp.sum(x * x, axis=(-2, -1)),
    "mean": lambda xp, x: xp.mean(x, axis=-1),
    "mean of queries": lambda xp, x: xp.mean(x[..., SUPPORTS:], axis=-1, keepdims=True),
    "max": lambda xp, x: xp.max(x, axis=-1),
    "min": lambda xp, x: xp.min(x, axis=-1, keepdims=True),
    "the supports": lambda xp, x: x[..., :SUPPORTS],
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_functions_stay_in_parts(name: str, array: PartedArray) -> None:
    """An expression is computed part by part, and again from a file once it is kept."""
    xp = array_api_compat.array_namespace(array)
    found = ELEMENTWISE[name](xp, array)
    wanted = ELEMENTWISE[name](array_api_compat.array_namespace(VALUES), VALUES)
    assert isinstance(found, PartedArray)
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(whole(found), wanted, rtol=1e-6)
    if found.ndim == 3:
        np.testing.assert_allclose(whole(found.kept()), wanted, rtol=1e-6)


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_over_rows_give_ordinary_arrays(name: str, array: PartedArray) -> None:
    """Sums over all parts are NumPy arrays."""
    found = REDUCTIONS[name](array_api_compat.array_namespace(array), array)
    wanted = REDUCTIONS[name](array_api_compat.array_namespace(VALUES), VALUES)
    assert isinstance(found, np.ndarray)
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_all_rows_and_queries_do_not_mix(array: PartedArray) -> None:
    """What would be misaligned is refused."""
    with pytest.raises(ValueError, match="covers all rows"):
        array + array[..., SUPPORTS:]
    with pytest.raises(IndexError, match="an array in parts"):
        array[..., 2:5]
    with pytest.raises(TypeError, match="truth value"):
        bool(array)


def test_rows_of_a_file_by_row_are_consecutive(array: PartedArray) -> None:
    """What is read row by row, such as answers, has a file of that form; read in parts it is the same."""
    stored = (array * 1.0).stored(by_row=True)
    np.testing.assert_array_equal(np.fromfile(stored.path, np.float32).reshape(ROWS, WAY), VALUES[0].T)
    again = [stored.of_part(array.layout, part) for part in array.parts()]
    np.testing.assert_array_equal(np.concatenate(again, axis=-1), VALUES)


def test_a_file_goes_with_its_array(array: PartedArray, work: WorkFolder) -> None:
    """Files of arrays that nothing refers to are removed at once."""
    path = (array * 2.0).kept().stored().path
    assert not path.exists()
    assert list(work.path.iterdir()) == [array.stored().path]
