"""Fixtures of the tests of studies: a bank on disk, and a place for results."""

from __future__ import annotations

import pytest
from toy_studies import save


@pytest.fixture
def place(tmp_path):
    return tmp_path / "results.sqlite"


@pytest.fixture
def catalogue(tmp_path, blobs):
    return save(blobs, tmp_path)
