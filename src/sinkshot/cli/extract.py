"""`sinkshot extract`: turn images into a feature bank with a trained network."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sinkshot.cli import shared_options as shared
from sinkshot.cli._console import guarded, out, print_json, say
from sinkshot.cli.set_option import parse_settings, parse_value
from sinkshot.errors import InputError
from sinkshot.progress import LINE_EVERY, ProgressReporter, duration

if TYPE_CHECKING:
    from sinkshot.backbones.backbone import Backbone
    from sinkshot.backbones.extract import Extracted


@guarded  # more than 60 lines: one or more for each option
def extract(  # long: one parameter for each option
    images: shared.Images,
    target: Annotated[Path, typer.Option("--out", help="Feature bank to write, .safetensors.")],
    weights: Annotated[Path | None, typer.Option(help="Weights: .safetensors, .pt, .pth, .tar or .onnx.")] = None,
    backbone: Annotated[
        str | None, typer.Option(help="Network, such as wrn-28-10 or timm:resnet50, if the weights do not name it.")
    ] = None,
    split: Annotated[str, typer.Option(help="base, validation, novel or all.")] = "all",
    layout: shared.Layout = "auto",
    data_set: shared.DataSet = None,
    size: Annotated[int | None, typer.Option(help="Image size in pixels.  [default: as trained]")] = None,
    margin: Annotated[
        float,
        typer.Option(
            help="Reduce the short side to margin x size before the centre crop; small images stay as they are."
        ),
    ] = 1.15,
    batch: Annotated[int, typer.Option(help="Batch size.")] = 256,
    device: shared.Device = "auto",
    precision: Annotated[str, typer.Option(help="float32 or bf16.")] = "float32",
    store: Annotated[str, typer.Option(help="float16 or float32.")] = "float16",
    base_means: Annotated[
        Path | None, typer.Option(help="Bank of the base classes, whose means are stored too.")
    ] = None,
    mean: Annotated[
        str | None, typer.Option(metavar="R,G,B", help="Means from 0 to 1, if the weights do not give it.")
    ] = None,
    std: shared.Std = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Option of the network; repeatable.")
    ] = None,
    subset: shared.Subset = False,
    decode: shared.Decode = False,
    as_json: shared.AsJson = False,
    max_memory: shared.MaxMemory = None,
    image_formats: shared.ImageFormats = None,
) -> None:
    """Extract features of images into a feature bank.

    Run the same command to continue after an interruption; it starts again if images have changed meanwhile.

    Example: sinkshot extract photos --weights wrn.safetensors --out photos_wrn-28-10_all.safetensors
    """
    del max_memory, image_formats  # their callbacks have been called
    _needs_torch()
    from dataclasses import replace

    from sinkshot.backbones import checkpoints, datasets
    from sinkshot.backbones import extract as steps
    from sinkshot.backbones.backbone import triple
    from sinkshot.formats.resumable_writer import must_be_free

    if target.suffix.lower() != ".safetensors":
        raise InputError(f"{target}: --out must end in .safetensors; `sinkshot convert` writes other formats.")
    must_be_free(target)
    found = checkpoints.load(weights, backbone, size, **dict(parse_settings(settings or [], example="widen=10")))
    found = replace(
        found,
        mean=found.mean if mean is None else triple(_numbers("--mean", mean)),
        std=found.std if std is None else triple(_numbers("--std", std)),
    )
    if note := _guess(weights, mean, std):
        say(note)
    side = found.size if size is None else size
    listed = datasets.load(images, layout, split, data_set=data_set, size=side, margin=margin)
    with ProgressReporter() as reporter:
        datasets.check(listed, decode=decode, subset=subset, progress=reporter.bar("checking images"))
    means = None if base_means is None else steps.base_means_in(base_means, found)
    facts = {"weights": "timm" if weights is None else weights.name}
    try:
        with ProgressReporter(LINE_EVERY) as reporter:
            options: dict[str, Any] = {"batch": batch, "device": device, "precision": precision, "store": store}
            done = steps.extract(
                found, listed, target, base=means, meta=facts, progress=_speed(reporter.bar()), **options
            )
    except KeyboardInterrupt:
        say(f"finished features are kept in {target}.part; run the same command to continue")
        raise
    _show(done, found, len(listed.class_names), store, as_json)


def _show(done: Extracted, backbone: Backbone, classes: int, store: str, as_json: bool) -> None:
    """Print what was written."""
    speed = (done.rows - done.before) / max(done.seconds, 1e-9)
    if as_json:
        print_json(
            {
                "out": str(done.path),
                "rows": done.rows,
                "width": done.width,
                "classes": classes,
                "backbone": backbone.name,
                "weights_sha256": backbone.sha256,
                "images_per_second": speed,
                "seconds": done.seconds,
            }
        )
        return
    out().print(
        f"{done.path}: {done.rows:,} rows x {done.width} of {classes} classes, {store}, by {backbone.name}; "
        f"{speed:,.0f} images/s"
    )


def _guess(weights: Path | None, mean: str | None, std: str | None) -> str:
    """Return what was guessed about the images: files of others do not say how theirs were normalised."""
    told = weights is None or weights.suffix.lower() == ".safetensors" or (mean is not None and std is not None)
    return (
        ""
        if told
        else f"{weights}: mean and spread of its images are guessed as ImageNet's; --mean and --std set others"
    )


def _needs_torch() -> None:
    from importlib.util import find_spec

    missing = [name for module, name in (("torch", "torch"), ("PIL", "pillow")) if find_spec(module) is None]
    if missing:
        raise InputError(f"extraction needs {' and '.join(missing)}: pip install 'sinkshot[torch]'.")


def _numbers(option: str, text: str) -> list[float]:
    values = parse_value(text)
    if not isinstance(values, list) or len(values) != 3 or not all(isinstance(v, int | float) for v in values):
        raise InputError(f"{option} takes three numbers, such as 0.485,0.456,0.406; {text!r} was given.")
    return [float(value) for value in values]


def _speed(bar: Callable[..., None]) -> Callable[[int, int], None]:
    """Report images per second, counted from the first call: what was done before this run does not count."""
    first: tuple[int, float] | None = None

    def tell(done: int, total: int) -> None:
        nonlocal first
        if first is None:
            first = done, time.monotonic()
        speed = (done - first[0]) / max(time.monotonic() - first[1], 1e-9)
        left = f", {speed:,.0f} images/s, {duration((total - done) / speed)} left" if speed else ""
        bar(done, total, f"{done:,} of {total:,} images{left}")

    return tell
