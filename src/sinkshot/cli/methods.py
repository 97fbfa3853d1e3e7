"""`sinkshot methods`: what can be evaluated."""

from __future__ import annotations

from typing import Annotated

import typer

from sinkshot.cli._console import guarded, out, print_json
from sinkshot.methods import METHODS


@guarded
def methods(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """List the methods with their preprocessing and hyper-parameters.

    Example: sinkshot methods
    """
    if as_json:
        print_json(
            {
                m.name: {
                    "transductive": m.transductive,
                    "preprocess": m.preprocess,
                    "without_base": m.without_base,
                    "hyper": m.hyper,
                    "reference": m.reference,
                    "summary": m.summary,
                }
                for m in METHODS.values()
            }
        )
        return
    for m in sorted(METHODS.values(), key=lambda m: (m.transductive, m.name)):
        chain = m.preprocess if m.without_base == m.preprocess else f"{m.preprocess} (else {m.without_base})"
        kind = "transductive" if m.transductive else "inductive"
        hyper = " ".join(f"{name}={value}" for name, value in m.hyper.items()) or "none"
        out().print(f"{m.name}  ({kind}, {chain})", style="bold")
        out().print(f"    {m.summary}\n    {m.reference}\n    --set: {hyper}\n")
