"""Run studies: measure every cell that the banks at hand allow, in chunks that are stored as they finish.

What is in the store is not computed again, so a stopped run continues where it was.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from sinkshot.engines import check_torch
from sinkshot.errors import DataWarning, InputError, whole
from sinkshot.studies.bank_source import BankChanged, BankSource, UnsuitableWorker, find_bank
from sinkshot.studies.catalogue import Catalogue
from sinkshot.studies.chunks import Chunk, missing_chunks
from sinkshot.studies.claims import Judgement, judge
from sinkshot.studies.code_version import facts_version
from sinkshot.studies.environment import this_machine
from sinkshot.studies.measures import measure
from sinkshot.studies.processes import Done, in_processes, in_this_process
from sinkshot.studies.progress import Meter, RunProgress
from sinkshot.studies.random_coordinates import selected
from sinkshot.studies.resolve import CellKey, canonical, distinct, resolve, without_selection
from sinkshot.studies.store import Store, StoredResult
from sinkshot.studies.study import BankKey, Cell, Measure, Sheet, Study
from sinkshot.threads import available

__all__ = ["RunProgress", "RunResult", "RunStopped", "StoredResult", "run"]

_FEW = 2_000  # episodes in all that are done before other processes would have started


@dataclass(frozen=True)
class RunResult:
    """Everything that a run measured; reports are written from it."""

    studies: list[Study]  # with the recipes that were run
    results: Mapping[Cell, StoredResult]  # without the cells that could not be measured
    facts: Mapping[Measure, dict[str, Any]]
    missing: list[str]  # sentences: what could not be measured, and how to get what it needs
    started: datetime  # with its time zone
    finished: datetime
    machine: str
    versions: Mapping[str, str] = field(default_factory=dict)
    command: str = ""

    @cached_property
    def judgements(self) -> tuple[tuple[Judgement, ...], ...]:
        """The claims of each study, judged on each of its sheets."""
        known: dict[Any, Any] = {**self.results, **self.facts}
        return tuple(tuple(judge(study, known)) for study in self.studies)

    def judged(self) -> Iterator[tuple[Study, Judgement]]:
        """Yield the judgements of sheets on which something was measured."""
        for study, judgements in zip(self.studies, self.judgements, strict=True):
            here = {sheet.label for sheet in study.sheets if self._measured(sheet)}
            yield from ((study, judgement) for judgement in judgements if judgement.sheet in here)

    def _measured(self, sheet: Sheet) -> bool:
        return sheet.measure in self.facts or any(cell in self.results for cell in sheet.cells())


class RunStopped(KeyboardInterrupt):
    """A run was interrupted; `done` of `cells` cells are finished and in the store."""

    def __init__(self, done: int, cells: int) -> None:
        super().__init__()
        self.done, self.cells = done, cells


# More than 60 lines: half of them are the documentation of the parameters.
def run(
    studies: Sequence[Study],
    catalogue: Catalogue,
    store: Store,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    device: str = "auto",
    fresh: bool = False,
    progress: Callable[[RunProgress], None] | None = None,
    command: str = "",
) -> RunResult:
    """Measure every cell of some studies that the catalogue's banks allow.

    Parameters
    ----------
    studies : sequence of Study
    catalogue : Catalogue
        Where banks are found.
    store : Store
        Cells in the store are not measured again; new numbers are added chunk by chunk.
    workers : int, optional
        Processes on this machine; by default one per core, or only this one for a small run or a GPU.
    scheduler : str, optional
        Address of a Dask scheduler whose workers compute instead.
    device : str
        As in `sinkshot.evaluate`.
    fresh : bool
        Measure again what the store has.
    progress : callable, optional
        Called with the progress of the run.
    command : str
        The command that repeats the run.

    Returns
    -------
    RunResult
        Its numbers depend neither on workers or scheduler nor on interruptions.
    """
    started = datetime.now(UTC)
    if workers is not None:
        whole("workers", workers, least=1)
    if scheduler is None and device not in ("auto", "cpu"):
        check_torch(device)
    cells, missing = resolve(studies, catalogue, device, on_cluster=scheduler is not None)
    banks = {without_selection(cell.bank): resolved.bank for cell, resolved in cells.items()}
    facts = _facts(studies, catalogue, banks, store, fresh, missing)
    wanted = distinct(cells.values())
    chunks = [c for resolved in wanted for c in missing_chunks(resolved, {} if fresh else store.present(resolved))]
    meter = Meter(len(wanted), chunks, progress)
    try:
        failed = _measure(chunks, store, meter, fresh, workers, scheduler)
    except KeyboardInterrupt:
        raise RunStopped(meter.done, meter.cells) from None
    except (BankChanged, UnsuitableWorker) as reason:
        raise InputError(
            f"{reason} {meter.done} of {meter.cells} cells are finished and kept in {store.path}. With the features as "
            "they were, the same command continues; with others it starts again."
        ) from reason
    results: dict[Cell, StoredResult] = {}
    for cell, resolved in cells.items():
        if (error := failed.get(resolved.key)) is not None:
            missing.append(f"{cell.method} could not be measured on {cell.bank}: {error}")
        elif (found := store.get(resolved, resolved.episodes)) is not None:
            results[cell] = replace(found, labels=resolved.bank.labels)
    machine = this_machine()
    return RunResult(
        studies=list(studies),
        results=results,
        facts=facts,
        missing=list(dict.fromkeys(missing)),
        started=started,
        finished=datetime.now(UTC),
        machine=machine.hardware,
        versions=dict(machine.versions),
        command=command,
    )


def _measure(
    chunks: Sequence[Chunk], store: Store, meter: Meter, fresh: bool, workers: int | None, scheduler: str | None
) -> dict[CellKey, InputError]:
    """Compute chunks and store them; return the cells that cannot be measured, and why."""
    failed: dict[CellKey, InputError] = {}
    check = _check_banks if scheduler is None else _trust_banks

    def coming() -> Iterator[Chunk]:
        """Skip a chunk if its cell has failed, or if another run has stored it meanwhile."""
        for chunk in chunks:
            if chunk.resolved.key in failed:
                continue
            if not fresh and store.present(chunk.resolved).get(chunk.first, 0) >= chunk.count:
                meter.add(chunk, None)
            else:
                check(chunk)
                yield chunk

    with warnings.catch_warnings(), closing(_computed(chunks, coming(), workers, scheduler)) as computed:
        warnings.filterwarnings("ignore", "one episode has no interval", DataWarning)  # a last chunk may be one
        for chunk, result in computed:
            if isinstance(result, InputError):
                failed[chunk.resolved.key] = result
                meter.drop(chunk.resolved)
            elif chunk.resolved.key not in failed:
                store.add(chunk.resolved, chunk.first, result)
                meter.add(chunk, result)
            check(chunk)
    return failed


def _trust_banks(_chunk: Chunk) -> None:
    """Go on: workers of a cluster that cannot open a bank as it was get it from this process, which holds it."""


def _check_banks(chunk: Chunk) -> None:
    """Refuse features that have changed since the run began."""
    for source in filter(None, (chunk.resolved.bank, chunk.resolved.base)):
        source.check_unchanged()


def _computed(
    chunks: Sequence[Chunk], coming: Iterator[Chunk], workers: int | None, scheduler: str | None
) -> Generator[Done]:
    """Compute on a cluster, in several processes, or in this one."""
    if scheduler is not None and chunks:
        from sinkshot.studies.cluster import on_cluster

        return on_cluster(coming, scheduler)
    if workers is None:
        small = sum(chunk.count for chunk in chunks) <= _FEW
        workers = 1 if small or any(chunk.resolved.device != "cpu" for chunk in chunks) else available()
    workers = min(workers, max(1, len(chunks)))
    return in_this_process(coming) if workers == 1 else in_processes(coming, workers)


def _facts(
    studies: Sequence[Study],
    catalogue: Catalogue,
    banks: dict[BankKey, BankSource],
    store: Store,
    fresh: bool,
    missing: list[str],
) -> dict[Measure, dict[str, Any]]:
    """Measure what studies ask about the features themselves; what cannot be measured goes to `missing`."""
    facts: dict[Measure, dict[str, Any]] = {}
    version = facts_version()
    for what in dict.fromkeys(what for study in studies for what in study.measures()):
        key, question = without_selection(what.bank), canonical(asdict(what))
        try:
            source = banks.get(key) or find_bank(key, catalogue)
        except InputError as error:
            missing.append(str(error))
            continue
        try:
            if fresh or store.fact(question, source.content, version) is None:
                answer = measure(selected(source.open(), what.bank, seed=0), what)
                store.add_fact(question, source.content, version, answer)
        except InputError as error:
            missing.append(f"the {what.kind} of {what.bank} could not be measured: {error}")
            continue
        facts[what] = store.fact(question, source.content, version) or {}
    return facts
