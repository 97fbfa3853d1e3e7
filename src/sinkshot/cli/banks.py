"""`sinkshot info` and `sinkshot convert`: describe a feature bank, and convert it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sinkshot.bank import describe, load
from sinkshot.cli._console import guarded, out, print_json
from sinkshot.cli.limit_options import MaxMemory
from sinkshot.errors import printable


@guarded
def info(
    features: Annotated[str, typer.Argument(help="Feature bank: a file or a bundled name.")],
    labels: Annotated[Path | None, typer.Option(help="Labels for an .npy file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    max_memory: MaxMemory = None,
) -> None:
    """Describe a feature bank: classes, samples, dimensions, zeros, sparsity, skewness.

    Example: sinkshot info cifar-fs_wrn-28-10_novel
    """
    del max_memory  # its callback has been called
    facts = describe(load(features, labels=labels))
    if as_json:
        print_json(facts)
        return
    lines = {name: value for name, value in facts.items() if name != "meta"} | facts["meta"]
    widest = max(map(len, lines))
    for name, value in lines.items():
        out().print(f"{printable(name.replace('_', ' ')):<{widest}}  {printable(_words(value))}")


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k.replace('_', ' ')} {_words(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(repr(v) if v == "" else _words(v) for v in value) or "none"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


@guarded
def convert(
    source: Annotated[str, typer.Argument(help="File to read: .plk, .npz, .npy or .safetensors.")],
    target: Annotated[Path, typer.Argument(help="File to write: .safetensors or .npz.")],
    labels: Annotated[Path | None, typer.Option(help="Labels for an .npy file.")] = None,
    store: Annotated[str, typer.Option(help="float32, float16, or uint8 (of the square roots).")] = "float32",
    max_memory: MaxMemory = None,
) -> None:
    """Convert a feature file to another format.

    Example: sinkshot convert output.plk mini_wrn-28-10_novel.safetensors --store float16
    """
    del max_memory  # its callback has been called
    bank = load(source, labels=labels)
    bank.save(target, store=store)
    out().print(f"{target}: {len(bank.labels):,} rows x {bank.width} of {bank.classes} classes, {store}")
