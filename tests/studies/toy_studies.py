"""Small banks and studies for the tests of runs: data set "toy", backbone "net"."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

from sinkshot.episodes import Recipe
from sinkshot.metrics import PER_EPISODE
from sinkshot.studies.catalogue import Catalogue
from sinkshot.studies.resolve import distinct, resolve
from sinkshot.studies.run import run
from sinkshot.studies.store import Store
from sinkshot.studies.study import BankKey, Cell, Column, Entry, Row, Sheet, Study

KEY = BankKey("toy", ("net",))
RECIPE = Recipe(way=3, shot=1, query=5, episodes=1500)


def save(bank, folder, name="toy_net_novel"):
    bank.save(folder / f"{name}.safetensors")
    return Catalogue([folder])


def cell(method="ncm", key=KEY, preprocess=None, hyper=(), **recipe):
    return Cell(key, replace(RECIPE, **recipe), method, preprocess, tuple(sorted(dict(hyper).items())))


def study(*cells, measures=()):
    rows = tuple(Row(str(number), (Entry(one),)) for number, one in enumerate(cells))
    sheets = [Sheet("cells", (Column("here"),), rows), *(Sheet(what.kind, measure=what) for what in measures)]
    return Study("toys", "Toys", "table", sheets=tuple(sheets))


def resolve_cells(catalogue, *cells):
    """The resolved cells of a study, each key once."""
    resolved, sentences = resolve([study(*cells)], catalogue, "cpu", on_cluster=False)
    assert not sentences
    return distinct(resolved.values())


def measured(place, catalogue, *cells, measures=(), **options):
    """Run cells with the store at `place`."""
    with Store(place) as store:
        return run([study(*cells, measures=measures)], catalogue, store, **options)


def numbers(outcome):
    """What must be the same in every run: settings, and the accuracy of every episode."""
    return {
        (stored.settings, stored.recipe, stored.engine, stored.bank_hash, stored.version): (
            stored.per_episode.tobytes(),
            *(None if (of := stored.values(name)) is None else of.tobytes() for name in PER_EPISODE),
            None if stored.confidence is None else stored.confidence.to_bytes(),
        )
        for stored in outcome.results.values()
    }


__all__ = ["KEY", "RECIPE", "cell", "measured", "numbers", "resolve_cells", "save", "study"]


def query(place, text):
    """Run a statement of SQL on a file of results; return its rows."""
    with sqlite3.connect(place) as database:
        return database.execute(text).fetchall()
