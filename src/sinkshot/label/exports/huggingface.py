"""Hugging Face's image folder: a `metadata.csv` that names each file and its label."""

from __future__ import annotations

from pathlib import Path

from sinkshot.errors import InputError
from sinkshot.files import replacing
from sinkshot.label.exports.exported import Exported
from sinkshot.label.items import Items
from sinkshot.label.spreadsheet import safe_path, safe_text, write_rows

NAME = "metadata.csv"


def write(folder: Path, items: Items, answers: Exported) -> str:
    """Write metadata.csv with file_name, label and confidence; rejected images have no label and are left out."""
    if items.kind != "images":
        raise InputError(f"--export huggingface is for images, but the input holds {items.kind}; leave it out.")
    confidence = answers.confidence
    rows = [
        (safe_path(name), safe_text(answers.labels[i]), f"{confidence[i]:.4f}")
        for i, name in enumerate(items.names)
        if answers.labels[i]
    ]
    with replacing(folder / NAME) as temporary:
        temporary.write_bytes(write_rows(("file_name", "label", "confidence"), rows))
    return f"copy {folder / NAME} into the folder of images: load_dataset('imagefolder', data_dir=...)."
