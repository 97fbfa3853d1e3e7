"""Label a bank in parts: more rows than memory holds, on threads, processes or a cluster.

The method runs on the pool in parts (`sinkshot.parted`). Answers go to the folder `answers` as Parquet files, one for
each part of the bank, in its order. Totals are sums over the parts. The page, what to label next and the suspicious
labels come from a sample of the pool, together with all labelled rows.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkshot import methods, preprocess
from sinkshot.errors import InputError
from sinkshot.estimators.auto_chain import auto_chain, rows_looked_at
from sinkshot.estimators.few_shot import FewShotClassifier
from sinkshot.estimators.known_scores import fit_to_scores
from sinkshot.foreign.folders import Folder, folder_at
from sinkshot.formats.parts import open_parts
from sinkshot.label import answers as files
from sinkshot.label import label_files, page
from sinkshot.label.answer_parts import KNOWN_OUTSIDER, PartedAnswers, PartedRows, Totals, write_answers
from sinkshot.label.classifier import Stage, answers_of, data_warnings, own_scores
from sinkshot.label.inputs.images import ALSO_POOL, POOL
from sinkshot.label.items import OUTSIDER, SUMMARY, Items
from sinkshot.label.results import Labelled
from sinkshot.parted.pool import PartedPool, prepare_pool
from sinkshot.parted.solve import solve
from sinkshot.parted.work_folder import WorkFolder, work_folder
from sinkshot.task import Scores

Floats = NDArray[Any]
MOST_SAMPLED = 10_000  # unlabelled rows of the page


def rows_of_bank(path: str, labels: str | os.PathLike[str] | None = None) -> PartedRows:
    """Open a bank in parts; a label file names rows by their numbers.

    Rows with the label -1 are unlabelled, and so are those of classes that are called so: `_unlabeled`, as `extract`
    names a folder, or "-1", as `convert` names a number.
    """
    features, index, _ = open_parts(path)
    codes = features.labels()
    pools = [code for code, name in enumerate(index.class_names) if name.lower() in (*POOL, *ALSO_POOL, "-1", "")]
    codes[np.isin(codes, pools)] = -1
    present = np.unique(codes[codes >= 0])
    if len(present) and present[-1] >= len(index.class_names) > 0:
        raise InputError(f"{path}: a label is {present[-1]}, and the index names {len(index.class_names)} classes.")
    named = {int(code): index.class_names[code] if index.class_names else str(code) for code in present}
    given = {} if labels is None else _given(Path(labels), codes, named)
    return PartedRows(
        features, *coded({**dict.fromkeys(named.values()), **dict.fromkeys(given.values())}, codes, named, given)
    )


def _given(path: Path, codes: NDArray[np.int64], named: dict[int, str]) -> dict[int, str]:
    """Return the labels of a file by the numbers of rows."""
    found = {}
    for name, one in label_files.read(path).items():
        row = int(name) if name.isdecimal() else -1
        if not 0 <= row < len(codes):
            raise InputError(f"{path}, line {one.line}: there is no row {name!r}; rows are numbered from 0.")
        if codes[row] >= 0 and named[int(codes[row])] != one.label:
            raise InputError(
                f"{path}, line {one.line}: row {row} is {one.label!r} here, but {named[int(codes[row])]!r} in the bank."
            )
        found[row] = one.label
    return found


def coded(
    names: Iterable[str], codes: NDArray[np.int64], named: dict[int, str], given: dict[int, str]
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Number the classes by their sorted names, as everywhere in `label`; return codes of all rows and the names."""
    classes = tuple(sorted(set(names) - {OUTSIDER}))
    numbers = {**{name: number for number, name in enumerate(classes)}, OUTSIDER: KNOWN_OUTSIDER}
    new = np.full(max(named, default=-1) + 2, -1)  # the last entry is that of -1
    for code, name in named.items():
        new[code] = numbers[name]
    found = new[codes]
    for row, name in given.items():
        found[row] = numbers[name]
    return found, classes


def label_rows(
    rows: PartedRows,
    *,
    method: str,
    unknown: float | None,
    next_count: int,
    out: str | None,
    cache: Path,
    workers: int | None = None,
    scheduler: str | None = None,
    facts: dict[str, Any] | None = None,
    stage: Stage = lambda _: None,
) -> Labelled:
    """Label rows in parts, and write answers, summary and page.

    Parameters
    ----------
    rows : PartedRows
    method, unknown, next_count
        As in `sinkshot.label`.
    out : str, optional
        A folder or address for the results.
    cache : Path
        Where to keep files of the run, which are removed at its end; all workers must reach it.
    workers, scheduler
        Processes of this machine, or the address of a Dask scheduler; neither: threads of this process.
    facts : dict, optional
        For the summary.
    stage : callable, optional
        Called with the name of each step as it begins.
    """
    if not rows.classes:
        raise InputError("no row has a label; give a few of each class their class number, or use --labels.")
    chosen = methods.get(method)
    if unknown is not None and not chosen.rejects and not (rows.labels == KNOWN_OUTSIDER).any():
        raise InputError(
            f"the method {method} gives no probability of belonging to no class; use --unknown 1 to reject nothing."
        )
    rejects = chosen.rejects and unknown is not None
    began = (
        f"{len(rows.labels):,} rows of {rows.features.shape[1]:,} features in {len(rows.features.index.parts)} parts"
    )
    stage(f"fitting {method} to {began}")
    folder = None if out is None else folder_at(out)
    with work_folder(cache, workers, scheduler, lambda what, done, of: stage(f"{what}: {done} of {of} parts")) as work:
        pool = pool_of(rows, chosen, work)
        stage(f"running {method}")
        scores, near = solve(pool, chosen, chosen.bind({}), work)
        outsiders = np.flatnonzero(rows.labels == KNOWN_OUTSIDER) if unknown is not None else np.empty(0, np.int64)
        scores = scores if rejects else replace(scores, unknown=None)
        found = PartedAnswers.of(pool, scores, near, work, outsiders, chosen)
        stage("writing answers")
        totals = write_answers(rows, found, unknown, folder, work)
        sample = sampled(rows, found)
    told = {**(facts or {}), "seconds": {what: round(spent, 1) for what, spent in work.seconds.items()}}
    labelled = summarised(rows, sample, totals, pool.chain, method, unknown, next_count, told, stage)
    if folder is not None:
        stage("writing report.html")
        write_summary(folder, labelled)
    return labelled


