"""`sinkshot label`: images, texts or embeddings with a few labels, and a label for all the rest."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from sinkshot.cli import completion
from sinkshot.cli import shared_options as shared
from sinkshot.cli._console import guarded, out, print_json, say
from sinkshot.errors import InputError
from sinkshot.progress import LINE_EVERY, ProgressReporter


@guarded
def label(  # long: one parameter for each option
    source: Annotated[
        str, typer.Argument(metavar="PATH", help="Folder of images, file of texts or embeddings, or bank in parts.")
    ],
    labels: Annotated[Path | None, typer.Option(help="CSV file: file_name,label or id,label.")] = None,
    text: Annotated[str | None, typer.Option(metavar="COLUMN", help="Column that holds texts.")] = None,
    encoder: Annotated[
        str | None,
        typer.Option(
            help="efficientnet-lite0, minilm, a .safetensors or .onnx file, timm:NAME, ...",
            autocompletion=completion.encoders,
        ),
    ] = None,
    method: Annotated[
        str, typer.Option(help="Method; see `sinkshot methods`.", autocompletion=completion.methods)
    ] = "sinkshot",
    unknown: Annotated[
        float, typer.Option(help="Reject items that belong to no class with a probability above this; 1 rejects none.")
    ] = 0.5,
    next_count: Annotated[int, typer.Option("--next", help="How many items to suggest for labelling next.")] = 10,
    target: Annotated[str, typer.Option("--out", help="Folder for the results.")] = "labels",
    export: Annotated[
        list[str] | None,
        typer.Option(help="label-studio, folders or huggingface; repeatable.", autocompletion=completion.exports),
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Folder to cache features in.  [default: beside the input]")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Write the fitted classifier to this .safetensors file.")] = None,
    model: Annotated[Path | None, typer.Option(help="Use a classifier that --save wrote.")] = None,
    size: Annotated[int | None, typer.Option(help="Image size in pixels, if the encoder does not set it.")] = None,
    mean: Annotated[
        str | None,
        typer.Option(metavar="R,G,B", help="Means of the channels, 0 to 1, if the encoder does not give them."),
    ] = None,
    std: shared.Std = None,
    workers: shared.LabelWorkers = None,
    scheduler: shared.Scheduler = None,
    review: Annotated[bool, typer.Option("--review", help="Open a page to check and correct the labels.")] = False,
    port: Annotated[int, typer.Option(help="Port of the page, on this machine only; 0 takes a free one.")] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Print the page's address without opening it.")] = False,
    as_json: shared.AsJson = False,
    max_memory: shared.MaxMemory = None,
    image_formats: shared.ImageFormats = None,
) -> None:
    """Label your own images, texts or embeddings from the few labels that you give.

    Put a few images of each class into a folder of that name and the rest into `_unlabeled`; or give a table with a
    column `label` that is mostly empty. Results go to `labels/`: labels.csv, report.html and more.

    Example: sinkshot label photos

    Example: sinkshot label questions.csv --text question

    Example: sinkshot label photos --review

    Example: sinkshot label bank-in-parts --workers 8
    """
    from sinkshot.label.run import label as run

    del max_memory, image_formats  # their callbacks have been called
    if not 0 < unknown <= 1:
        raise InputError(
            f"--unknown is a probability above 0 and at most 1, which rejects nothing; {unknown:g} was given."
        )
    options: dict[str, Any] = {
        "labels": labels,
        "text": text,
        "encoder": encoder,
        "method": method,
        "unknown": None if unknown == 1 else unknown,
        "next_count": next_count,
        "out": target,
        "cache": cache,
        **_encoder_options(size, mean, std),
    }
    if review:
        if model is not None or save is not None or export or as_json or workers or scheduler:
            raise InputError(
                "--review takes no --model, --save, --export, --json, --workers or --scheduler; run label again later."
            )
        _review(source, port=port, open_browser=not no_open, **options)
        return
    with ProgressReporter(every=LINE_EVERY) as progress:
        options |= {"tell": progress.say, "progress": progress.bar("encoding"), "stage": progress.stages(5)}
        found = run(
            source, export=tuple(export or ()), save=save, model=model, workers=workers, scheduler=scheduler, **options
        )
    if as_json:
        print_json(found.summary)
    else:
        texts = dict(zip(found.items.names, found.items.texts, strict=True)) if found.items.texts else {}
        _print(found.summary, target, texts)


def _review(source: str, **options: Any) -> None:
    """Serve the page until Ctrl+C."""
    from sinkshot.review.server import review

    with ProgressReporter(every=LINE_EVERY) as progress:

        def announce(address: str) -> None:
            progress.say("the page is on this machine only; Ctrl+C ends the review")
            print(address, flush=True)

        review(source, announce=announce, tell=progress.say, progress=progress.bar("encoding"), **options)


def _encoder_options(size: int | None, mean: str | None, std: str | None) -> dict[str, Any]:
    options: dict[str, Any] = {} if size is None else {"size": size}
    for name, value in (("mean", mean), ("std", std)):
        if value is not None:
            try:
                red, green, blue = (float(part) for part in value.split(","))
            except ValueError:
                raise InputError(
                    f"--{name} takes three numbers R,G,B such as 0.5,0.5,0.5; {value!r} was given."
                ) from None
            options[name] = (red, green, blue)
    return options


def _print(summary: dict[str, Any], target: str, texts: Mapping[str, str]) -> None:
    """Print the classes with their counts, and where the results are; `texts` are shown behind their ids."""
    if "classes" not in summary:
        say("no item has a label yet. Label these first, a few of each class, and run the same command again:")
        _print_next(summary["next"], texts)
        say(f"to fill in: {target}/labels.csv, report: {target}/report.html")
        return
    from rich.table import Table

    table = Table("class", "given and predicted", "estimated, without the given ones", box=None)
    for name in summary["classes"]:
        table.add_row(name, f"{summary['counts'][name]:,}", f"{summary['estimated_sizes'].get(name, 0):,.0f}")
    if summary["unknown"]:
        table.add_row("(none of these)", f"{summary['unknown']:,}", "")
    out().print(table)
    for warning in summary["warnings"]:
        say(f"warning: {warning}")
    if summary["suspicious"]:
        count = len(summary["suspicious"])
        say(f"{count} given label{'' if count == 1 else 's'} may be wrong; see report.html.")
    if summary["left_out"]:
        say(f"left out: {summary['left_out']:,}; summary.json names them and says why.")
    where = f"{target}/answers/*.parquet" if "parts" in summary else f"{target}/labels.csv"
    say(f"labels: {where}, report: {target}/report.html")
    if summary["next"]:
        say("Label these next, the most useful first:")
        _print_next(summary["next"], texts)


def _print_next(names: Sequence[str], texts: Mapping[str, str]) -> None:
    """Print the items to label, a line each, with the beginning of their text if they have one."""
    for name in names:
        beginning = textwrap.shorten(texts[name], 60, placeholder=" ...") if name in texts else ""
        out().print(f"{name}  {beginning}".rstrip())
