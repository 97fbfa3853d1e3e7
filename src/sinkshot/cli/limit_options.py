"""Options of every command that reads files of others: what they may ask for, and which image formats are opened."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from sinkshot.errors import InputError
from sinkshot.foreign import limits, pictures


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


MaxMemory = Annotated[
    str | None,
    typer.Option(
        "--max-memory",
        callback=_allow_memory,
        help="Memory that a file may ask for, such as 8G.  [default: see docs/security.md]",
    ),
]
ImageFormats = Annotated[
    list[str] | None,
    typer.Option(
        "--image-format",
        callback=_add_formats,
        help="Another format of images that Pillow reads, such as PPM; may be repeated.",
    ),
]

Decode = Annotated[bool, typer.Option("--decode", help="Decode every image before starting, not only its header.")]
