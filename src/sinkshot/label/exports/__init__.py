"""Answers in the forms that other tools read: one file per form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sinkshot.errors import unknown_name
from sinkshot.label.exports import folders, huggingface, label_studio
from sinkshot.label.exports.exported import Exported
from sinkshot.label.items import Items

Export = Callable[[Path, Items, Exported], str]
EXPORTS: dict[str, Export] = {
    "folders": folders.write,
    "huggingface": huggingface.write,
    "label-studio": label_studio.write,
}


def check(names: tuple[str, ...]) -> None:
    """Refuse a form that is not known, before work begins."""
    for name in names:
        if name not in EXPORTS:
            raise unknown_name("export", name, EXPORTS)


def write(names: tuple[str, ...], folder: Path, items: Items, answers: Exported) -> list[str]:
    """Write the answers in each form into the folder; return a sentence about each."""
    return [EXPORTS[name](folder, items, answers) for name in dict.fromkeys(names)]
