"""`sinkshot info` and `sinkshot convert`: describe a feature bank, and convert it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sinkshot.bank import describe, load
from sinkshot.cli import shared_options as shared
from sinkshot.cli._console import guarded, out, print_json
from sinkshot.errors import InputError, printable
from sinkshot.foreign.folders import is_address


@guarded
def info(
    features: shared.Features,
    labels: shared.Labels = None,
    as_json: shared.AsJson = False,
    max_memory: shared.MaxMemory = None,
) -> None:
    """Describe a feature bank: classes, samples, dimensions, zeros, sparsity, skewness.

    Example: sinkshot info cifar-fs_wrn-28-10_novel
    """
    del max_memory  # its callback has been called
    facts = describe(load(features, labels=labels))
    if as_json:
        print_json(facts)
        return
    lines = _in_words(facts) | {name.replace("_", " "): str(value) for name, value in facts["meta"].items()}
    widest = max(map(len, lines))
    for name, value in lines.items():
        out().print(f"{printable(name):<{widest}}  {printable(value)}")


def _in_words(facts: dict[str, Any]) -> dict[str, str]:
    """Return the facts of `describe` as a person reads them, each with what it means."""
    counts, skew = facts["counts"], facts["skew"]
    return {
        "rows": f"{facts['rows']:,}" + (f" in {facts['parts']:,} parts" if "parts" in facts else ""),
        "classes": f"{facts['classes']:,}",
        "rows per class": f"{counts['min']:,} to {counts['max']:,}, median {counts['median']:,.6g}",
        "width": f"{facts['width']:,} features per row",
        "number format": facts["dtype"],
        "zeros": f"{100 * facts['share_of_zeros']:.4g} % of all numbers",
        "negative numbers": f"{facts['negative']:,}",
        "sparsity": f"{_number(facts['sparsity'])} (Hoyer's, mean over rows; 0: all features equal, 1: one feature)",
        "skewness": f"{_number(skew['raw'])}, of square roots {_number(skew['sqrt'])} (0: symmetric)",
        "base means": ", ".join(f"after {chain}" if chain else "of raw features" for chain in facts["base"]) or "none",
    }


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.4g}"


@guarded
def convert(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="File to read: .plk, .npz, .npy, .safetensors; or a bank in parts.")
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="File to write: .safetensors or .npz; with --part-rows a folder or its address."
        ),
    ],
    labels: shared.Labels = None,
    store: Annotated[str, typer.Option(help="float32, float16, or uint8 (square roots in 8 bits).")] = "float32",
    part_rows: Annotated[
        int | None,
        typer.Option(metavar="N", help="Write a bank in parts of N rows, which can be read without loading it whole."),
    ] = None,
    part_format: Annotated[str, typer.Option(help="Format of the parts: safetensors or parquet.")] = "safetensors",
    max_memory: shared.MaxMemory = None,
) -> None:
    """Convert a feature file to another format, or to a bank in parts.

    Example: sinkshot convert output.plk mini-imagenet_wrn-28-10_novel.safetensors --store float16

    Example: sinkshot convert birds.npz birds --part-rows 100000 --store float16
    """
    del max_memory  # its callback has been called
    bank = load(source, labels=labels)
    if part_rows is None and is_address(target):
        raise InputError(f"{target} is an address: only a bank in parts can be written there; give --part-rows.")
    bank.save(target, store, part_rows=part_rows, part_format=part_format)
    rows = f"{len(bank.labels):,} rows x {bank.width} of {bank.classes} classes"
    parts = "" if part_rows is None else f" in {-(-len(bank.labels) // part_rows):,} parts"
    out().print(f"{target}: {rows}{parts}, {store}")
