"""Write the pages of the methods: what each registered method does, assumes, costs and reaches.

    sinkshot reproduce --study leaderboard --episodes 2000                  # measure
    python tools/gpu_leaderboard.py --out sinkshot-report                   # or on a GPU, 10,000 episodes each
    python tools/make_methods_page.py --cells sinkshot-report/cells.csv     # keep the numbers in docs/methods.json
    make docs                                                               # writes docs/methods/, a page per method

Words come from the registry and the docstrings of the methods, numbers from docs/methods.json. `make docs` calls
`write`, so registering a method is enough to give it a page.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sinkshot import METHODS
from sinkshot.files import replacing
from sinkshot.methods import Method
from sinkshot.tuning import written

DOCS = Path(__file__).parents[1] / "docs"
PAGES, NUMBERS = DOCS / "methods", DOCS / "methods.json"
STUDY, ON_GPU = "leaderboard", "leaderboard-full"
_OPEN_SET = ("AUROC", "AUPR", "FPR95")  # columns that share their episodes with one of accuracy

Measured = dict[str, Any]
"""`study`, `hardware`, `finished`, `others` (runs that some methods are of), and `sheets`: sheet -> method -> column ->
value, ci95, episodes, ms."""

INTRODUCTION = """\
# Methods

Every method that `sinkshot eval --method NAME` runs, as published: with its authors' preprocessing and constants.
`--preprocess` and `--set` override them, and `sinkshot tune` chooses them on validation classes. An inductive method
looks at each query alone; a transductive one looks at all queries together. `sinkshot methods --all` also lists methods
of the paper's tables that need training of their own.

Pages are made from the registry and the methods' own files. The numbers are those of

    {command}
