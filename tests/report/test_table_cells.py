"""The numbers in tables: which agree with the paper, which is best, and how differences are paired."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from toy_outcomes import EPISODES, cell, stored

from sinkshot.episodes import Recipe
from sinkshot.report.pairs import match
from sinkshot.report.table_cells import TableCell, agreement, standing, table_cells, tally, texts
from sinkshot.studies.run import RunResult
from sinkshot.studies.study import Column, Entry, Row, Sheet, Value


@pytest.mark.parametrize(
    ("paper", "width", "where"),
    [
        (50.2, 0.3, "level"),
        (50.6, 0.1, "level"),  # apart, and within the margin
        (50.2, 2.0, "undecided"),  # too few episodes to agree
        (10.0, 2.0, "above"),
        (90.0, 2.0, "below"),
        (48.9, 0.1, "above"),
    ],
)
def test_a_place_agrees_only_where_the_interval_of_the_difference_is_within_the_margin(
    paper: float, width: float, where: str
) -> None:
    entry = Entry(cell(), Value("", paper, 0.1))
    assert TableCell(entry, 50.0, width).standing == where
    assert TableCell(entry, 50.0, 2.0, elsewhere=True).standing is None
    assert TableCell(entry).standing is None
    assert TableCell(Entry(cell()), 50.0, 2.0).standing is None


def test_a_value_printed_without_an_interval_is_a_point() -> None:
    touching, apart = (TableCell(Entry(cell(), Value("", mean)), 50.0, 2.0) for mean in (52.0, 52.01))
    assert (touching.standing, apart.standing) == ("undecided", "below")
    assert (agreement(0.5, 0.5), agreement(0.5, 0.51)) == ("level", "undecided")
    assert standing(0.0, 0.0) == agreement(0.0, 0.0) == "level"


def test_a_head_is_shown_beside_the_papers_value_and_not_compared() -> None:
    entry = Entry(cell(), Value("10.00", 10.0))
    sheet = Sheet("", (Column("1"),), (Row("Matching Networks", (entry,), head=True),))
    ((place,),) = table_cells(sheet, {entry.cell: stored(entry.cell, 50.0, 0)})
    assert (place.here is not None, place.difference, place.standing) == (True, None, None)
    assert texts(sheet.rows[0], 1) == ["Matching Networks (head on our features)"]


def test_one_episode_decides_nothing() -> None:
    alone, two = (replace(cell(), recipe=Recipe(episodes=count)) for count in (1, 2))
    entries = tuple(Entry(one, Value("1.00 ± 0.10", 1.0, 0.1)) for one in (alone, two))
    results = {
        one: replace(stored(one, 50.0, 0), per_episode=np.full(one.recipe.episodes, 0.5)) for one in (alone, two)
    }
    ((first, second),) = table_cells(Sheet("", (Column("1"), Column("2")), (Row("NCM", entries),)), results)
    assert (first.difference, first.standing) == (49.0, None)
    assert (second.difference, second.standing) == (49.0, "above")
    assert tally([first, second]).judged == 1
    assert match(np.array([0.9]), np.array([0.1])).standing == "level"
    assert match(np.array([0.9, 0.9]), np.array([0.1, 0.1])).standing == "above"


def test_the_best_of_a_group_is_marked_if_it_has_a_rival() -> None:
    means = {"": 70.0, "E": 90.0, "PE": 80.0}
    rows = tuple(Row(chain, (Entry(cell(chain=chain)),), "alone" if chain == "PE" else "both") for chain in means)
    results = {cell(chain=chain): stored(cell(chain=chain), mean, 0) for chain, mean in means.items()}
    shown = table_cells(Sheet("", (Column("1-shot"),), rows), results)
    assert [line[0].best for line in shown] == [False, True, False]


def test_open_set_places_show_the_metric_they_ask_for(outcome: RunResult) -> None:
    asked = [
        (place, outcome.results[place.entry.cell])
        for study in outcome.studies
        for sheet in study.sheets
        for line in table_cells(sheet, outcome.results)
        for place in line
        if place.entry.metric == "auroc" and place.here is not None and place.entry.cell is not None
    ]
    assert asked
    for place, result in asked:
        assert place.here == pytest.approx(100 * np.mean(result.auroc_per_episode))
        assert place.half_width == pytest.approx(196 * np.std(result.auroc_per_episode, ddof=1) / EPISODES**0.5)


def test_tally_counts_table_cells() -> None:
    value = Value("50 ± 1", 50.0, 1.0)
    some = [TableCell(Entry(cell(), value), here, 1.0) for here in (50.0, 60.0, 61.0, 40.0)]
    some.append(TableCell(Entry(cell(), Value("50", 50.0)), 50.0, 0.5))
    counted = tally(
        [*some, TableCell(Entry(cell(), value)), TableCell(Entry(None, value)), TableCell(Entry(cell()), 50.0, 1.0)]
    )
    assert (counted.level, counted.above, counted.below, counted.undecided, counted.judged) == (1, 2, 1, 1, 5)
    assert (counted.measured, counted.wanted) == (6, 7)


def test_of_false_alarms_the_fewest_are_best_and_fewer_stand_above() -> None:
    value = Value("50 ± 1", 50.0, 1.0)
    fewer, more = (TableCell(Entry(cell(), value, "fpr95"), here, 1.0) for here in (40.0, 60.0))
    assert (fewer.standing, more.standing) == ("above", "below")
    assert fewer.worth > more.worth
    apart = match(np.array([0.1, 0.2, 0.15]), np.array([0.4, 0.5, 0.4]), "fpr95")
    assert (apart.wins, apart.losses, apart.standing) == (3, 0, "above")
    assert apart.difference < 0


def test_a_match_is_the_paired_difference() -> None:
    a, b = np.array([0.5, 0.6, 0.7, 0.9]), np.array([0.5, 0.5, 0.8, 0.7, 0.1])
    result = match(a, b)
    apart = 100 * (a - b[:4])
    assert (result.wins, result.ties, result.losses) == (2, 1, 1)
    assert result.difference == pytest.approx(apart.mean())
    assert result.ci95 == pytest.approx(1.96 * apart.std(ddof=1) / 2)
