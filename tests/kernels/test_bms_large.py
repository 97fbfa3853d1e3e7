"""One large task: the answers of the readable code, independent of threads, in little memory."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from sinkshot import Task
from sinkshot.kernels import bms_large
from sinkshot.methods.bms import decide, solve


def pool(rows, width, way, dtype=np.float64):
    rng = np.random.default_rng(0)
    centres = 0.3 * rng.normal(size=(way, width))
    labels = np.repeat(np.arange(way), rng.integers(1, 6, size=way))
    parts = [centres[k] + rng.normal(size=(len(k), width)) for k in (labels, rng.integers(0, way, size=rows))]
    support, query = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in parts)
    return Task(support[None].astype(dtype), labels[None], query[None].astype(dtype), way)


def settings_of(task, *, epochs=3, prior=None, variant="robust"):
    return decide(task.way, task.supports, 8.5, epochs, 20, 50, 0.1, 0.8, 1.0, prior, variant)


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["published", "letter", "robust"])
@pytest.mark.parametrize("prior", [None, "balanced", [0.1, 0.2, 0.4, 0.25, 0.0, 0.05]], ids=str)
@pytest.mark.parametrize("epochs", [0, 3])
def test_answers_are_those_of_the_readable_code(variant, prior, epochs):
    task = pool(3000, 40, 6)
    settings = settings_of(task, epochs=epochs, prior=prior, variant=variant)
    reference = solve(task, settings)
    assignment, weights = bms_large.solve(task, settings)
    np.testing.assert_allclose(assignment, reference.assignment[0], atol=1e-12)
    rows = np.concatenate([task.support, task.query], axis=1)
    np.testing.assert_allclose(weights, (reference.refine() @ rows)[0], atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 511, 513, 5000, 40_000])
def test_answers_do_not_depend_on_the_number_of_threads(rows, monkeypatch):
    task = pool(rows, 24, 4, np.float32)
    answers = []
    for count in (1, 2, 3, 16):
        monkeypatch.setattr(bms_large, "workers", lambda count=count: count)
        answers.append(bms_large.solve(task, settings_of(task, epochs=2)))
    for other in answers[1:]:
        np.testing.assert_array_equal(answers[0][0], other[0])
        np.testing.assert_array_equal(answers[0][1], other[1])


FIFTY_THOUSAND = """
import resource, time
import numpy as np
from sinkshot import BMSClassifier
x = np.random.default_rng(0).random((50_000, 640), dtype=np.float32)
y = np.full(50_000, -1)
y[:100] = np.arange(100) % 20
BMSClassifier(epochs=1, steps=2).fit(x[:12_000], y[:12_000])  # compiles
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
model = BMSClassifier(epochs=0).fit(x, y)
print(time.perf_counter() - start, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
assert np.isfinite(model.label_distributions_).all()
"""


def fifty_thousand():
    """Seconds and mebibytes of a fit."""
    done = subprocess.run([sys.executable, "-c", FIFTY_THOUSAND], capture_output=True, text=True, check=True)
    return map(float, done.stdout.split())


@pytest.mark.long  # `test_estimators` fits 20,000 rows into a quarter of that
def test_fifty_thousand_rows_take_less_than_a_gibibyte():
    _, mebibytes = fifty_thousand()
    assert mebibytes < 1024


@pytest.mark.timing
def test_fifty_thousand_rows_take_seconds():
    seconds, _ = fifty_thousand()
    assert seconds < 10