"""
COMMANDS = {
    STUDY: "sinkshot reproduce --study leaderboard --episodes 2000",
    ON_GPU: "python tools/gpu_leaderboard.py    # 10,000 episodes each, on a GPU",
}
TIMES = {
    STUDY: "milliseconds per episode on one core, with every core of {hardware} busy",
    ON_GPU: "milliseconds per episode of one process, where several share {hardware}",
}


# --- numbers --------------------------------------------------------------------------------------------------------


def measured(cells: Path) -> Measured:
    """Read what a run of the leaderboard reached from the `cells.csv` of its report."""
    with cells.open(newline="", encoding="utf-8") as file:
        known = [row for row in csv.DictReader(file) if row["study"] in (STUDY, ON_GPU)]
    rows = [row for row in known if row["here"] and row["here_ci95"]]  # calibration errors have no interval
    if not rows:
        sys.exit(f"{cells} has no measured number of the study {STUDY}; run: sinkshot reproduce --study {STUDY}")
    sheets: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        column = f"{row['column_group']} {row['column']}".strip()
        seconds, episodes = float(row["seconds"]), int(row["episodes"])
        sheets.setdefault(row["sheet"], {}).setdefault(row["method"], {})[column] = {
            "value": round(float(row["here"]), 2),
            "ci95": round(float(row["here_ci95"]), 2),
            "episodes": episodes,
            "ms": float(f"{1000 * seconds / episodes:.3g}"),
        }
    hardware = sorted({row["hardware"] for row in rows})
    facts = {"hardware": "; ".join(hardware), "finished": max(row["finished"] for row in rows)[:10]}
    return {"study": rows[0]["study"], **facts, "sheets": sheets}


def joined(first: Measured, other: Measured) -> Measured:
    """Add what another run has of methods on sheets where the first has nothing; the page then names that run."""
    missing = {
        sheet: {name: one for name, one in other["sheets"].get(sheet, {}).items() if name not in found}
        for sheet, found in first["sheets"].items()
    }
    added = {name for found in missing.values() for name in found}
    runs = other.get("others", [])  # the other may be of several runs itself
    own = {"hardware": other["hardware"], "finished": other["finished"]}
    own["methods"] = sorted(added - {name for run in runs for name in run["methods"]})
    runs = [own, *({**run, "methods": sorted(added & set(run["methods"]))} for run in runs)]
    sheets = {sheet: found | missing[sheet] for sheet, found in first["sheets"].items()}
    return {**first, "others": [*first.get("others", []), *(run for run in runs if run["methods"])], "sheets": sheets}


def without(numbers: Measured, names: Sequence[str]) -> Measured:
    """Return numbers without some methods, such as one that has changed since."""
    sheets = {
        sheet: {name: one for name, one in found.items() if name not in names}
        for sheet, found in numbers["sheets"].items()
    }
    return {**numbers, "sheets": sheets}


def stored() -> Measured:
    """Return the numbers that the page has."""
    if not NUMBERS.is_file():
        return {"study": STUDY, "hardware": "", "finished": "", "sheets": {}}
    found: Measured = json.loads(NUMBERS.read_text(encoding="utf-8"))
    return found


# --- words ----------------------------------------------------------------------------------------------------------


def pages(numbers: Measured) -> dict[str, str]:
    """Return every page by its file name: `index.md` with the tables, and one page for each method."""
    inductive, transductive = (
        [METHODS[name] for name in sorted(METHODS) if METHODS[name].transductive == kind] for kind in (False, True)
    )
    introduction = INTRODUCTION.format(command=COMMANDS[numbers["study"]])
    index = [introduction, _contents("Inductive", inductive), _contents("Transductive", transductive)]
    found = {"index.md": "\n".join([*index, *_tables(numbers)]).rstrip("\n") + "\n"}
    return found | {f"{method.name}.md": _page(method, numbers) for method in (*inductive, *transductive)}


def _contents(title: str, methods: Sequence[Method]) -> str:
    """List methods with the first line of what they do, and add their pages to the table of contents."""
    lines = [f"- [{method.name}]({method.name}.md): {method.summary.rstrip('.')}." for method in methods]
    toctree = ["```{toctree}", ":hidden:", "", *(method.name for method in methods), "```"]
    return "\n".join([f"## {title}\n", *lines, "", *toctree]) + "\n"


def _page(method: Method, numbers: Measured) -> str:
    lines = [f"# {method.name}\n", *(f"{paragraph}\n" for paragraph in _paragraphs(method))]
    lines += ["## Facts\n", *(f"- *{head}*: {text}" for head, text in _facts(method))]
    reached = [f"- *{sheet}*: {text}" for sheet, text in _reached(method, numbers)]
    return "\n".join([*lines, *(["", "## Measured\n", *reached] if reached else [])]) + "\n"


def _paragraphs(method: Method) -> list[str]:
    """The text of its docstring; if two names share a function, how they differ."""
    family = [one for one in METHODS.values() if one.function is method.function]
    head = min(family, key=lambda one: (len(one.fixed), len(one.name), one.name))
    if head is not method:
        fixed = [f"`{name}={written(value)}`" for name, value in method.fixed.items()]
        chain = [] if method.preprocess == head.preprocess else [f"preprocessing {_chain(method.preprocess)}"]
        return [f"[{head.name}]({head.name}.md) with {' and '.join([*fixed, *chain]) or 'another name'}."]
    paragraphs = (sys.modules[method.function.__module__].__doc__ or "").strip().split("\n\n")
    return [" ".join(paragraph.split()) for paragraph in paragraphs[:2]]


def _facts(method: Method) -> Iterator[tuple[str, str]]:
    """What to know before choosing it."""
    yield "reference", method.reference
    chain = _chain(method.preprocess)
    if method.with_base:
        chain = f"{_chain(method.with_base)} with features of the base classes, {chain} where only their mean is known"
    if method.without_base != method.preprocess:
        chain += f", and {_chain(method.without_base)} where the mean of the base classes is not known"
    yield "preprocessing", chain
    hyper = ", ".join(f"`{name}={written(value)}`" for name, value in method.hyper.items())
    yield "hyper-parameters", hyper or "none"
    yield "class balance", _balance(method)
    yield "base classes", _base(method)
    if method.least_shots > 1:
        yield "supports", f"at least {method.least_shots} of each class"
    if method.open_set:
        yield (
            "open set",
            "differs from another method only by its score of unknown queries (protocol `open-set`)",
        )
    if method.random:
        yield "random", "its published form draws random numbers, so only mean accuracies can be compared"


def _chain(chain: str) -> str:
    return f"`{chain}`" if chain else "none"


def _balance(method: Method) -> str:
    if not method.transductive:
        return "does not matter: each query is looked at alone"
    assumed = "assumes equal query sizes" if method.balanced else "does not assume equal query sizes"
    told = ", and takes other proportions (`prior`)" if "prior" in method.hyper else ""
    own = ", ".join(f"`{name}={written(value)}`" for name, value in method.imbalanced.items())
    return assumed + told + (f"; under unequal sizes its authors set {own}" if own else "")


def _base(method: Method) -> str:
    if method.features:
        return "needs their features (`--base`)"
    return "needs their mean, for the step `Mb`" if "Mb" in method.preprocess else "not needed"


def _reached(method: Method, numbers: Measured) -> Iterator[tuple[str, str]]:
    """What was measured, sheet by sheet."""
    for sheet, methods in numbers["sheets"].items():
        found = methods.get(method.name)
        if found is None:
            if not method.open_set or "open set" in sheet:
                yield sheet, "not measured yet"
            continue
        parts = [f"{column} {_value(one)}" for column, one in found.items()]
        counts = sorted({one["episodes"] for one in found.values()})
        yield sheet, f"{', '.join(parts)} ({', '.join(f'{count:,}' for count in counts)} episodes)"
        yield f"{sheet}, time per episode", ", ".join(_times(found))


def _value(one: Mapping[str, Any]) -> str:
    return f"{one['value']:.2f} ± {one['ci95']:.2f}"


def _times(columns: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Times by column; a column of accuracy includes those of the unknown scores."""
    return [f"{column} {one['ms']:g} ms" for column, one in columns.items() if not column.endswith(_OPEN_SET)]


