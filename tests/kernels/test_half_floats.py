"""Half-precision numbers become the same single-precision ones as in NumPy."""

from __future__ import annotations

import numpy as np

from sinkshot.kernels.half_floats import widened


def test_every_finite_half_is_the_number_of_a_cast():
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    every = every[np.isfinite(every)]
    np.testing.assert_array_equal(widened(every).view(np.uint32), every.astype(np.float32).view(np.uint32))


def test_rows_keep_their_shape():
    rows = np.random.default_rng(0).normal(size=(300, 70)).astype(np.float16)
    np.testing.assert_array_equal(widened(rows), rows.astype(np.float32))
    np.testing.assert_array_equal(widened(rows.T), rows.T.astype(np.float32))
    assert widened(rows[:0]).shape == (0, 70)
