"""The files that `label` writes: labels.csv, probabilities.parquet, summary.json, each whole or not at all."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from sinkshot import __version__
from sinkshot.files import replacing
from sinkshot.label.classifier import Answers
from sinkshot.label.items import SUMMARY, Items
from sinkshot.label.spreadsheet import safe_path, safe_text, write_rows

COLUMNS = ("label", "confidence", "unknown", "second", "margin", "source")
MOST_LEFT_OUT = 1_000  # left-out items that the summary names


def labels_csv(items: Items, answers: Answers | None) -> bytes:
    """Return labels.csv: one line for every item, in input order; without answers the labels are empty."""
    written = safe_path if items.column == "file_name" else safe_text
    if answers is None:
        return write_rows((items.column, *COLUMNS), [(written(name), *[""] * len(COLUMNS)) for name in items.names])
    seconds, margins = ("",) * len(items), np.ones(len(items))
    if len(answers.classes) > 1:
        ranked = answers.ranked[:, :2]
        seconds = tuple(answers.classes[second] for second in ranked[:, 1].tolist())
        best = np.take_along_axis(answers.probabilities, ranked, axis=1)
        margins = best[:, 0] - best[:, 1]
    text = {name: safe_text(name) for name in {*answers.labels, *seconds}}
    columns = (
        [written(name) for name in items.names],
        [text[label] for label in answers.labels],
        *([f"{number:.4f}" for number in numbers.tolist()] for numbers in (answers.confidence, answers.unknown)),
        [text[second] for second in seconds],
        [f"{margin:.4f}" for margin in margins.tolist()],
        answers.sources,
    )
    return write_rows((items.column, *COLUMNS), zip(*columns, strict=True))


def summary(items: Items, answers: Answers | None, **facts: Any) -> dict[str, Any]:
    """Return summary.json, which is also what `--json` prints."""
    left_out = [{"name": one.name, "reason": one.reason} for one in items.left_out]
    base: dict[str, Any] = {
        "made_by": f"sinkshot {__version__} label",
        "kind": items.kind,
        "items": len(items),
        "left_out": len(left_out),
        "left_out_items": left_out[:MOST_LEFT_OUT],
        "notices": list(items.notices),
        **facts,
    }
    if answers is None:
        return base
    sources = Counter(answers.sources)
    predicted = np.array([source == "predicted" for source in answers.sources])
    confidence = answers.confidence[predicted & np.array([bool(label) for label in answers.labels])]
    report = answers.report
    counts = Counter(label for label in answers.labels if label)
    return {
        **base,
        "classes": list(answers.classes),
        "counts": {name: counts.get(name, 0) for name in answers.classes},
        "sources": {name: sources.get(name, 0) for name in ("given", "accepted", "predicted")},
        "unknown": sum(not label for label in answers.labels),
        "mean_confidence": float(confidence.mean()) if len(confidence) else None,
        "estimated_sizes": {}
        if report is None
        else dict(zip(answers.classes, map(float, report.class_sizes), strict=True)),
        "leave_one_out": None if report is None else report.leave_one_out,
        "agreement_with_nearest_mean": None if report is None else report.agreement,
        "suspicious": [
            {
                "name": items.names[one.row],
                "label": one.label,
                "suggested": one.suggested,
                "probability": one.probability,
                "like": [items.names[row] for row in one.neighbours],
            }
            for one in answers.suspicious
        ],
        "next": [items.names[row] for row in answers.next_rows],
        "warnings": list(answers.warnings),
    }


def write(folder: Path, items: Items, answers: Answers | None, told: dict[str, Any]) -> None:
    """Write labels.csv, summary.json and, where there are answers, probabilities.parquet into a folder that exists."""
    _replace(folder / "labels.csv", labels_csv(items, answers))
    _replace(folder / SUMMARY, (json.dumps(told, indent=2) + "\n").encode())
    if answers is None:
        (folder / "probabilities.parquet").unlink(missing_ok=True)  # of an earlier run
    else:
        _probabilities(folder / "probabilities.parquet", items, answers)


def _replace(path: Path, content: bytes) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def _probabilities(path: Path, items: Items, answers: Answers) -> None:
    """Write the probabilities of all classes, where pyarrow is installed."""
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        return
    columns: dict[str, Any] = {items.column: list(items.names), "unknown": np.asarray(answers.unknown, np.float32)}
    for number, name in enumerate(answers.classes):
        columns[f"class: {name}"] = np.asarray(answers.probabilities[:, number], np.float32)
    with replacing(path) as temporary, temporary.open("wb") as file:  # pyarrow accepts only UTF-8 names
        parquet.write_table(pyarrow.table(columns), file)
