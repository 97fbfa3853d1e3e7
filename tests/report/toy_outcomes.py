"""Outcomes to write reports from: the paper's studies with numbers of a random generator, and one small odd study."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from sinkshot.bank import FeatureBank
from sinkshot.episodes import Recipe
from sinkshot.studies import parse
from sinkshot.studies.catalogue import Catalogue
from sinkshot.studies.expand import expand
from sinkshot.studies.measures import measure
from sinkshot.studies.run import RunResult
from sinkshot.studies.store import StoredResult
from sinkshot.studies.study import BankKey, Cell, Claim, Column, Entry, Measure, Row, Sheet, Study, Value

HERE = BankKey("cifar-fs", ("wrn-28-10",))
HOSTILE = "<script>alert('x')</script>"
ODD = "50 % of $x_1$ & \\frac{a}{b} #~^ | `*[λ] \N{EN DASH} 文\x07"
EPISODES = 10_000  # as many as the paper has: their counts are as wide as they get


def stored(cell: Cell, mean: float, seed: int, seconds: float = 1.5) -> StoredResult:
    """Return a result of 75 queries an episode around a mean, in percent."""
    random = np.random.default_rng(seed)
    opened = cell.recipe.protocol == "open-set"
    return StoredResult(
        method=cell.method,
        preprocess="PEMnE" if cell.preprocess is None else cell.preprocess,
        recipe=cell.recipe,
        per_episode=random.binomial(75, mean / 100, cell.recipe.episodes) / 75,
        seconds={"sample": seconds / 3, "prepare": seconds / 3, "classify": seconds / 3, "total": seconds},
        engine="numpy",
        hyper=dict(cell.hyper),
        auroc_per_episode=random.uniform(0.7, 0.9, cell.recipe.episodes) if opened else None,
        aupr_per_episode=random.uniform(0.6, 0.9, cell.recipe.episodes) if opened else None,
        fpr95_per_episode=random.uniform(0.2, 0.9, cell.recipe.episodes) if opened else None,
        bank=cell.bank,
        bank_hash="0123456789abcdef" * 4,
        version="0.1.0+abc",
        hardware="a machine, 2 cores",
        versions={"python": "3.11.0", "numpy": "2.0.0"},
        finished="2026-01-02T03:04:05+00:00",
    )


def outcome_of(
    studies: list[Study], results: Mapping[Cell, StoredResult], facts: Mapping[Measure, Any], **more: Any
) -> RunResult:
    started = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    known = {"missing": [], "machine": "a machine, 2 cores", "versions": {"python": "3.11.0"}, "command": "a command"}
    return RunResult(
        studies, results, facts, started=started, finished=started + timedelta(seconds=12.5), **(known | more)
    )


def of_the_paper() -> RunResult:
    """Every study of the paper with numbers for each cell of one bank, near the paper's, and facts of a small one."""
    catalogue = Catalogue()
    studies = [expand(parse.find(name), catalogue, EPISODES) for name in parse.names()]
    near: dict[Cell, float] = {}
    for study in studies:
        for sheet in study.sheets:
            for entry in (entry for row in sheet.rows for entry in row.entries):
                if entry.cell is not None and entry.cell.bank == HERE:
                    near.setdefault(entry.cell, entry.paper.mean if entry.paper else 80.0)
    results = {cell: stored(cell, mean, seed) for seed, (cell, mean) in enumerate(near.items())}
    features = np.random.default_rng(0).gamma(0.7, 1.0, (240, 24)).astype(np.float32)
    bank = FeatureBank.from_arrays(features, np.repeat(np.arange(6), 40))
    asked = {what for study in studies for what in study.measures() if what.bank == HERE}
    facts = {what: measure(bank, what) for what in sorted(asked, key=str)}
    return outcome_of(studies, results, facts, missing=[f"bank {i} is missing; make it." for i in range(9)])


def cell(method: str = "ncm", shot: int = 1, chain: str | None = "", **hyper: Any) -> Cell:
    return Cell(HERE, Recipe(shot=shot, episodes=EPISODES), method, chain, tuple(sorted(hyper.items())))


def odd_study(kind: str = "table") -> Study:
    """A study whose texts hold the special characters of HTML, LaTeX, Markdown and CSV."""
    rows = tuple(
        Row(label, (Entry(cell(chain=chain), Value("80 ± 1", 80.0, 1.0)), Entry(cell(shot=5, chain=chain))), group)
        for label, chain, group in (
            (f"{ODD} {HOSTILE}", "", f"first {HOSTILE}"),
            ("*starred", "E", ODD),
            ("[bracket]", "PE", ODD),
        )
    )
    alone = Row("theirs", (Entry(None, Value("77.80", 77.8)), Entry(None)), ODD, (ODD,))
    columns = (Column(f"1-shot {ODD}", HOSTILE, 1.0), Column("5-shot", ODD, 5.0))
    sheet = Sheet(f"sheet {HOSTILE}", columns, (*rows, alone), ("Method", ODD), axis=f"x {ODD}")
    claim = Claim(f"claim {HOSTILE}", "row-above-row", (("other", "*starred"), ("row", "[bracket]")))
    return Study(
        f"odd {HOSTILE}", f"title {HOSTILE} {ODD}", kind, f"where {HOSTILE}", f"about {ODD}", (sheet,), (claim,)
    )


def odd(kind: str = "table") -> RunResult:
    study = odd_study(kind)
    results = {of: stored(of, 80.0, seed) for seed, of in enumerate(study.cells())}
    return outcome_of([study], results, {}, missing=[HOSTILE], command=HOSTILE, machine=HOSTILE)
