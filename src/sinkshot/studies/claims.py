"""Claims of the paper about its tables and figures, judged by measured numbers.

A claim names a rule and its options. A rule compares numbers of one sheet; each finding holds, does not hold, or is
undecided because an interval includes zero or a number is missing. The verdict is that of the weakest finding: first
one that does not hold, then one that is undecided.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

from sinkshot.studies.claim_rules import RULES, Finding, Numbers, Results, several
from sinkshot.studies.compare import FAILS, HOLDS, UNDECIDED, Verdict
from sinkshot.studies.study import Claim, Sheet, Study

__all__ = ["RULES", "Judgement", "judge", "needed", "options"]

_SHOWN = 4  # findings told in full


@dataclass(frozen=True)
class Judgement:
    """Whether a claim holds on a sheet, and the numbers that decide it."""

    claim: Claim
    sheet: str
    verdict: Verdict
    evidence: str


def judge(study: Study, results: Results) -> list[Judgement]:
    """Judge every claim of a study on every sheet, or on those that have the rows it names.

    `results` may hold more than the study's own cells: a claim about merged backbones looks for the single ones, which
    another study has.
    """
    judgements = []
    for claim in study.claims:
        for sheet in _sheets(study, claim):
            found = list(RULES[claim.rule](Numbers(sheet, results), **dict(claim.options)))
            judgements.append(Judgement(claim, sheet.label, *_conclusion(found)))
    return judgements


def _sheets(study: Study, claim: Claim) -> Sequence[Sheet]:
    """Return the sheets that have a row that the claim names; all if it names none, or one that no sheet has."""
    named = {name for key, value in claim.options if key in ("row", "rows") for name in several(value)}
    having = [sheet for sheet in study.sheets if named & {row.label for row in sheet.rows}]
    return having or study.sheets


def options(rule: str) -> list[str]:
    """Return the options a rule takes."""
    return [p.name for p in inspect.signature(RULES[rule]).parameters.values() if p.kind is p.KEYWORD_ONLY]


def needed(rule: str) -> list[str]:
    """Return the required options of a rule."""
    parameters = inspect.signature(RULES[rule]).parameters.values()
    return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]


def _conclusion(found: Sequence[Finding]) -> tuple[Verdict, str]:
    """Return the verdict of the weakest finding, and the evidence, deciding findings first."""
    if not found:
        return UNDECIDED, "None of its numbers has been measured."
    for verdict in (FAILS, UNDECIDED, HOLDS):
        deciding = [finding.text for finding in found if finding.verdict == verdict]
        if deciding:
            break
    others = [finding.text for finding in found if finding.verdict != verdict]
    told = (deciding + others)[:_SHOWN]
    left = len(found) - len(told)
    more = f" And {left} more, {sum(f.verdict == HOLDS for f in found)} of {len(found)} hold." if left else ""
    return verdict, " ".join(told) + more
