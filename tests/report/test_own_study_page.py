"""The report of a study without values of a paper does not speak of one."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from toy_outcomes import cell, outcome_of, stored

from sinkshot.report.studies import write_report
from sinkshot.studies.run import RunResult
from sinkshot.studies.study import Claim, Column, Entry, Row, Sheet, Study


def words(page: Path) -> str:
    """Return what a page says, without styles and scripts."""
    source = re.sub(r"<(style|script)>.*?</\1>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return " ".join(re.sub("<[^>]*>", " ", source).split())


def own_study(*claims: Claim) -> RunResult:
    """A study of somebody's own: no values of a paper."""
    cells = [cell(chain="E"), cell("bms", chain="PEMnE")]
    rows = tuple(Row(of.method, (Entry(of),)) for of in cells)
    study = Study("digits", "Handwritten digits", "table", sheets=(Sheet("pixels", (Column("1-shot"),), rows),))
    results = {of: stored(of, mean, seed) for seed, (of, mean) in enumerate(zip(cells, (80.0, 90.0), strict=True))}
    return outcome_of([replace(study, claims=claims)], results, {})


def test_a_study_without_values_of_a_paper_says_nothing_of_one(tmp_path: Path) -> None:
    write_report(tmp_path, own_study())
    text = words(tmp_path / "index.html")
    assert text.startswith("SinkShot: Handwritten digits ")
    assert " 80.0" in text
    assert not re.search("paper|claim|difference to", text, re.IGNORECASE)
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert markdown.startswith("# Handwritten digits\n\n2 of 2 cells are measured.\n")
    assert "paper" not in markdown


def test_claims_of_an_own_study_are_not_called_the_papers(tmp_path: Path) -> None:
    write_report(tmp_path, own_study(Claim("BMS helps.", "row-above-row", (("other", "ncm"), ("row", "bms")))))
    text = words(tmp_path / "index.html")
    assert "Claims" in text
    assert "BMS helps." in text
    assert "paper" not in text
    markdown = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "1 claims hold, 0 do not, 0 are undecided." in markdown
    assert "\n## Claims\n" in markdown
