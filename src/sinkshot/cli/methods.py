"""`sinkshot methods`: list the methods."""

from __future__ import annotations

from itertools import groupby
from typing import Annotated, Any

import typer

from sinkshot.cli import shared_options as shared
from sinkshot.cli._console import guarded, out, print_json
from sinkshot.methods import METHODS, Method, references
from sinkshot.methods.needs_training import NEEDS_TRAINING, NeedsTraining
from sinkshot.tuning import written


@guarded
def methods(
    every: Annotated[
        bool, typer.Option("--all", help="Also list the paper's methods that need training of their own.")
    ] = False,
    bibtex: Annotated[bool, typer.Option("--bibtex", help="Print their works as BibTeX.")] = False,
    as_json: shared.AsJson = False,
    plugin: shared.Plugins = None,
) -> None:
    """List the methods with their preprocessing, hyper-parameters and assumptions.

    Example: sinkshot methods --all
    """
    del plugin  # its callback has been called
    if bibtex:
        print_bibtex(every)
        return
    others = trained_methods() if every else {}
    if as_json:
        print_json({name: facts(m) for name, m in METHODS.items()} | others)
        return
    console = out()
    for m in sorted(METHODS.values(), key=lambda m: (m.transductive, m.name)):
        chain = ", else ".join(each or "no preprocessing" for each in m.chains)
        hyper = " ".join(f"{k}={written(v)}" for k, v in m.hyper.items()) or "none"
        console.print(f"{m.name}  ({'; '.join([kind(m), chain, *traits(m)])})", style="bold")
        console.print(f"    {m.summary}\n    {m.reference}\n    --set: {hyper}\n", soft_wrap=True)
    for name, other in others.items():
        console.print(f"{name}  ({kind(NEEDS_TRAINING_BY_NAME[name])}; needs training of its own)", style="bold")
        console.print(f"    {other['reason']}\n    {other['reference']}", soft_wrap=True)
        for line in paper_lines(other["paper"]):
            console.print(f"    {line}", soft_wrap=True)
        console.print()


def print_bibtex(every: bool) -> None:
    """Print the works of all methods as a .bib file; unknown ones, of plugins, as entries of their own."""
    named = [(m.name, m.reference) for m in METHODS.values()]
    named += [(one.name, one.reference) for one in NEEDS_TRAINING] if every else []
    known = {key for _, reference in named for key in references.keys(reference)}
    own = [references.own_entry(name, reference) for name, reference in named if not references.keys(reference)]
    out().print("\n".join([references.bibliography(known), *own]), soft_wrap=True, markup=False, highlight=False)


NEEDS_TRAINING_BY_NAME = {one.name: one for one in NEEDS_TRAINING}
_KINDS = ("", "Inductive", "Transductive")  # groups of rows that do not name a data set


def kind(method: Method | NeedsTraining) -> str:
    """Return whether a method looks at all queries together, in a word."""
    return "transductive" if method.transductive else "inductive"


def traits(method: Method) -> list[str]:
    """Return what to know before choosing a method."""
    told = {
        "assumes equal class sizes": method.balanced,
        "accepts class proportions": "prior" in method.hyper,
        "needs base features": method.features,
        "draws random numbers": method.random,
        "depends on the order of supports": method.ordered,
        f"needs {method.least_shots} supports per class": method.least_shots > 1,
        "a score for unknowns only, for open-set": method.open_set,
    }
    return [words for words, holds in told.items() if holds]


def facts(method: Method) -> dict[str, Any]:
    """Return a method as `--json` prints it."""
    return {
        "transductive": method.transductive,
        "preprocess": method.preprocess,
        "without_base": method.without_base,
        "with_base": method.with_base or method.preprocess,
        "hyper": method.hyper,
        "imbalanced": dict(method.imbalanced),
        "assumes_balance": method.balanced,
        "takes_prior": "prior" in method.hyper,
        "needs_base_features": method.features,
        "random": method.random,
        "ordered": method.ordered,
        "least_shots": method.least_shots,
        "open_set": method.open_set,
        "reference": method.reference,
        "summary": method.summary,
    }


def trained_methods() -> dict[str, dict[str, Any]]:
    """Return the methods that need training of their own, with the paper's values."""
    printed = paper_values()
    return {
        one.name: {
            "transductive": one.transductive,
            "feature_level": False,
            "reason": one.reason,
            "reference": one.reference,
            "paper": [value for row in one.rows for value in printed.get(row, [])],
        }
        for one in NEEDS_TRAINING
    }


def paper_values() -> dict[str, list[dict[str, str]]]:
    """Return the values of the paper's tables by row label."""
    from sinkshot.studies import parse

    found: dict[str, list[dict[str, str]]] = {}
    for study in map(parse.find, parse.names()):
        for sheet in study.sheets if study.kind == "table" else ():
            for row in sheet.rows:
                for column, entry in zip(sheet.columns, row.entries, strict=True):
                    if entry.paper is not None:
                        on = [sheet.label, *([row.group] if row.group not in _KINDS else []), *row.details]
                        where = {"where": study.where, "on": ", ".join(on), "row": row.label}
                        what = {"column": f"{column.group} {column.label}".strip(), "value": entry.paper.text}
                        found.setdefault(row.label, []).append(where | what)
    return found


def paper_lines(values: list[dict[str, str]]) -> list[str]:
    """Format values, one line per row of a table."""
    lines = []
    for (where, on, _), of in groupby(values, key=lambda value: (value["where"], value["on"], value["row"])):
        lines.append(f"{where}, {on}: " + ", ".join(f"{value['column']} {value['value']}" for value in of))
    return lines
