"""Processes of `--workers`: one that dies while they start is replaced, and memory is used again."""

from __future__ import annotations

import os
import subprocess
import sys

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


ARRAYS = """
import resource
import numpy as np
from sinkshot.workers import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(200):
        np.ones(1 << 18, np.float32)  # 256 pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(faults())
keep_freed_memory()
print(faults())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_freed_memory_is_used_again() -> None:
    """As Dask starts its workers, each array comes as new pages; after the call they are those of the one before."""
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536"}
    ended = subprocess.run([sys.executable, "-c", ARRAYS], env=environment, capture_output=True, text=True, check=True)
    before, after = map(int, ended.stdout.split())
    assert before > 20_000
    assert after < 5_000
