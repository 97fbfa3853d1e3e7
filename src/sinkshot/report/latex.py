"""Sheets as LaTeX tables (booktabs), ready for a paper."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from sinkshot.report.table_cells import TableCell, table_cells, texts, transposed
from sinkshot.studies.study import Cell, Column, Row, Sheet, Study

if TYPE_CHECKING:
    from sinkshot.studies.run import StoredResult

_LATEX = {character: f"\\{character}" for character in "&%$#_{}"}
_LATEX |= {"~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "\\": "\\textbackslash{}", '"': "''"}
_LATEX |= {"<": "\\textless{}", ">": "\\textgreater{}", "|": "\\textbar{}", "\N{HORIZONTAL ELLIPSIS}": "\\dots{}"}
_LATEX |= {"\N{PLUS-MINUS SIGN}": "$\\pm$", "\N{MULTIPLICATION SIGN}": "$\\times$", "\N{MINUS SIGN}": "$-$"}
_LATEX |= {"\N{MIDDLE DOT}": "$\\cdot$", "\N{ALMOST EQUAL TO}": "$\\approx$", "\N{RIGHTWARDS ARROW}": "$\\to$"}
_LATEX |= {"\N{LESS-THAN OR EQUAL TO}": "$\\leq$", "\N{GREATER-THAN OR EQUAL TO}": "$\\geq$", "\N{EN DASH}": "--"}
_LATEX |= {"\N{EM DASH}": "---", "\N{LEFT SINGLE QUOTATION MARK}": "`", "\N{RIGHT SINGLE QUOTATION MARK}": "'"}
_LATEX |= {"\N{LEFT DOUBLE QUOTATION MARK}": "``", "\N{RIGHT DOUBLE QUOTATION MARK}": "''", "\N{NO-BREAK SPACE}": "~"}
_GREEK = ("alpha", "beta", "gamma", "delta", "epsilon", "kappa", "lambda", "mu", "sigma", "tau")


def escape(text: str) -> str:
    """Escape any plain text for LaTeX.

    >>> escape("BMS* & 50 % of λ")
    'BMS* \\\\& 50 \\\\% of $\\\\lambda$'
    """
    plain = unicodedata.normalize("NFC", " ".join(text.split()))
    written = "".join(_character(character) for character in plain)
    return (
        "{}" + written if written.startswith(("*", "[")) else written
    )  # after \\, LaTeX would read these as arguments


def _character(character: str) -> str:
    if character in _LATEX or " " <= character <= "~":
        return _LATEX.get(character, character)
    greek = unicodedata.name(character, "").removeprefix("GREEK SMALL LETTER ").lower().replace("lamda", "lambda")
    if greek in _GREEK:
        return f"$\\{greek}$"
    if "\u00c0" <= character <= "\u017f":  # accented letters, which LaTeX reads since 2018
        return character
    return f"[U+{ord(character):04X}]"


def latex_tables(studies: Iterable[Study], results: Mapping[Cell, StoredResult]) -> str:
    """Return every sheet with a measured number as a table; a figure has one row per point of its x axis."""
    parts = ["% Each table can be used alone and needs \\usepackage{booktabs}."]
    labels: Counter[str] = Counter()  # two studies may have one name
    for study in studies:
        for i, sheet in enumerate(study.sheets, start=1):
            upright = transposed(sheet) if study.kind == "curve" else sheet
            lines = table_cells(upright, results)
            if any(place.here is not None for line in lines for place in line):
                label = re.sub("[^a-zA-Z0-9-]", "-", f"{study.name}-{i}")
                labels[label] += 1
                parts.append(_table(study, upright, lines, label + "-again" * (labels[label] - 1)))
    return "\n\n".join(parts) + "\n"


def _table(study: Study, sheet: Sheet, lines: Sequence[Sequence[TableCell]], label: str) -> str:
    heads, width = len(sheet.heads), len(sheet.heads) + len(sheet.columns)
    environment = "table*" if len(sheet.columns) > 4 else "table"
    written = [
        f"% {escape(study.where or study.name)}",
        f"\\begin{{{environment}}}[t]",
        "\\centering\\footnotesize",
        f"\\caption{{{_caption(study, sheet, lines)}}}",
        f"\\label{{tab:{label}}}",
        f"\\begin{{tabular}}{{@{{}}{'l' * heads}{'r' * len(sheet.columns)}@{{}}}}",
        "\\toprule",
        *_groups(sheet.columns, heads),
        " & ".join(escape(text) for text in [*sheet.heads, *(column.label for column in sheet.columns)]) + " \\\\",
    ]
    for group, members in groupby(zip(sheet.rows, lines, strict=True), key=lambda pair: pair[0].group):
        written.append("\\midrule")
        if group:
            written.append(f"\\multicolumn{{{width}}}{{@{{}}l}}{{\\emph{{{escape(group)}}}}} \\\\")
        for row, line in members:
            written.extend(_rows(row, line, heads))
    return "\n".join([*written, "\\bottomrule", "\\end{tabular}", f"\\end{{{environment}}}"])


def _caption(study: Study, sheet: Sheet, lines: Sequence[Sequence[TableCell]]) -> str:
    parts = [escape(", ".join(dict.fromkeys(filter(None, (study.title, sheet.label))))) + "."]
    parts.append("Percent, with 95\\,\\% CI half-widths.")
    if any(all(place.here is None for place in line) for line in lines):
        parts.append("$^\\dagger$: value from the paper.")
    if sheet.elsewhere:
        parts.append(f"The paper's values are for {escape(sheet.elsewhere)}.")
    return " ".join(parts)


def _groups(columns: Sequence[Column], heads: int) -> Iterator[str]:
    """Yield the row of column groups and the rules below it, if there are groups."""
    if not any(column.group for column in columns):
        return
    cells, rules, at = [""] * heads, "", heads + 1
    for group, members in groupby(columns, key=lambda column: column.group):
        width = len(list(members))
        cells.append(f"\\multicolumn{{{width}}}{{c}}{{{escape(group)}}}")
        rules += f"\\cmidrule(lr){{{at}-{at + width - 1}}}" if group else ""
        at += width
    yield " & ".join(cells) + " \\\\"
    yield rules


def _rows(row: Row, line: Sequence[TableCell], heads: int) -> Iterator[str]:
    words = [escape(text) for text in texts(row, heads)]
    paper = [escape(place.paper.text) if place.paper else "--" for place in line]
    if all(place.here is None for place in line):
        yield " & ".join([f"{words[0]}$^\\dagger$", *words[1:], *paper]) + " \\\\"
        return
    yield " & ".join([*words, *(_here(place) for place in line)]) + " \\\\"
    if any(place.paper for place in line):
        yield " & ".join(["\\quad paper", *[""] * (heads - 1), *paper]) + " \\\\"


def _here(place: TableCell) -> str:
    if place.here is None:
        return "--"
    text = f"{place.here:.2f}" + ("" if place.pooled else f" \\pm {place.half_width:.2f}")
    return f"$\\mathbf{{{text}}}$" if place.best else f"${text}$"