def _tables(numbers: Measured) -> Iterator[str]:
    """One table for each sheet, sorted by how far a method is above the mean of all; incomplete rows last."""
    if numbers["sheets"]:
        yield "## Measured\n"
        yield (
            f"Percent ± 95 % CI half-width, and {TIMES[numbers['study']].format(**numbers)}; measured "
            f"{numbers['finished']}. Sorted by the mean of all columns. Methods that cannot fill every column come "
            "last, as do those that saw fewer episodes: their sample may be easier or harder than the whole.\n"
        )
    for run in numbers.get("others", []):
        named = ", ".join(f"[{name}]({name}.md)" for name in run["methods"])
        yield f"Numbers and times of {named} are of another run, on {run['hardware']}, {run['finished']}.\n"
    for sheet, methods in numbers["sheets"].items():
        columns = list(dict.fromkeys(column for found in methods.values() for column in found))
        rows = [(name, found) for name, found in methods.items() if name in METHODS]
        middles = {
            column: _mean([found[column]["value"] for _, found in rows if column in found]) for column in columns
        }
        most = max(_episodes(found) for _, found in rows)
        whole = {name for name, found in rows if _episodes(found) == most and len(found) == len(columns)}
        rows.sort(key=lambda row: (row[0] not in whole, -_height(row[1], middles)))
        heads = ["method", *columns, "ms", "episodes"]
        yield f"### {sheet}\n"
        yield _table(heads, [[*_row(name, found, columns), f"{_episodes(found):,}"] for name, found in rows])


def _height(found: Mapping[str, Mapping[str, Any]], middles: Mapping[str, float]) -> float:
    """Mean difference from each column's mean; for FPR95, lower is better."""
    apart = [(column, one["value"] - middles[column]) for column, one in found.items()]
    return _mean([-height if column.endswith("FPR95") else height for column, height in apart])


def _episodes(found: Mapping[str, Mapping[str, Any]]) -> int:
    return max(one["episodes"] for one in found.values())


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _row(name: str, found: Mapping[str, Mapping[str, Any]], columns: Sequence[str]) -> list[str]:
    times = sorted(one["ms"] for one in found.values())
    spread = f"{times[0]:g}" if times[0] == times[-1] else f"{times[0]:g} to {times[-1]:g}"
    return [f"[{name}]({name}.md)", *(_value(found[column]) if column in found else "" for column in columns), spread]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows)) + "\n"


def write(folder: Path = PAGES) -> None:
    """Write all pages into a folder; remove those of methods that are no longer registered."""
    folder.mkdir(parents=True, exist_ok=True)
    made = pages(stored())
    for old in folder.glob("*.md"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        file = folder / name
        if not file.is_file() or file.read_text(encoding="utf-8") != text:  # Sphinx reads again what is newer
            file.write_text(text, encoding="utf-8")


def main() -> None:
    """Write the pages, and before that the numbers if `--cells` gives them."""
    parser = argparse.ArgumentParser(description="Write the pages of the methods into docs/methods.")
    parser.add_argument("--cells", type=Path, nargs="+", help="cells.csv of reports; later ones fill what is missing")
    parser.add_argument("--without", nargs="+", default=[], metavar="NAME", help="methods to leave out of the first")
    parser.add_argument("--keep", action="store_true", help="keep older numbers where no report has any")
    given = parser.parse_args()
    if given.cells:
        numbers = without(measured(given.cells[0]), given.without)
        for other in (*map(measured, given.cells[1:]), *([stored()] if given.keep else [])):
            numbers = joined(numbers, other)
        with replacing(NUMBERS) as temporary:
            temporary.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    write()


if __name__ == "__main__":
    main()
