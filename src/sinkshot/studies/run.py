"""Run studies: every cell that the banks at hand allow, in chunks that are stored as they are done.

What is in the store is not computed again, so a run that was stopped, by whatever, goes on where it was.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from sinkshot.engines import check_torch
from sinkshot.errors import DataWarning, InputError, whole
from sinkshot.studies.catalogue import Catalogue
from sinkshot.studies.chunks import Chunk, Source
from sinkshot.studies.environment import this_machine
from sinkshot.studies.measures import measure
from sinkshot.studies.plan import distinct, find, plan, whole_bank
from sinkshot.studies.processes import Done, in_processes, in_this_process
from sinkshot.studies.progress import Meter, Progress
from sinkshot.studies.random_coordinates import selected
from sinkshot.studies.resolve import canonical, facts_version
from sinkshot.studies.store import Store, Stored
from sinkshot.studies.study import BankKey, Cell, Measure, Study
from sinkshot.threads import available

__all__ = ["Outcome", "Progress", "Stopped", "Stored", "run"]

_FEW = 2_000  # episodes in all that are done before other processes would have started


@dataclass(frozen=True)
class Outcome:
    """What came of a run: everything that a report is written from."""

    studies: list[Study]  # with the recipes that were run
    results: Mapping[Cell, Stored]  # a cell that could not be measured is not in it
    facts: Mapping[Measure, dict[str, Any]]
    missing: list[str]  # sentences: what could not be measured, and how to get what it needs
    started: datetime  # with its time zone
    finished: datetime
    machine: str
    versions: Mapping[str, str] = field(default_factory=dict)
    command: str = ""


class Stopped(KeyboardInterrupt):
    """A run that was interrupted. What was finished is in the store: so many cells of so many."""

    def __init__(self, done: int, cells: int) -> None:
        super().__init__()
        self.done, self.cells = done, cells


def run(
    studies: Sequence[Study],
    catalogue: Catalogue,
    store: Store,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    device: str = "auto",
    fresh: bool = False,
    progress: Callable[[Progress], None] | None = None,
    command: str = "",
) -> Outcome:
    """Measure every cell of some studies that the catalogue's banks allow.

    Parameters
    ----------
    studies : sequence of Study
    catalogue : Catalogue
        Where banks are found.
    store : Store
        What is in it is not measured again; what is measured is put into it, chunk by chunk.
    workers : int, optional
        Processes on this machine; by default one for each core, and none but this one for a small run or a GPU.
    scheduler : str, optional
        Address of a Dask scheduler whose workers compute instead.
    device : str
        As in `sinkshot.evaluate`.
    fresh : bool
        Measure again what the store has.
    progress : callable, optional
        Told how far the run is.
    command : str
        How a person would repeat the run.

    Returns
    -------
    Outcome
        Numbers depend neither on workers or scheduler nor on how often the run was stopped and begun again.
    """
    started = datetime.now(UTC)
    if workers is not None:
        whole("workers", workers, least=1)
    if scheduler is None and device not in ("auto", "cpu"):
        check_torch(device)
    tasks, missing = plan(studies, catalogue, device, elsewhere=scheduler is not None)
    banks = {whole_bank(cell.bank): task.bank for cell, task in tasks.items()}
    facts = _facts(studies, catalogue, banks, store, fresh, missing)
    cells = distinct(tasks.values())
    chunks = [chunk for task in cells for chunk in task.chunks({} if fresh else store.present(task.settled))]
    meter = Meter(len(cells), chunks, progress)
    failed: dict[tuple[object, ...], InputError] = {}

    def coming() -> Iterator[Chunk]:
        """Leave out what is no longer needed when its turn comes: of a cell that failed, or that another run stored."""
        for chunk in chunks:
            if chunk.settled.key in failed:
                continue
            if not fresh and store.present(chunk.settled).get(chunk.first, 0) >= chunk.count:
                meter.add(chunk, None)
            else:
                yield chunk

    try:
        with warnings.catch_warnings(), closing(_computed(chunks, coming(), workers, scheduler)) as computed:
            warnings.filterwarnings("ignore", "one episode has no interval", DataWarning)  # a last chunk may be one
            for chunk, part in computed:
                if isinstance(part, InputError):
                    failed[chunk.settled.key] = part
                    meter.drop(chunk.settled)
                elif chunk.settled.key not in failed:
                    store.add(chunk.settled, chunk.first, part)
                    meter.add(chunk, part)
    except KeyboardInterrupt:
        raise Stopped(meter.done, meter.cells) from None
    results: dict[Cell, Stored] = {}
    for cell, task in tasks.items():
        if (error := failed.get(task.settled.key)) is not None:
            missing.append(f"{cell.method} could not be measured on {cell.bank}: {error}")
        elif (found := store.get(task.settled, task.episodes)) is not None:
            results[cell] = found
    machine = this_machine()
    return Outcome(
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


def _computed(
    chunks: Sequence[Chunk], coming: Iterator[Chunk], workers: int | None, scheduler: str | None
) -> Generator[Done]:
    """Let a cluster compute, or processes, or this one."""
    if scheduler is not None and chunks:
        from sinkshot.studies.cluster import on_cluster

        return on_cluster(coming, scheduler)
    if workers is None:
        small = sum(chunk.count for chunk in chunks) <= _FEW
        workers = 1 if small or any(chunk.settled.device != "cpu" for chunk in chunks) else available()
    workers = min(workers, max(1, len(chunks)))
    return in_this_process(coming) if workers == 1 else in_processes(coming, workers)


def _facts(
    studies: Sequence[Study],
    catalogue: Catalogue,
    banks: dict[BankKey, Source],
    store: Store,
    fresh: bool,
    missing: list[str],
) -> dict[Measure, dict[str, Any]]:
    """Measure what studies ask of features themselves; what cannot be told goes to `missing`."""
    facts: dict[Measure, dict[str, Any]] = {}
    version = facts_version()
    for what in dict.fromkeys(what for study in studies for what in study.measures()):
        key, question = whole_bank(what.bank), canonical(asdict(what))
        try:
            source = banks.get(key) or find(key, catalogue)
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
