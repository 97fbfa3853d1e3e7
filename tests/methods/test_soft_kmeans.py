"""Soft k-means: parity with the published code, balanced and Dirichlet."""

from __future__ import annotations

import pytest
from peers import KINDS, check

from sinkshot import METHODS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "chain"), [("soft-kmeans", "MnE"), ("soft-kmeans-peme", "PsEMnE")])
def test_scores_and_accuracy_are_those_of_the_published_code(name, chain, kind):
    # the published square root has no epsilon: it is our signed power
    check("soft-kmeans", kind, file=name, chain=chain, tolerance=1e-3)
    assert METHODS["soft-kmeans"].preprocess == "MnE"
