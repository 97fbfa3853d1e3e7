"""`sinkshot demo`: the paper's claims on real features, offline, in one command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from sinkshot.bank import FeatureBank, load
from sinkshot.cli._console import guarded, out, percent, progress_bar
from sinkshot.episodes import Recipe
from sinkshot.errors import InputError
from sinkshot.evaluate import evaluate
from sinkshot.report.demo import DemoRow, PaperValue, demo_page

BUNDLED = "cifar-fs_wrn-28-10_novel"

Entry = tuple[str, str, str | None, tuple[PaperValue, PaperValue] | None]
ENTRIES: tuple[Entry, ...] = (  # label, method, preprocess, the paper's CIFAR-FS rows (Tables 2 and 4, WRN)
    ("NCM, raw features", "ncm", "", None),
    ("NCM", "ncm", None, (PaperValue(74.84, 0.21), PaperValue(87.73, 0.15))),
    ("logistic regression", "logreg", None, None),
    ("k-means", "kmeans", None, (PaperValue(83.69, 0.22), PaperValue(89.19, 0.15))),
    ("soft k-means", "soft-kmeans", None, None),
    ("BMS", "bms", None, (PaperValue(86.93, 0.23), PaperValue(91.18, 0.15))),
    ("BMS*", "bms-star", None, (PaperValue(87.83, 0.22), PaperValue(91.20, 0.15))),
)


@guarded
def demo(
    episodes: Annotated[int, typer.Option(help="Episodes for each number.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Which stream of episodes.")] = 0,
    page: Annotated[Path, typer.Option("--out", help="Where the page goes.")] = Path("sinkshot-demo.html"),
) -> None:
    """Reproduce the paper's CIFAR-FS numbers on the bundled feature bank, and write a page about them.

    Example: sinkshot demo --episodes 200
    """
    must_be_writable(page)
    bank = load(BUNDLED)
    rows = measure(bank, episodes, seed)
    out().print(
        f"{BUNDLED}: {bank.classes} novel classes of CIFAR-FS, WRN-28-10 features; 5-way, 15 queries a class, "
        f"{episodes:,} episodes; accuracy in percent ± half of the 95 % interval"
    )
    out().print(demo_table(rows))
    demo_page(bank, rows, page)
    out().print(f"The page with figures: {page.resolve()}")


def must_be_writable(page: Path) -> None:
    """Refuse a page that could not be written before minutes are spent on it."""
    folder = page.resolve().parent
    if page.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"the page {page} cannot be written there; give another place with --out.")


def measure(bank: FeatureBank, episodes: int, seed: int) -> list[DemoRow]:
    """Evaluate every entry at 1 and 5 shots on the same episodes."""
    rows = []
    with progress_bar() as bar:
        for label, method, chain, paper in ENTRIES:
            one, five = (
                evaluate(
                    bank,
                    Recipe(shot=shot, episodes=episodes, seed=seed),
                    method=method,
                    preprocess=chain,
                    progress=bar(f"{label}, {shot}-shot"),
                )
                for shot in (1, 5)
            )
            rows.append(DemoRow(label, one, five, paper))
    return rows


def demo_table(rows: list[DemoRow]) -> Table:
    """Ours beside the paper's."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("method")
    table.add_column("preprocess")
    for title in ("1-shot", "paper", "5-shot", "paper", "seconds"):
        table.add_column(title, justify="right")
    for row in rows:
        one, five = ("", "") if row.paper is None else (f"{p.accuracy:.2f} ± {p.ci95:.2f}" for p in row.paper)
        table.add_row(
            row.label,
            row.one.preprocess or "none",
            percent(row.one.accuracy, row.one.ci95),
            one,
            percent(row.five.accuracy, row.five.ci95),
            five,
            f"{row.one.seconds['total'] + row.five.seconds['total']:.1f}",
        )
    return table
