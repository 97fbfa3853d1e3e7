"""What a training run tells: metrics as CSV and, if asked, TensorBoard; progress for whoever watches."""

from __future__ import annotations

import contextlib
import csv
import io
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sinkshot.errors import InputError
from sinkshot.files import replacing

FILE = "metrics.csv"
LINE_EVERY = 30.0  # seconds between lines where standard error is no terminal
COLUMNS = ("step", "stage", "epoch", "rate", "loss", "mixed", "label", "rotation", "accuracy", "images_per_second")


class Metrics:
    """A CSV file with one row for each report; a run that goes on drops the rows that its state does not know."""

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
        with contextlib.suppress(OSError):  # what could not be written has been told
            self.file.close()
        if self.board:
            self.board.close()


def _rows(path: Path, upto: int) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if (row.get("step") or "").isdigit() and int(row["step"]) <= upto]


def _board(folder: Path, upto: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError("TensorBoard is not installed: pip install 'sinkshot[torch]', or leave it out.") from error
    return SummaryWriter(str(folder), purge_step=upto + 1)


class Progress:
    """Images per second and time left: a bar on a terminal, else a line every half a minute; None: silent."""

    def __init__(self, steps: int, every: float | None = LINE_EVERY) -> None:
        self.steps, self.every = steps, every
        self.last = time.monotonic()
        self.bar: Any = None
        self.task: Any = None
        if every is not None and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn
            from rich.progress import Progress as Bar

            columns = (BarColumn(bar_width=16), TextColumn("{task.description}"))
            self.bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self.task = self.bar.add_task("", total=steps)
            self.bar.start()

    def tell(self, step: int, epoch: float, images_per_second: float, left: float, words: str) -> None:
        """Show where the run is; `words` say what it has reached."""
        told = f"step {step:,} of {self.steps:,}, {images_per_second:,.0f} images/s, {clock(left)} left"
        told += f", epoch {epoch:.1f}, {words}"
        if self.bar is not None:
            self.bar.update(self.task, completed=step, description=told)
        elif self.every is not None and time.monotonic() - self.last >= self.every:
            self.last = time.monotonic()
            print(told, file=sys.stderr, flush=True)

    def say(self, message: str) -> None:
        """Tell something that should stay to be read."""
        if self.bar is not None:
            self.bar.console.print(message)
        elif self.every is not None:
            print(message, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Take the bar away."""
        if self.bar is not None:
            self.bar.stop()


def clock(seconds: float) -> str:
    """Return a time as a person reads it.

    >>> clock(3725.4), clock(62)
    ('1:02:05', '1:02')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
