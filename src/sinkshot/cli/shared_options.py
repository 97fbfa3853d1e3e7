"""Options that several subcommands have, and how their help names values."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from sinkshot.errors import InputError
from sinkshot.foreign import limits, pictures

_TYPE = re.compile(r"(?<= )(?:<(?:list\[)?(\w+)\]?>|INTEGER|FLOAT|TEXT)$")  # of typer, or of an older one
_IN_WORDS = {"int": "N", "float": "NUMBER", "str": "NAME", "INTEGER": "N", "FLOAT": "NUMBER", "TEXT": "NAME"}


class Command(TyperCommand):
    """A subcommand whose help shows `N`, `NAME` or `PATH` where typer shows a Python type."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line; a required argument has no braces, which look like a choice."""
        return [re.sub(r"^\{(\w+)\}$", r"\1", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options."""
        for title, kind in (("Arguments", "argument"), ("Options", "option")):
            parameters = [one for one in self.get_params(ctx) if one.param_type_name == kind]
            records = [record for one in parameters if (record := one.get_help_record(ctx)) is not None]
            if records:
                with formatter.section(title):
                    formatter.write_dl([(_in_words(name, kind), text) for name, text in records])


def _in_words(name: str, kind: str) -> str:
    """Replace the Python type in the name of an option; an argument is named in words already.

    >>> _in_words("--grid <list[str]>", "option"), _in_words("FEATURES <str>", "argument")
    ('--grid NAME', 'FEATURES')
    """
    if kind == "argument":
        return _TYPE.sub("", name).rstrip()
    return _TYPE.sub(lambda found: _IN_WORDS.get(found[1] or found[0], "PATH"), name)


def _allow_memory(value: str | None) -> str | None:
    if value is not None:
        try:
            limits.size_of(value)
        except InputError as error:
            raise typer.BadParameter(str(error)) from error
        os.environ[limits.VARIABLE] = value  # processes of this one are allowed the same
    return value


def _add_formats(values: list[str] | None) -> list[str] | None:
    if values:
        os.environ[pictures.VARIABLE] = ",".join(values)
    return values


def _load_plugins(values: list[Path] | None) -> list[Path] | None:
    from sinkshot.methods import plugins

    try:
        plugins.load_entry_points()
        for value in values or ():
            plugins.load_file(value)
    except InputError as error:
        raise typer.BadParameter(str(error)) from error
    return values


# Methods
Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        "--plugin",
        metavar="FILE.py",
        callback=_load_plugins,
        is_eager=True,
        help="Run this file first; it registers methods of your own. Repeatable.",
    ),
]

# Feature banks
Features = Annotated[
    str,
    typer.Argument(metavar="FEATURES", help="Feature bank: a file, a folder or address of parts, or a bundled name."),
]
Labels = Annotated[Path | None, typer.Option(help="Labels for an .npy file.")]
Base = Annotated[Path | None, typer.Option(help="Feature bank of the base classes, for Mb and Wb steps.")]
ExtractWorkers = Annotated[int | None, typer.Option("--workers", help="Encode in N processes; writes a bank in parts.")]
LabelWorkers = Annotated[
    int | None, typer.Option("--workers", help="Encode and label in N processes; writes answers in parts.")
]
Scheduler = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Compute on a Dask cluster, such as tcp://10.0.0.1:8786.")
]
MaxMemory = Annotated[
    str | None,
    typer.Option(
        "--max-memory",
        metavar="SIZE",
        callback=_allow_memory,
        help="Most memory that reading a file may take, such as 8G.  [default: see docs/security.md]",
    ),
]
Classes = Annotated[str | None, typer.Option(metavar="CLASSES", help="Use only these classes, such as 0-9,12.")]

# Episodes
Way = Annotated[int, typer.Option(help="Classes per episode.")]
Shot = Annotated[int, typer.Option(help="Labelled samples per class.")]
Query = Annotated[int, typer.Option(help="Unlabelled samples per class.")]
Protocol = Annotated[str, typer.Option(help="balanced, official, dirichlet, long-tail or open-set.")]
Alpha = Annotated[float, typer.Option(help="dirichlet: smaller is more imbalanced.")]
Ratio = Annotated[float, typer.Option(help="long-tail: largest class over smallest.")]
Seed = Annotated[int, typer.Option(help="Seed of the episodes.")]

# Images
Images = Annotated[
    Path, typer.Argument(metavar="IMAGES", help="Folder with one folder per class, or a known data set.")
]
Layout = Annotated[str, typer.Option(help="Layout of the images, if it is not recognised.")]
DataSet = Annotated[str | None, typer.Option(help="Data set whose class split to use: cifar-fs, fc100, cub, ...")]
Subset = Annotated[bool, typer.Option("--subset", help="Accept an incomplete data set.")]
Decode = Annotated[bool, typer.Option("--decode", help="Decode every image before starting, not only its header.")]
ImageFormats = Annotated[
    list[str] | None,
    typer.Option(
        "--image-format",
        callback=_add_formats,
        help="Another format of images that Pillow reads, such as PPM; repeatable.",
    ),
]
Std = Annotated[str | None, typer.Option(metavar="R,G,B", help="Standard deviations, like --mean.")]

# Where to compute, and what to print
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or another torch device.")]
Engine = Annotated[str, typer.Option(help="auto, numpy, numba, torch or triton.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
