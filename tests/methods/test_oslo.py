"""OSLO and OSTIM: parity with the public code on tasks with strangers among the queries."""

from __future__ import annotations

import numpy as np
import pytest
from peers import check, open_set

CASES = [("oslo", "oslo", None), ("oslo", "oslo-sqrt", "PsMnE"), ("ostim", "ostim", None)]
KINDS = ("5w1s15q", "5w5s15q")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "file", "chain"), CASES)
def test_scores_and_closed_accuracy_are_those_of_the_public_code(name, file, chain, kind):
    check(name, kind, file=file, chain=chain, count=40, tolerance=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "file", "chain"), CASES)
def test_unknown_scores_and_their_auroc_are_those_of_the_public_code(name, file, chain, kind):
    unknown, theirs, auroc, their_auroc = open_set(name, kind, file=file, chain=chain, dtype="float32")
    np.testing.assert_allclose(unknown[:16], theirs, atol=1e-4)
    np.testing.assert_allclose(auroc, their_auroc, atol=3e-3)  # a sigmoid near one has ties in single precision
    assert auroc.mean() == pytest.approx(their_auroc.mean(), abs=2e-4)
