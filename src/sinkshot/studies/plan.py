"""What is to be measured: the cells of studies, settled on the banks at hand, and sentences about what is not there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sinkshot.errors import InputError
from sinkshot.studies.catalogue import Catalogue, Missing
from sinkshot.studies.chunks import Chunk, Source, cut
from sinkshot.studies.random_coordinates import selected
from sinkshot.studies.resolve import Settled, lacks_base, settle
from sinkshot.studies.study import BankKey, Cell, Study


@dataclass(frozen=True)
class Task:
    """A settled cell with the number of episodes asked for, and where its bank is."""

    settled: Settled
    episodes: int
    bank: Source
    base: Source | None

    def chunks(self, present: Mapping[int, int]) -> list[Chunk]:
        """Cut what is not present, as first episodes and counts, into chunks."""
        wanted = [(first, count) for first, count in cut(self.episodes) if present.get(first, 0) < count]
        return [Chunk(self.settled, self.bank, self.base, first, count) for first, count in wanted]


def plan(
    studies: Iterable[Study], catalogue: Catalogue, device: str, elsewhere: bool
) -> tuple[dict[Cell, Task], list[str]]:
    """Settle every cell that can be measured, bank by bank; the sentences say what cannot, and why.

    `elsewhere`: other machines compute, whose devices cannot be looked at from here.
    """
    cells: dict[BankKey, list[Cell]] = {}
    for cell in dict.fromkeys(cell for study in studies for cell in study.cells()):
        cells.setdefault(whole_bank(cell.bank), []).append(cell)
    tasks: dict[Cell, Task] = {}
    sentences: dict[str, None] = {}  # each once, in order
    for key, of_bank in cells.items():
        try:
            source = find(key, catalogue)
            source.open()
        except InputError as error:
            sentences[str(error)] = None
            continue
        for cell in of_bank:
            try:
                tasks[cell] = _task(cell, source, catalogue, device, elsewhere)
            except InputError as error:
                chain = "" if cell.preprocess is None else f" with {cell.preprocess or 'no preprocessing'}"
                sentences[f"{cell.method}{chain} cannot be measured on {cell.bank}: {error}"] = None
    return tasks, list(sentences)


def distinct(tasks: Iterable[Task]) -> list[Task]:
    """Return each cell of the store once, with the most episodes that any table asks of it."""
    found: dict[tuple[object, ...], Task] = {}
    for task in tasks:
        known = found.get(task.settled.key)
        if known is None or known.episodes < task.episodes:
            found[task.settled.key] = task
    return list(found.values())


def whole_bank(key: BankKey) -> BankKey:
    """Return the key of a bank before coordinates are drawn."""
    return replace(key, coordinates=None, selections=1)


def base_key(key: BankKey) -> BankKey:
    """Return the key of the base classes' features: of the data set that the backbone was trained on."""
    return BankKey(key.trained_on or key.data_set, key.backbones, "base")


def find(key: BankKey, catalogue: Catalogue) -> Source:
    """Return where a bank is, or raise the sentence that says how to get it."""
    files = catalogue.files(key)
    if isinstance(files, Missing):
        raise InputError(str(files))
    return Source.of(key, tuple(map(str, files)))


def _task(cell: Cell, source: Source, catalogue: Catalogue, device: str, elsewhere: bool) -> Task:
    seed = cell.recipe.seed
    bank = selected(source.open(), cell.bank, seed)
    base, lacking = None, ""
    if lacks_base(cell, bank):
        try:
            base = find(base_key(cell.bank), catalogue)
        except InputError as error:
            lacking = f" {error}"
    base_bank = None if base is None else selected(base.open(), cell.bank, seed)
    try:
        settled = settle(cell, bank, source.content, base_bank, device, elsewhere)
    except InputError as error:
        raise InputError(f"{error}{lacking}") from None
    return Task(settled, cell.recipe.episodes, source, base)
