"""`sinkshot demo`: the paper's claims on real features, offline."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from sinkshot.bank import FeatureBank, load
from sinkshot.cli import shared_options as shared
from sinkshot.cli._console import exit_code, guarded, out, percent, say
from sinkshot.cli._signals import while_read
from sinkshot.episodes import Recipe
from sinkshot.errors import InputError
from sinkshot.evaluate import Interrupted, evaluate
from sinkshot.progress import ProgressReporter
from sinkshot.report.demo import DemoRow, PaperValue, demo_page

_WIDE_ENOUGH = 104  # characters, for the whole table
BUNDLED = "cifar-fs_wrn-28-10_novel"

DemoEntry = tuple[str, str, str | None, tuple[PaperValue, PaperValue] | None]
ENTRIES: tuple[DemoEntry, ...] = (  # label, method, preprocess, the paper's CIFAR-FS rows (Tables 2 and 4, WRN)
    ("NCM, raw features", "ncm", "", None),
    ("NCM", "ncm", None, (PaperValue(74.84, 0.21), PaperValue(87.73, 0.15))),
    ("logistic regression", "logreg", None, None),
    ("k-means", "kmeans", None, (PaperValue(83.69, 0.22), PaperValue(89.19, 0.15))),
    ("soft k-means", "soft-kmeans", None, None),
    ("BMS", "bms", None, (PaperValue(86.93, 0.23), PaperValue(91.18, 0.15))),
    ("BMS*", "bms-star", None, (PaperValue(87.83, 0.22), PaperValue(91.20, 0.15))),
    ("SinkShot, ours", "sinkshot", None, None),
)


@guarded
def demo(
    episodes: Annotated[int, typer.Option(help="Episodes per result.")] = 10_000,
    seed: shared.Seed = 0,
    page: Annotated[Path, typer.Option("--out", help="HTML page to write.")] = Path("sinkshot-demo.html"),
) -> None:
    """Reproduce the paper's CIFAR-FS numbers on the bundled features, and write a page about them.

    Example: sinkshot demo --episodes 200
    """
    must_be_writable(page)
    bank = load(BUNDLED)
    rows, finished = measure(bank, episodes, seed)
    if rows:
        report(bank, rows, episodes)
    if not finished:
        say(f"interrupted; {len(rows)} of {len(ENTRIES)} methods finished; no page was written")
        raise typer.Exit(exit_code())
    demo_page(bank, rows, page)
    out().print(f"Page with figures: {page.resolve()}", soft_wrap=True)


def report(bank: FeatureBank, rows: list[DemoRow], episodes: int) -> None:
    """Print the table and its caption."""
    console = out()
    console.print(
        f"{BUNDLED}: {bank.classes} novel classes of CIFAR-FS, WRN-28-10 features; 5-way, 15 queries per class, "
        f"{episodes:,} episodes; accuracy in percent ± 95 % CI half-width"
    )
    console.print(demo_table(rows, narrow=console.width < _WIDE_ENOUGH))


def must_be_writable(page: Path) -> None:
    """Fail early if the page cannot be written."""
    folder = page.resolve().parent
    if page.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"cannot write the page {page}; choose another path with --out.")


def measure(bank: FeatureBank, episodes: int, seed: int) -> tuple[list[DemoRow], bool]:
    """Evaluate every entry at 1 and 5 shots on the same episodes; False if interrupted."""
    rows: list[DemoRow] = []
    with ProgressReporter() as progress, suppress(Interrupted), while_read():
        for label, method, chain, paper in ENTRIES:
            one, five = (
                evaluate(
                    bank,
                    Recipe(shot=shot, episodes=episodes, seed=seed),
                    method=method,
                    preprocess=chain,
                    progress=progress.bar(f"{label}, {shot}-shot"),
                )
                for shot in (1, 5)
            )
            rows.append(DemoRow(label, one, five, paper))
    return rows, len(rows) == len(ENTRIES)


def demo_table(rows: list[DemoRow], narrow: bool) -> Table:
    """Return our numbers beside the paper's; a narrow terminal gets fewer columns."""
    extra = [] if narrow else ["preprocess"], [] if narrow else ["seconds"]
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("method", *extra[0]):
        table.add_column(title, no_wrap=True)
    for title in ("1-shot", "paper", "5-shot", "paper", *extra[1]):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        one, five = ("", "") if row.paper is None else (f"{p.accuracy:.2f} ± {p.ci95:.2f}" for p in row.paper)
        table.add_row(
            row.label,
            *([] if narrow else [row.one.preprocess or "none"]),
            percent(row.one.accuracy, row.one.ci95),
            one,
            percent(row.five.accuracy, row.five.ci95),
            five,
            *([] if narrow else [f"{row.seconds:.1f}"]),
        )
    return table
