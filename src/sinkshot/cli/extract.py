"""`sinkshot extract`: turn images into a feature bank with a trained network."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sinkshot.cli import completion
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
    images: Annotated[
        str, typer.Argument(metavar="IMAGES", help="Folder of images, data set, or address such as s3://bucket/photos.")
    ],
    target: Annotated[
        str, typer.Option("--out", help="Feature bank to write, .safetensors; or a folder or address, in parts.")
    ],
    encoder: Annotated[
        str | None,
        typer.Option(
            help="Encoder, as `sinkshot label` takes it: efficientnet-lite0, timm:NAME, a file.",
            autocompletion=completion.image_encoders,
        ),
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Weights: .safetensors, .pt, .pth, .tar or .onnx.")] = None,
    backbone: Annotated[
        str | None, typer.Option(help="Network, such as wrn-28-10 or timm:resnet50, if the weights do not name it.")
    ] = None,
    split: Annotated[str, typer.Option(help="base, validation, novel or all.")] = "all",
    layout: shared.Layout = "auto",
    data_set: shared.DataSet = None,
    size: Annotated[int | None, typer.Option(help="Image size in pixels.  [default: as trained]")] = None,
    margin: Annotated[
        float | None,
        typer.Option(
            help="Bring the short side to margin x size before the centre crop.  [default: as the encoder does; "
            "for weights, reduce to 1.15, and leave small images whole]"
        ),
    ] = None,
    batch: Annotated[int, typer.Option(help="Batch size.")] = 256,
    device: shared.Device = "auto",
    precision: Annotated[str, typer.Option(help="float32 or bf16.")] = "float32",
    store: Annotated[str, typer.Option(help="float16 or float32.")] = "float16",
    base_means: Annotated[
        Path | None, typer.Option(help="Bank of the base classes, whose means are stored too.")
    ] = None,
    mean: Annotated[
        str | None,
        typer.Option(metavar="R,G,B", help="Means of the channels, 0 to 1, if the weights do not give them."),
    ] = None,
    std: shared.Std = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Option of the network; repeatable.")
    ] = None,
    subset: shared.Subset = False,
    decode: shared.Decode = False,
    part_rows: Annotated[
        int | None,
        typer.Option(metavar="N", help="Images per part, when writing in parts.  [default: 10000]"),
    ] = None,
    workers: shared.ExtractWorkers = None,
    scheduler: shared.Scheduler = None,
    as_json: shared.AsJson = False,
    max_memory: shared.MaxMemory = None,
    image_formats: shared.ImageFormats = None,
) -> None:
    """Extract features of images into a feature bank.

    Run the same command to continue after an interruption; it starts again if images have changed.

    Example: sinkshot extract photos --weights wrn.safetensors --out photos_wrn-28-10_all.safetensors

    Example: sinkshot extract photos --encoder efficientnet-lite0 --out photos_all.safetensors

    Example: sinkshot extract photos --encoder efficientnet-lite0 --out s3://bucket/photos --workers 8
    """
    del max_memory, image_formats  # their callbacks have been called
    _needs_pillow()
    from sinkshot.backbones import datasets
    from sinkshot.backbones import extract as steps
    from sinkshot.encoders import as_backbone, load
    from sinkshot.encoders.extract_parts import PART_ROWS, EncoderChoice, extract_parts

    in_parts = _in_parts(target, part_rows, workers, scheduler)
    spec, given = _encoder(encoder, weights, backbone, size, mean, std, settings)
    chosen = load(spec, "image", **given)
    if chosen.note:
        say(f"{chosen.name}: {chosen.note}")
    found, own = as_backbone(chosen), None if chosen.images is None else chosen.images.margin
    listed = datasets.load(
        images, layout, split, data_set=data_set, size=found.size, margin=own if margin is None else margin
    )
    with ProgressReporter() as reporter:
        bar = reporter.bar("checking images")
        datasets.check(listed, decode=decode, subset=subset, headers=not in_parts, progress=bar)
    means = None if base_means is None else steps.base_means_in(base_means, found)
    facts = {"weights": (encoder or "timm").partition(":")[0] if weights is None else weights.name}
    options: dict[str, Any] = {"batch": batch, "device": device, "precision": precision, "store": store}
    options |= {"base": means, "meta": facts}
    try:
        with ProgressReporter(LINE_EVERY) as reporter:
            options["progress"] = _speed(reporter.bar())
            if in_parts:
                choice = EncoderChoice(spec, tuple(given.items()))
                options |= {"part_rows": part_rows or PART_ROWS, "workers": workers, "scheduler": scheduler}
                done = extract_parts(choice, listed, target, **options)
            else:
                done = steps.extract(found, listed, target, **options)
    except KeyboardInterrupt:
        kept = f"in {target}" if in_parts else f"in {target}.part"
        say(f"finished features are kept {kept}; run the same command to continue")
        raise
    _show(done, found, len(listed.class_names), store, as_json)


def _in_parts(target: str, part_rows: int | None, workers: int | None, scheduler: str | None) -> bool:
    """Whether a bank in parts is written; refuse a target that another process writes."""
    from sinkshot.formats.resumable_writer import must_be_free

    suffix = Path(target).suffix.lower()
    if suffix in (".npz", ".npy", ".plk", ".pkl", ".csv", ".parquet", ".pt"):
        raise InputError(f"{target}: --out must end in .safetensors; `sinkshot convert` writes other formats.")
    if suffix != ".safetensors":
        return True
    for option, value in (("--part-rows", part_rows), ("--workers", workers), ("--scheduler", scheduler)):
        if value is not None:
            raise InputError(f"{option} writes a bank in parts: give --out a folder, not the file {target}.")
    must_be_free(Path(target))
    return False


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


def _encoder(
    encoder: str | None,
    weights: Path | None,
    backbone: str | None,
    size: int | None,
    mean: str | None,
    std: str | None,
    settings: list[str] | None,
) -> tuple[str | Path, dict[str, Any]]:
    """Return the encoder that the options name, and its options: a name, a file of weights, or a model of timm."""
    if encoder is not None and weights is not None:
        raise InputError("--encoder and --weights both name a network; give one of them.")
    options: dict[str, Any] = dict(parse_settings(settings or [], example="widen=10"))
    shown = {"size": size, "mean": _numbers("--mean", mean), "std": _numbers("--std", std), "backbone": backbone}
    options |= {name: value for name, value in shown.items() if value is not None}
    if encoder is None and weights is None:
        if backbone is None or not backbone.startswith("timm:"):
            raise InputError("give --encoder, or --weights: a file that training wrote, or a published one.")
        del options["backbone"]
        return backbone, options
    return (encoder or "") if weights is None else weights, options


def _needs_pillow() -> None:
    from importlib.util import find_spec

    if find_spec("PIL") is None:
        raise InputError("extraction needs pillow: pip install 'sinkshot[torch]', or 'sinkshot[images]' without torch.")


def _numbers(option: str, text: str | None) -> tuple[float, float, float] | None:
    if text is None:
        return None
    values = parse_value(text)
    if not isinstance(values, list) or len(values) != 3 or not all(isinstance(v, int | float) for v in values):
        raise InputError(f"{option} takes three numbers, such as 0.485,0.456,0.406; {text!r} was given.")
    red, green, blue = (float(value) for value in values)
    return red, green, blue


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
