"""`sinkshot train`: train a backbone on images."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sinkshot.cli import shared_options as shared
from sinkshot.cli._console import FAILED, exit_code, guarded, out, percent, print_json, say
from sinkshot.cli._signals import receive
from sinkshot.cli.set_option import parse_settings
from sinkshot.errors import InputError
from sinkshot.progress import ProgressReporter

if TYPE_CHECKING:
    from sinkshot.backbones.datasets import Images
    from sinkshot.backbones.train import TrainingResult


@guarded
def train(  # long: one parameter for each option
    images: shared.Images,
    folder: Annotated[Path, typer.Option("--out", help="Folder of the run.")],
    recipe: Annotated[str, typer.Option(help="Recipe name or .toml file.")] = "modern",
    validation: Annotated[Path | None, typer.Option(help="Images of the validation classes, if separate.")] = None,
    data_set: shared.DataSet = None,
    layout: shared.Layout = "auto",
    network: Annotated[str | None, typer.Option(help="Network.  [default: the recipe's]")] = None,
    epochs: Annotated[float | None, typer.Option(help="Epochs of a one-stage recipe.  [default: the recipe's]")] = None,
    fit_seconds: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Scale epochs so that training takes about this long.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed.  [default: the recipe's]")] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any key of the recipe; repeatable.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    devices: Annotated[int, typer.Option(help="Number of devices: 1, 2, 4 or 8.")] = 1,
    max_seconds: Annotated[float | None, typer.Option(metavar="SECONDS", help="Save and stop after this time.")] = None,
    save_seconds: Annotated[float, typer.Option(metavar="SECONDS", help="Time between saves.")] = 300.0,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in the folder.")] = False,
    deterministic: Annotated[bool, typer.Option("--deterministic", help="Reproducible bit for bit.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Also write metrics for TensorBoard.")] = False,
    subset: shared.Subset = False,
    decode: shared.Decode = False,
    as_json: shared.AsJson = False,
    max_memory: shared.MaxMemory = None,
    image_formats: shared.ImageFormats = None,
) -> None:
    """Train a backbone on base classes; few-shot accuracy on validation classes picks the best weights.

    Example: sinkshot train cifar-100-python.tar.gz --recipe cifar-fs_wrn-28-10 --out runs/wrn
    """
    del max_memory, image_formats  # their callbacks have been called
    _needs_torch()
    from sinkshot.backbones import processes, recipes, state
    from sinkshot.backbones.train import must_be_free
    from sinkshot.backbones.train import train as run

    speaks = processes.is_first(devices)
    if speaks:
        must_be_free(folder)
    else:
        processes.be_silent()
    chosen = recipes.read(recipe, _changes(recipe, network, epochs, fit_seconds, seed, change or []))
    base, other = _images(images, layout, data_set, validation)
    if speaks and not (resume and (folder / state.FILE).exists()):
        _check([part for part in (base, other) if part is not None], chosen.stored, decode, subset)
    with _stoppable() as stop:
        try:
            outcome = run(
                base,
                chosen,
                folder,
                validation=other,
                device=device,
                devices=devices,
                max_seconds=max_seconds,
                save_seconds=save_seconds,
                resume=resume,
                deterministic=deterministic,
                tensorboard=tensorboard,
                stop=stop,
            )
        except processes.Ended as error:
            say(f"failed: {error}")
            raise typer.Exit(FAILED) from None
        if not speaks:
            return
        _tell(outcome, as_json)
        if stop() and not outcome.finished:
            raise typer.Exit(exit_code())


def _check(parts: list[Images], size: int, decode: bool, subset: bool) -> None:
    """Report all faults of all images at once; images may have any size, they are resized to `size`."""
    from sinkshot.backbones.datasets.images import complain, problems

    faults: list[str] = []
    with ProgressReporter() as progress:
        for part in parts:
            sized = dataclasses.replace(part, size=size)
            faults += problems(sized, decode, subset, progress.bar(f"checking {part.meta.get('split', '')} images"))
    complain(faults)


def _tell(outcome: TrainingResult, as_json: bool) -> None:
    if as_json:
        facts = dataclasses.asdict(outcome) | {"weights": str(outcome.weights), "folder": str(outcome.folder)}
        print_json(facts)
    elif outcome.finished:
        accuracy = ", ".join(f"{name} {percent(value)}" for name, value in outcome.validation.items())
        out().print(f"trained {outcome.steps:,} steps at {outcome.images_per_second:,.0f} images/s")
        if accuracy:
            out().print(f"validation accuracy of the last weights: {accuracy}")
        out().print(f"weights: {outcome.weights}", soft_wrap=True)
    if not outcome.finished:
        say(
            f"stopped at step {outcome.step:,} of {outcome.steps:,} after {outcome.seconds:.0f} s, and saved; "
            "run the same command with --resume to continue"
        )


def _needs_torch() -> None:
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise InputError("training needs torch: pip install 'sinkshot[torch]'.")


def _changes(
    recipe: str,
    network: str | None,
    epochs: float | None,
    fit_seconds: float | None,
    seed: int | None,
    given: list[str],
) -> dict[str, Any]:
    """Collect the changes to the recipe, by key."""
    from sinkshot.backbones import recipes

    found: dict[str, Any] = {}
    for key, value in parse_settings(given, example="stage.train.rate=0.1"):
        found[key] = "none" if value is None else value  # TOML has no none, and the text is a choice of some keys
    single = {"network": network, "seconds": fit_seconds or None, "seed": seed}
    found |= {key: value for key, value in single.items() if value is not None}
    if epochs is not None:
        stages = list(recipes.read(recipe, {"network": "conv4", **found}).stage)
        if len(stages) > 1:
            raise InputError(
                f"the recipe has several stages ({', '.join(stages)}); use --set stage.{stages[0]}.epochs=..."
            )
        found[f"stage.{stages[0]}.epochs"] = epochs
    return found


def _images(path: Path, layout: str, data_set: str | None, validation: Path | None) -> tuple[Images, Images | None]:
    """Return the images to train on, and those of the validation classes, if any."""
    from sinkshot.backbones.datasets import load

    alone = _alone(path, layout, data_set)
    base = load(path, layout, "base", data_set=data_set) if alone is None else alone
    if validation is not None:
        return base, load(validation)
    if alone is not None:
        say("no validation classes (--validation): the last weights are kept, without choosing the best")
        return base, None
    return base, load(path, layout, "validation", data_set=data_set)


def _alone(path: Path, layout: str, data_set: str | None) -> Images | None:
    """Return all images of a folder or pack without splits; None if a split must be chosen."""
    from sinkshot.backbones.datasets import layout_of, load

    kind = layout_of(path, layout)
    if kind != "folder" and not (kind == "pack" and path.is_file()):
        return None
    everything = load(path, layout, data_set=data_set)
    others = "data_set" in everything.meta and everything.meta["split"] != "base"
    return None if kind == "folder" and others else everything


@contextmanager
def _stoppable() -> Iterator[Callable[[], bool]]:
    """Let SIGINT or SIGTERM stop the run after its step, with its state saved; a second signal ends it at once."""
    asked: list[int] = []

    def ask(number: int, _frame: Any) -> None:
        asked.append(number)
        receive(number)
        say("stopping after this step")
        for kind, handler in before.items():
            signal.signal(kind, handler)

    before = {kind: signal.signal(kind, ask) for kind in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