def pool_of(rows: PartedRows, method: methods.Method, work: WorkFolder) -> PartedPool:
    """Prepare the pool with the chain that suits its features, as in memory; negative ones may come late."""
    spelled = auto_chain(method, rows.features[rows_looked_at(len(rows.labels))], has_base=False)
    try:
        return prepare_pool(rows.features, rows.labels, spelled, work)
    except preprocess.NegativeFeatureError:
        return prepare_pool(rows.features, rows.labels, auto_chain(method, -np.ones((1, 1)), has_base=False), work)


@dataclass(frozen=True)
class Sample:
    """Labelled rows and some others, with what the method says of the others."""

    numbers: NDArray[np.int64]  # in the bank, rising
    features: Floats  # [m, d]
    scores: Scores  # of the unlabelled ones, in their order, without known outsiders' say
    kin: Floats | None  # probability of the unlabelled ones of being of a known kind of outsider


def sample_of(rows: PartedRows) -> NDArray[np.int64]:
    """Return the numbers of the labelled rows, of known outsiders and of an evenly spaced sample of the others."""
    free = np.flatnonzero(rows.labels == -1)
    chosen = free[np.unique(np.linspace(0, len(free) - 1, min(MOST_SAMPLED, len(free))).astype(np.int64))]
    return np.sort(np.concatenate([np.flatnonzero(rows.labels != -1), chosen]))


def sampled(rows: PartedRows, found: PartedAnswers) -> Sample:
    """Read the sample and its scores."""
    numbers = sample_of(rows)
    places = np.memmap(found.places, np.int32, "r")
    queries = numbers[rows.labels[numbers] < 0]
    at = np.asarray(places[queries])
    probabilities, unknown = found.answers(at, updated=False)
    kin = None
    if found.updated is not None:  # the probability of being of a known kind of outsider is what has been added
        updated = found.unknown_of(at)
        unknown = np.minimum(unknown, updated)
        kin = 1 - (1 - updated) / np.maximum(1 - unknown, 1e-6)
    scores = Scores(probabilities[None], unknown=None if found.unknown is None else unknown[None])
    return Sample(numbers, rows.features[numbers], scores, kin)


def items_of(rows: PartedRows, numbers: NDArray[np.int64], features: Floats) -> Items:
    """Return some rows, with their features, as items."""
    if rows.items is not None:
        kept = np.zeros(len(rows.labels), bool)
        kept[numbers] = True
        return rows.items.only(kept)
    named = {-1: None, KNOWN_OUTSIDER: OUTSIDER, **dict(enumerate(rows.classes))}
    labels = tuple(named[int(code)] for code in rows.labels[numbers])
    names = tuple(rows.name(int(number)) for number in numbers)
    return Items("embeddings", names, labels, np.zeros(len(names), bool), features=features)


def summarised(
    rows: PartedRows,
    sample: Sample,
    totals: Totals,
    chain: str,
    method: str,
    unknown: float | None,
    next_count: int,
    facts: dict[str, Any],
    stage: Stage,
) -> Labelled:
    """Return the sample with its answers, and a summary of all rows."""
    items = items_of(rows, sample.numbers, sample.features)
    model = FewShotClassifier(method, preprocess=chain, unknown=unknown)
    with data_warnings() as said:
        fit_to_scores(model, sample.features, list(items.labels), sample.scores, sample.kin)
    answers = answers_of(items, sample.features, model, own_scores(model), unknown, next_count, tuple(said), stage)
    told = files.summary(items, answers, method=method, threshold=unknown, **facts)
    return Labelled(items, answers, told | totals_of(rows, totals, len(items)), sample.features)


def totals_of(rows: PartedRows, totals: Totals, sample: int) -> dict[str, Any]:
    """Return what the summary says of all rows."""
    predicted = len(rows.labels) - totals.given
    kept_rows = predicted - totals.rejected
    return {
        "items": len(rows.labels),
        "counts": dict(zip(rows.classes, map(int, totals.counts), strict=True)),
        "sources": {"given": totals.given, "accepted": 0, "predicted": predicted},
        "unknown": totals.rejected,
        "mean_confidence": totals.confidence / kept_rows if kept_rows else None,
        "estimated_sizes": dict(zip(rows.classes, map(float, totals.sizes), strict=True)),
        "sample": sample,
        "parts": len(rows.features.index.parts),
    }


def write_summary(folder: Folder, labelled: Labelled) -> None:
    """Write summary.json and report.html beside the answers."""
    with folder.writing(SUMMARY) as temporary:
        temporary.write_text(json.dumps(labelled.summary, indent=2) + "\n", encoding="utf-8")
    with folder.writing("report.html") as temporary:
        page.write(temporary, labelled)
