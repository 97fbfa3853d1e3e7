"""The data model of a study: a table or a figure whose cells are measured and compared with a paper's values.

A study is read from a TOML file (`parse`), its cells are measured (`run`), kept (`store`) and shown (`report`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sinkshot.episodes import Recipe
from sinkshot.metrics import Metric

DATA_SETS = {"mini": "mini-imagenet", "tiered": "tiered-imagenet"}
"""Other names of data sets, and those that recipes and files of ours use."""

StudyKind = Literal[
    "table", "curve", "distribution", "projection", "gaussianity", "leaderboard", "calibration", "label-curves"
]


@dataclass(frozen=True)
class Value:
    """A number as a paper prints it, in percent."""

    text: str  # "82.07 ± 0.25"
    mean: float
    ci95: float | None = None


@dataclass(frozen=True)
class BankKey:
    """Which features a cell is measured on. Several backbones are concatenated, rows aligned."""

    data_set: str  # "mini-imagenet", "tiered-imagenet", "cub", "cifar-fs", ...
    backbones: tuple[str, ...]  # "wrn-28-10", "resnet18", ...
    split: str = "novel"
    trained_on: str | None = None  # the data set of the base classes, if different
    coordinates: int | None = None  # number of concatenated coordinates to select at random
    selections: int = 1  # number of such selections, which share the episodes evenly

    def __post_init__(self) -> None:
        object.__setattr__(self, "data_set", DATA_SETS.get(self.data_set, self.data_set))
        if self.trained_on is not None:
            object.__setattr__(self, "trained_on", DATA_SETS.get(self.trained_on, self.trained_on))

    def __str__(self) -> str:
        origin = "" if self.trained_on is None else f" from {self.trained_on}"
        drawn = "" if self.coordinates is None else f", {self.coordinates} coordinates"
        part = "" if self.split == "novel" else f", {self.split} classes"
        return f"{self.data_set}{origin}, {'+'.join(self.backbones)}{part}{drawn}"


def runs(network: str, count: int) -> tuple[str, ...]:
    """Return the names of `count` trainings of one network: "resnet12", "resnet12-run2", "resnet12-run3", ..."""
    return (network, *(f"{network}-run{number}" for number in range(2, count + 1)))


@dataclass(frozen=True)
class Cell:
    """One number to measure: everything that determines it except the bank's content and the code."""

    bank: BankKey
    recipe: Recipe
    method: str
    preprocess: str | None = None  # None: the method's own
    hyper: tuple[tuple[str, Any], ...] = ()  # sorted by name
    most: int | None = None  # at most this many episodes, for slow methods


@dataclass(frozen=True)
class Measure:
    """What is measured on a bank rather than on episodes: distributions, projections, Gaussianity, label curves."""

    bank: BankKey
    kind: StudyKind
    options: tuple[tuple[str, Any], ...] = ()  # sorted by name


@dataclass(frozen=True)
class Entry:
    """One cell of a table or one point of a curve."""

    cell: Cell | None  # None where only the paper has a number
    paper: Value | None = None
    metric: Metric = "accuracy"


@dataclass(frozen=True)
class Row:
    """A row of a table, or a series of a figure."""

    label: str
    entries: tuple[Entry, ...]  # one for each column
    group: str = ""  # such as "Inductive"
    details: tuple[str, ...] = ()  # further cells of text, such as the backbone; headed by `Sheet.heads`
    head: bool = False  # of a method that trains its backbone, only the classifier is measured, on our features

    @property
    def title(self) -> str:
        """The label, with a word about a method of which only the classifier is measured."""
        return f"{self.label} (head on our features)" if self.head else self.label


@dataclass(frozen=True)
class Column:
    """A column of a table, or a position on the x axis of a figure."""

    label: str
    group: str = ""  # such as "miniImageNet"
    x: float | None = None  # of a figure


@dataclass(frozen=True)
class Sheet:
    """One table or one set of axes."""

    label: str
    columns: tuple[Column, ...] = ()
    rows: tuple[Row, ...] = ()
    heads: tuple[str, ...] = ("Method",)  # over `Row.label` and `Row.details`
    axis: str = ""  # what x is, in a figure
    elsewhere: str = ""  # the paper's values are for this other bank: compare shapes, not values
    measure: Measure | None = None  # instead of rows, for kinds other than table and curve
    paper: Mapping[str, Any] = field(default_factory=dict)  # the paper's values of a measure
    transfer: bool = False  # about one bank, and repeated for every other

    def cells(self) -> Iterator[Cell]:
        """Go through the cells to measure."""
        return (entry.cell for row in self.rows for entry in row.entries if entry.cell is not None)


@dataclass(frozen=True)
class Claim:
    """A statement of the paper that measured numbers can confirm; `rule` names the check."""

    text: str
    rule: str
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Study:
    """A table or figure: its sheets, and the paper's claims about them."""

    name: str
    title: str
    kind: StudyKind
    where: str = ""  # "Table 5"
    about: str = ""
    sheets: tuple[Sheet, ...] = ()
    claims: tuple[Claim, ...] = ()
    against: str = ""  # of a leaderboard: the row that the others are compared with
    floor: str = ""  # of a leaderboard: the row that no method should be below that sees all queries

    def cells(self) -> list[Cell]:
        """Return every cell once, in the order of the tables."""
        return list(dict.fromkeys(cell for sheet in self.sheets for cell in sheet.cells()))

    def measures(self) -> list[Measure]:
        """Return every measure once."""
        return list(dict.fromkeys(sheet.measure for sheet in self.sheets if sheet.measure is not None))
