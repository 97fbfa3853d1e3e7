"""Adapt a study to a run: set the number of episodes, and repeat its sheets for every available bank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sinkshot.episodes import Recipe
from sinkshot.studies.catalogue import Catalogue, Missing
from sinkshot.studies.study import BankKey, Cell, Entry, Row, Sheet, Study, runs


def expand(study: Study, catalogue: Catalogue, episodes: int | None = None, seed: int | None = None) -> Study:
    """Return the study with the given episodes; sheets with `transfer` are repeated for each other bank.

    Repeated sheets keep the paper's values (`Sheet.elsewhere` names their bank): compare shapes, not values.
    Cells with missing banks stay; `Catalogue.files` says which can run.
    """

    def recipe(cell: Cell) -> Recipe:
        given = cell.recipe
        count = given.episodes if episodes is None else min(episodes, cell.most or episodes)
        return replace(given, episodes=count, seed=given.seed if seed is None else seed)

    sheets = []
    for sheet in study.sheets:
        here = _with(sheet, lambda cell: replace(cell, recipe=recipe(cell)))
        sheets += [here, *(_carried(here, bank, catalogue) for bank in _others(here, catalogue, study.kind))]
    return replace(study, sheets=tuple(sheets))


def _home(sheet: Sheet) -> BankKey:
    """Return the bank a sheet is about."""
    return sheet.measure.bank if sheet.measure is not None else next(sheet.cells()).bank


def _others(sheet: Sheet, catalogue: Catalogue, kind: str) -> list[BankKey]:
    """Return the banks to repeat a sheet for: per data set those with its backbone, or all if none has it.

    A leaderboard goes to all. A sheet that crosses data sets goes to banks that do. One about several backbones goes
    where the same several are; one about several runs of a network, where any network has as many.
    """
    if not sheet.transfer:
        return []
    home = replace(_home(sheet), coordinates=None, selections=1)
    if len(home.backbones) == 1:
        crosses = home.trained_on is not None
        there = [key for key in catalogue.present() if key != home and key.split == home.split]
        there = [key for key in there if (key.trained_on is not None) == crosses and catalogue.takes_transfer(key)]
        if kind == "leaderboard":
            return [key for key in there if len(key.backbones) == 1]
        alike = {key.data_set for key in there if key.backbones == home.backbones}
        return [key for key in there if key.backbones == home.backbones or key.data_set not in alike]
    count = len(home.backbones)
    several = home.backbones == runs(home.backbones[0], count)
    moved = [
        replace(
            home,
            data_set=key.data_set,
            trained_on=key.trained_on,
            backbones=runs(key.backbones[0], count) if several else home.backbones,
        )
        for key in catalogue.present()
    ]
    there = [key for key in dict.fromkeys(moved) if key != home]
    return [key for key in there if not isinstance(catalogue.files(key), Missing)]


def _carried(sheet: Sheet, bank: BankKey, catalogue: Catalogue) -> Sheet:
    def to(key: BankKey) -> BankKey:
        return replace(key, data_set=bank.data_set, backbones=bank.backbones, trained_on=bank.trained_on)

    moved = _with(sheet, lambda cell: replace(cell, bank=to(cell.bank)))
    measure = None if sheet.measure is None else replace(sheet.measure, bank=to(sheet.measure.bank))
    printed = bool(sheet.paper) or any(entry.paper for row in sheet.rows for entry in row.entries)
    elsewhere = sheet.label if printed else ""
    home = catalogue.title(_home(sheet))
    kind = sheet.label.removeprefix(home) if sheet.label.startswith(home) else ""  # such as ", open set"
    return replace(moved, label=catalogue.title(bank) + kind, elsewhere=elsewhere, measure=measure)


def _with(sheet: Sheet, change: Callable[[Cell], Cell]) -> Sheet:
    """Return the sheet with every cell changed."""

    def entry(one: Entry) -> Entry:
        return one if one.cell is None else replace(one, cell=change(one.cell))

    def row(one: Row) -> Row:
        return replace(one, entries=tuple(map(entry, one.entries)))

    return replace(sheet, rows=tuple(map(row, sheet.rows)))
