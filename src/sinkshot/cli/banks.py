"""`sinkshot info` and `sinkshot convert`: look at a feature bank, and bring it to our format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sinkshot.bank import describe, load
from sinkshot.cli._console import guarded, out, print_json
from sinkshot.errors import printable


@guarded
def info(
    features: Annotated[str, typer.Argument(help="Feature bank: a file, or the name of a bundled one.")],
    labels: Annotated[Path | None, typer.Option(help="Labels beside an .npy file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Describe a feature bank: classes, counts, width, zeros, sparsity, skew.

    Example: sinkshot info cifar-fs_wrn-28-10_novel
    """
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
    source: Annotated[str, typer.Argument(help="What to read: .plk, .npz, .npy or .safetensors.")],
    target: Annotated[Path, typer.Argument(help="What to write: .safetensors or .npz.")],
    labels: Annotated[Path | None, typer.Option(help="Labels beside an .npy file.")] = None,
    store: Annotated[str, typer.Option(help="float32, float16, or uint8 (after a square root).")] = "float32",
) -> None:
    """Turn a feature file into another format; the target is replaced only when it is whole.

    Example: sinkshot convert output.plk mini_wrn-28-10_novel.safetensors --store float16
    """
    bank = load(source, labels=labels)
    bank.save(target, store=store)
    out().print(f"{target}: {len(bank.labels):,} rows x {bank.width} of {bank.classes} classes, {store}")
