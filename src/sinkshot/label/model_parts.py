"""Label a bank in parts with a classifier that was fitted before: every row alone, part by part."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkshot.errors import InputError
from sinkshot.foreign.folders import folder_at
from sinkshot.formats.part_files import verify
from sinkshot.formats.parts import PartedFeatures
from sinkshot.label import answers as files
from sinkshot.label.answer_parts import KNOWN_OUTSIDER, PartedRows, write_answers
from sinkshot.label.classifier import Stage, by_model
from sinkshot.label.in_parts import items_of, sample_of, totals_of, write_summary
from sinkshot.label.results import Labelled
from sinkshot.parted.work_folder import room_is_said, work_folder

if TYPE_CHECKING:
    from sinkshot.estimators.few_shot import FewShotClassifier

Floats = NDArray[Any]
MODEL = "model.safetensors"  # in the folder of the run
_BLOCK = 4_096  # rows predicted at once


@dataclass(frozen=True)
class ModelAnswers:
    """Answers of a classifier in a file, computed as they are asked for."""

    features: PartedFeatures
    model: Path
    rejects: bool

    def of_rows(self, begin: int, end: int) -> tuple[Floats, Floats]:
        """Return probabilities [m, way] and unknown [m] of the rows of a part; the part is compared with its digest."""
        part = int(np.searchsorted(self.features.starts, begin, side="right")) - 1
        verify(self.features.folder, self.features.index.parts[part])
        model = _loaded(self.model)
        probabilities, unknown = [], []
        for at in range(begin, end, _BLOCK):
            rows = self.features[at : min(at + _BLOCK, end)]
            probabilities.append(model.predict_proba(rows))
            unknown.append(model.predict_unknown(rows) if self.rejects else np.zeros(len(rows)))
        return np.concatenate(probabilities).astype(np.float32), np.concatenate(unknown).astype(np.float32)


@lru_cache(maxsize=1)
def _loaded(path: Path) -> FewShotClassifier:
    from sinkshot.estimators.few_shot import FewShotClassifier

    return FewShotClassifier.load(path)


def label_rows_by_model(
    rows: PartedRows,
    model: FewShotClassifier,
    *,
    unknown: float | None,
    out: str | None,
    cache: Path,
    workers: int | None = None,
    scheduler: str | None = None,
    facts: dict[str, Any],
    stage: Stage = lambda _: None,
) -> Labelled:
    """Label rows in parts with a fitted classifier, and write answers, summary and page; see `in_parts.label_rows`."""
    rows = _by_classes_of(rows, tuple(str(name) for name in model.classes_))
    folder = None if out is None else folder_at(out)
    with work_folder(cache, workers, scheduler, lambda what, done, of: stage(f"{what}: {done} of {of} parts")) as work:
        with room_is_said(work.path):
            model.save(work.path / MODEL)
        found = ModelAnswers(rows.features, work.path / MODEL, unknown is not None and model.can_reject)
        totals = write_answers(rows, found, unknown, folder, work)
        numbers = sample_of(rows)
        features = rows.features[numbers]
    items = items_of(rows, numbers, features)
    answers = by_model(items, features, model, unknown)
    seconds = {what: round(spent, 1) for what, spent in work.seconds.items()}
    told = files.summary(items, answers, method=model.method, threshold=unknown, **facts, seconds=seconds)
    labelled = Labelled(items, answers, told | totals_of(rows, totals, len(items)), features)
    if folder is not None:
        write_summary(folder, labelled)
    return labelled


def _by_classes_of(rows: PartedRows, classes: tuple[str, ...]) -> PartedRows:
    """Return rows with their labels numbered as the classes of a classifier are."""
    numbers = {name: number for number, name in enumerate(classes)}
    if others := sorted(set(rows.classes) - set(classes)):
        raise InputError(
            f"rows have the label {others[0]!r}, which is not a class of the classifier; leave these labels out, or "
            "label without --model."
        )
    new = np.array([*(numbers[name] for name in rows.classes), KNOWN_OUTSIDER, -1])  # -2 and -1 from the end
    return PartedRows(rows.features, new[rows.labels], classes, rows.names, rows.items)
