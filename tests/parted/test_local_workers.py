"""Processes of `--workers`: one that dies while they start is replaced."""

from __future__ import annotations

import pytest

from sinkshot import InputError, workers

distributed = pytest.importorskip("distributed")


class Fragile:
    """A cluster of which the first few cannot be started, as if a process of theirs had been killed."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def __call__(self, **_: object) -> str:
        self.failures -= 1
        if self.failures >= 0:
            raise RuntimeError("Nanny failed to start.")
        return "cluster"


def test_a_process_that_dies_at_the_start_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two failures are borne; where no attempt works, a sentence says so."""
    monkeypatch.setattr(distributed, "LocalCluster", Fragile(2))
    assert workers._processes(2, {}) == "cluster"
    monkeypatch.setattr(distributed, "LocalCluster", Fragile(3))
    with pytest.raises(InputError, match=r"the 2 processes of --workers cannot be started \(Nanny failed"):
        workers._processes(2, {})
