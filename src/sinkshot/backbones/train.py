"""Training: from labelled images and a recipe to the weights of a backbone.

A run lives in a folder: `state.safetensors` (from which it continues exactly), `metrics.csv`, `recipe.json`, and the
weights `last.safetensors` and, where there are validation images, `best.safetensors`. While it goes on, `run.lock`
keeps others out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from sinkshot import locks
from sinkshot.backbones import processes, state
from sinkshot.backbones.datasets import Images
from sinkshot.backbones.devices import reproducible, start
from sinkshot.backbones.recipes import TrainingRecipe
from sinkshot.backbones.run import Run
from sinkshot.backbones.validate import rehearse
from sinkshot.errors import InputError, number
from sinkshot.progress import LINE_EVERY


@dataclass(frozen=True)
class TrainingResult:
    """Where a run stands when `train` returns."""

    folder: Path
    finished: bool
    step: int
    steps: int
    seconds: float  # of this call
    images_per_second: float  # views that passed through the network, while training
    validation: dict[str, float]  # accuracy of the last weights by method and shot
    best: float | None  # the highest mean of those

    @property
    def weights(self) -> Path:
        """The file of weights to use: the best where validation chose, else the last."""
        return self.folder / ("last.safetensors" if self.best is None else "best.safetensors")


# More than 60 lines: half of them are the documentation of the parameters.
def train(
    images: Images,
    recipe: TrainingRecipe,
    folder: str | Path,
    *,
    validation: Images | None = None,
    device: str = "auto",
    devices: int = 1,
    max_seconds: float | None = None,
    save_seconds: float = 300.0,
    resume: bool = False,
    deterministic: bool = False,
    tensorboard: bool = False,
    hold: str = "auto",
    progress_seconds: float | None = LINE_EVERY,
    stop: Callable[[], bool] = lambda: False,
) -> TrainingResult:
    """Train a backbone on labelled images.

    Parameters
    ----------
    images : Images
        Of the base classes.
    recipe : TrainingRecipe
        See `recipes.read`.
    folder : path
        Folder of the run; created if needed.
    validation : Images, optional
        Of other classes: few-shot accuracy on them chooses the best weights. Without it there are only the last.
    device, devices : str, int
        "cpu", "cuda" or "auto", and how many of them, one process each: this program is run again for each other.
    max_seconds : float, optional
        Save and stop after this many seconds; `resume` continues exactly.
    save_seconds : float
        Seconds between saves.
    resume : bool
        Continue the run in the folder, if there is one.
    deterministic : bool
        Let torch use no algorithm whose result may differ from run to run.
    tensorboard : bool
        Also write metrics for TensorBoard.
    hold : str
        Whether all pixels are held on the device: "yes", "no" (they stream), or "auto", where they fit.
    progress_seconds : float, optional
        Seconds between lines of progress if standard error is not a terminal; None for silence.
    stop : callable
        Called after each step; if it returns True, the run saves and stops.
    """
    begin = time.monotonic()
    place = Path(folder)
    _check(images, validation, recipe)
    if max_seconds is not None:
        number("max_seconds", max_seconds, above=0)
    if not save_seconds >= 0:
        raise InputError(f"save_seconds must be a number of at least 0; {save_seconds!r} was given.")
    every_loss = all(stage.views.rotated + stage.views.four > 0 for stage in recipe.stage.values())
    with _alone_in(place, devices), reproducible(deterministic), processes.together(devices):
        if (place / state.FILE).exists() and not resume:
            raise InputError(f"{place} already holds a run; continue it with --resume, or choose another folder.")
        taken = start(device, devices, recipe.precision, every_loss)

        def late() -> bool:
            return stop() or (max_seconds is not None and time.monotonic() - begin >= max_seconds)

        run = Run(taken, images, recipe, place, validation, hold)
        try:
            run.prepare(resume, tensorboard, progress_seconds)
            run.go(late, save_seconds)
        finally:
            run.close()
    finished, steps = run.done == run.total, run.total
    seconds = time.monotonic() - begin
    return TrainingResult(place, finished, run.done, steps, seconds, run.images_per_second, run.found, run.best)


def must_be_free(folder: str | Path) -> None:
    """Refuse a folder in which another process trains."""
    locks.must_be_free(*_lock(Path(folder)))


def _lock(folder: Path) -> tuple[Path, str, str]:
    return folder / "run.lock", f"{folder} is trained in", "take another folder"


def _alone_in(folder: Path, devices: int) -> AbstractContextManager[None]:
    """Make the folder, and keep it for this run; the first of its processes holds it for all."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot create the folder {folder}: {error.strerror}.") from error
    return locks.alone(*_lock(folder)) if processes.is_first(devices) else nullcontext()


def _check(images: Images, validation: Images | None, recipe: TrainingRecipe) -> None:
    """Refuse what would fail later."""
    if len(images.class_names) < 2:
        raise InputError(f"training needs at least two classes; the images have {len(images.class_names)}.")
    if validation is not None:
        rehearse(validation.labels, recipe.validation)
        if shared := set(images.class_names) & set(validation.class_names):
            raise InputError(f"the class {min(shared)!r} is used for both training and validation; they must differ.")
