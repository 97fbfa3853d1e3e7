"""`sinkshot reproduce`: the paper's tables and figures, or your own studies, on the feature banks at hand."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sinkshot.cli import shared_options as shared
from sinkshot.cli._console import exit_code, guarded, out, print_json, say
from sinkshot.cli.print_label_curves import print_label_curves
from sinkshot.cli.print_leaderboards import print_boards
from sinkshot.cli.print_studies import answer, listed, print_claims, print_list, print_missing, print_tables
from sinkshot.errors import InputError, whole
from sinkshot.progress import LINE_EVERY, ProgressReporter, duration
from sinkshot.studies import parse
from sinkshot.studies.catalogue import Catalogue
from sinkshot.studies.expand import expand
from sinkshot.studies.progress import RunProgress
from sinkshot.studies.run import RunResult, RunStopped, run
from sinkshot.studies.store import Store
from sinkshot.studies.study import Study

if TYPE_CHECKING:
    from sinkshot.report.studies import Written

STORE = "results.sqlite"


@guarded
def reproduce(
    study: Annotated[
        list[str] | None, typer.Option(help="Study name or .toml file; repeatable.  [default: all of the paper]")
    ] = None,
    episodes: Annotated[int | None, typer.Option(help="Episodes per result.  [default: the study's]")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the episodes.  [default: the study's]")] = None,
    banks: Annotated[list[Path] | None, typer.Option(help="Folder with feature banks; repeatable.")] = None,
    folder: Annotated[Path, typer.Option("--out", help="Folder of the report.")] = Path("sinkshot-report"),
    store: Annotated[Path | None, typer.Option(help=f"File that keeps the results.  [default: OUT/{STORE}]")] = None,
    workers: Annotated[int | None, typer.Option(help="Processes.  [default: one per core]")] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Compute on the Dask cluster at this address.")
    ] = None,
    device: shared.Device = "auto",
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure everything again.")] = False,
    show: Annotated[bool, typer.Option("--list", help="List studies and the features they need.")] = False,
    as_json: shared.AsJson = False,
    plugin: shared.Plugins = None,
    max_memory: shared.MaxMemory = None,
) -> None:
    """Measure the paper's tables and figures on the feature banks at hand, and report them beside the paper's values.

    Results are kept: run the same command again to continue a run that was stopped or killed.

    Example: sinkshot reproduce --study table-5 --episodes 1000
    """
    del max_memory, plugin  # their callbacks have been called
    for name, value, least in (("--episodes", episodes, 1), ("--seed", seed, 0), ("--workers", workers, 1)):
        if value is not None:
            whole(name, value, least)
    catalogue = Catalogue(banks or ())
    known = [*parse.names(), *parse.names("bench")] if show else parse.names()
    studies = chosen(study or known, catalogue, episodes, seed)
    if show:
        print_json(listed(studies, catalogue)) if as_json else print_list(studies, catalogue)
        return
    place = prepared(folder, store)
    try:
        with Store(place) as results, progress_line() as progress:
            outcome = run(
                studies,
                catalogue,
                results,
                workers=workers,
                scheduler=scheduler,
                device=device,
                fresh=fresh,
                progress=progress,
                command=shlex.join(["sinkshot", *sys.argv[1:]]),
            )
    except RunStopped as stopped:
        say(
            f"interrupted; {stopped.done} of {stopped.cells} cells are done and kept in {place}. "
            "Run the same command to continue. No report was written."
        )
        raise typer.Exit(exit_code()) from None
    from sinkshot.report.studies import write_report

    written = write_report(folder, outcome)
    if as_json:
        print_json(answer(outcome, written.files[0]))
    else:
        show_results(outcome, catalogue, written)


def show_results(outcome: RunResult, catalogue: Catalogue, written: Written) -> None:
    """Print tables, leaderboards, claims and what is missing."""
    print_tables(outcome)
    print_boards(outcome)
    print_label_curves(outcome)
    print_claims(outcome)
    print_missing(outcome, catalogue)
    for note in written.notes:
        out().print(note)
    out().print(f"Report: {written.files[0].resolve()}", soft_wrap=True)


def chosen(names: list[str], catalogue: Catalogue, episodes: int | None, seed: int | None) -> list[Study]:
    """Read studies, each once, and expand them to the banks at hand."""
    return [expand(parse.find(name), catalogue, episodes, seed) for name in dict.fromkeys(names)]


def prepared(folder: Path, store: Path | None) -> Path:
    """Create the folder of the report, so that a bad path fails early; return the path of the store."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".sinkshot").touch()
        (folder / ".sinkshot").unlink()
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error.strerror}; choose another folder with --out.") from None
    return folder / STORE if store is None else store


@contextmanager
def progress_line(every: float = LINE_EVERY) -> Iterator[Callable[[RunProgress], None]]:
    """Yield a callback that reports the progress of a run on standard error."""
    with ProgressReporter(every) as reporter:
        bar = reporter.bar(text="looking at the banks")
        total = 0

        def tell(state: RunProgress) -> None:
            nonlocal total
            total = max(total, state.episodes_left, 1)
            bar(total - state.episodes_left, total, in_a_line(state))

        yield tell


def in_a_line(state: RunProgress) -> str:
    """Describe the progress of a run.

    >>> in_a_line(RunProgress(3, 80, 77_000, 272.4, "bms, 5-shot"))
    '3 of 80 cells done, 77,000 episodes to go, 4:32 left (bms, 5-shot)'
    """
    parts = [
        f"{state.done} of {state.cells} cells done",
        f"{state.episodes_left:,} episodes to go",
        "" if state.seconds_left is None else f"{duration(state.seconds_left)} left",
    ]
    return ", ".join(filter(None, parts)) + f" ({state.current})"
