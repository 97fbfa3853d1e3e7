"""BAVARDAGE: parity with the public code, also on features after a square root."""

from __future__ import annotations

import pytest
from peers import KINDS, check


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("file", "chain"), [("bavardage", "MbE"), ("bavardage-sqrt", "PsMbE")])
def test_scores_and_accuracy_are_those_of_the_public_code(file, chain, kind):
    check("bavardage", kind, file=file, chain=chain, tolerance=2e-4)
