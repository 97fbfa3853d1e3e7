"""Label Studio: tasks with predictions to import, and the labelling configuration that fits them.

Images are addressed as local files (`/data/local-files/?d=...`, relative to the folder that was labelled: make that
Label Studio's document root). Given and accepted labels become annotations, the others predictions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from sinkshot import __version__
from sinkshot.errors import InputError, printable
from sinkshot.files import replacing
from sinkshot.label.exports.exported import Exported
from sinkshot.label.items import Items

TASKS, CONFIGURATION = "label-studio.json", "label-studio.xml"


def write(folder: Path, items: Items, answers: Exported) -> str:
    """Write the tasks and the configuration."""
    if items.kind == "embeddings":
        raise InputError("Label Studio shows images and texts, and the input holds embeddings; leave that export out.")
    confidence = answers.confidence
    tasks = [_task(items, answers, i, float(confidence[i])) for i in range(len(items))]
    with replacing(folder / TASKS) as temporary:
        temporary.write_text(json.dumps(tasks, indent=1), encoding="utf-8")
    with replacing(folder / CONFIGURATION) as temporary:
        temporary.write_text(_configuration(items, answers), encoding="utf-8")
    return f"{folder / TASKS} and {folder / CONFIGURATION} are for Label Studio."


def _task(items: Items, answers: Exported, i: int, confidence: float) -> dict[str, Any]:
    local = f"/data/local-files/?d={quote(items.names[i])}"
    data = {"image": local} if items.kind == "images" else {"text": items.texts[i]}
    task: dict[str, Any] = {"data": {**data, "name": items.names[i]}}
    label = answers.labels[i]
    if not label:
        return task
    result = [
        {
            "type": "choices",
            "from_name": "label",
            "to_name": "item",
            "value": {"choices": [label]},
        }
    ]
    if answers.sources[i] == "predicted":
        task["predictions"] = [{"model_version": f"sinkshot {__version__}", "score": confidence, "result": result}]
    else:
        task["annotations"] = [{"result": result}]
    return task


def _configuration(items: Items, answers: Exported) -> str:
    shown = '<Image name="item" value="$image"/>' if items.kind == "images" else '<Text name="item" value="$text"/>'
    labels = [*answers.classes, *sorted({label for label in answers.labels if label} - set(answers.classes))]
    choices = "\n".join(f"    <Choice value={quoteattr(printable(name))}/>" for name in labels)
    return f'<View>\n  {shown}\n  <Choices name="label" toName="item">\n{choices}\n  </Choices>\n</View>\n'
