"""Skip tests of packages that are not installed, without importing those that are: each worker collects all tests."""

from __future__ import annotations

import importlib.util

import pytest


def need(*packages: str) -> None:
    """Skip the module that calls this if a package is missing."""
    for name in packages:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed", allow_module_level=True)
