"""The metrics of a training run as CSV and, if asked, for TensorBoard."""

from __future__ import annotations

import contextlib
import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sinkshot.errors import InputError
from sinkshot.files import replacing
from sinkshot.foreign import texts

FILE = "metrics.csv"
COLUMNS = ("step", "stage", "epoch", "rate", "loss", "mixed", "label", "rotation", "accuracy", "images_per_second")


class Metrics:
    """A CSV file with one row per report; a resumed run drops rows after its saved step."""

    def __init__(self, folder: Path, cells: Sequence[str], upto: int, tensorboard: bool) -> None:
        self.columns = (*COLUMNS, "seconds", *(f"validation {cell}" for cell in cells))
        path = folder / FILE
        rows = _rows(path, upto) if path.exists() and upto else []
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, restval="", extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        with replacing(path) as temporary:
            temporary.write_text(text.getvalue(), encoding="utf-8")
        self.file = path.open("a", encoding="utf-8", newline="")
        self.writer = csv.DictWriter(self.file, self.columns, restval="", lineterminator="\n")
        self.board: Any = _board(folder, upto) if tensorboard else None

    def add(self, row: Mapping[str, Any]) -> None:
        """Write one row."""
        told = {key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()}
        try:
            self.writer.writerow(told)
            self.file.flush()
        except OSError as error:
            raise InputError(f"{self.file.name} cannot be written: {error.strerror or error}.") from error
        for key, value in row.items() if self.board else ():
            if isinstance(value, float):
                self.board.add_scalar(key.replace(" ", "/", 1), value, row["step"])

    def close(self) -> None:
        """Finish the files."""
        with contextlib.suppress(OSError):  # what could not be written has been reported
            self.file.close()
        if self.board:
            self.board.close()


def _rows(path: Path, upto: int) -> list[dict[str, str]]:
    try:
        rows = list(csv.DictReader(texts.lines(path)))
    except csv.Error as error:
        raise InputError(f"{path} is damaged ({error}); put it aside.") from error
    return [row for row in rows if re.fullmatch("[0-9]{1,18}", row.get("step") or "") and int(row["step"]) <= upto]


def _board(folder: Path, upto: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError(
            "TensorBoard is not installed: pip install 'sinkshot[torch]', or run without --tensorboard."
        ) from error
    return SummaryWriter(str(folder), purge_step=upto + 1)
