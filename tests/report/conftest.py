"""One report for all tests that read it."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_outcomes import of_the_paper

from sinkshot.report.studies import Report, gather, write_report
from sinkshot.studies.run import RunResult


@pytest.fixture(scope="session")
def outcome() -> RunResult:
    return of_the_paper()


@pytest.fixture(scope="session")
def report(outcome: RunResult) -> Report:
    return gather(outcome)


@pytest.fixture(scope="session")
def folder(outcome: RunResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the report of `outcome` was written to."""
    place = tmp_path_factory.mktemp("report") / "made" / "here"
    write_report(place, outcome)
    return place
