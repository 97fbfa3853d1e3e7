"""Sheets as LaTeX tables (booktabs), ready for a paper."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from sinkshot.methods import METHODS, references
from sinkshot.methods.needs_training import NEEDS_TRAINING
from sinkshot.report.pairs import Match, Meeting, holm_of_meeting
from sinkshot.report.table_cells import TableCell, table_cells, texts, transposed
from sinkshot.studies.compare import LEVEL
from sinkshot.studies.study import Cell, Column, Row, Sheet, Study, Value

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


_PREAMBLE = """\
% Each table can be used alone and needs \\usepackage{booktabs,graphicx} and the line below, which shrinks a table that
% is too wide. \\cite takes its keys from references.bib.
\\providecommand{\\fitted}[1]{\\sbox0{#1}\\ifdim\\wd0>\\linewidth\\resizebox{\\linewidth}{!}{\\usebox0}\\else\\usebox0\\fi}"""
_ONE_COLUMN = 46  # characters of a table that fit into one column of two


def latex_tables(studies: Iterable[Study], results: Mapping[Cell, StoredResult]) -> str:
    """Return every sheet with a measured number as a table; a figure has one row per point of its x axis."""
    parts = [_PREAMBLE]
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
    environment = "table*" if _characters(sheet, lines) > _ONE_COLUMN else "table"
    written = [
        f"% {escape(study.where or study.name)}",
        f"\\begin{{{environment}}}[t]",
        "\\centering\\footnotesize",
        f"\\caption{{{_caption(study, sheet, lines)}}}",
        f"\\label{{tab:{label}}}",
        f"\\fitted{{\\begin{{tabular}}{{@{{}}{'l' * heads}{'r' * len(sheet.columns)}@{{}}}}",
        "\\toprule",
        *_groups(sheet.columns, heads),
        " & ".join(escape(text) for text in [*sheet.heads, *(column.label for column in sheet.columns)]) + " \\\\",
    ]
    for group, members in groupby(zip(sheet.rows, lines, strict=True), key=lambda pair: pair[0].group):
        written.append("\\midrule")
        if group:
            written.append(f"\\multicolumn{{{width}}}{{@{{}}l}}{{\\emph{{{escape(group)}}}}} \\\\")
        for row, line in members:
            written.extend(_rows(row, line, heads, cited=sheet.heads[0] == "Method"))
    return "\n".join([*written, "\\bottomrule", "\\end{tabular}}", f"\\end{{{environment}}}"])


def _characters(sheet: Sheet, lines: Sequence[Sequence[TableCell]]) -> int:
    """Width of a table in characters, about."""
    words = [texts(row, len(sheet.heads)) for row in sheet.rows]
    heads = sum(max(len(text) for text in column) for column in zip(sheet.heads, *words, strict=True))
    numbers = (max([len(c.label), *(_length(line[i]) for line in lines)]) for i, c in enumerate(sheet.columns))
    return heads + sum(numbers) + len(sheet.columns)


def _length(place: TableCell) -> int:
    return 2 if place.here is None and place.paper is None else 5 if place.pooled else 12


def _caption(study: Study, sheet: Sheet, lines: Sequence[Sequence[TableCell]]) -> str:
    parts = [escape(_named(study.title, sheet.label)) + "."]
    parts.append("Percent, with 95\\,\\% CI half-widths.")
    if any(place.best for line in lines for place in line):
        tied = any(place.tied for line in lines for place in line)
        parts.append("Bold: the best of a column and group measured here" + ("" if tied else "."))
        if tied:
            parts[-1] += "; underlined: not significantly worse (paired by episode, Holm, 5\\,\\%)."
    if any(all(place.here is None for place in line) for line in lines):
        parts.append("$^\\dagger$: value from the paper.")
    if sheet.elsewhere:
        parts.append(f"The paper's values are for {escape(sheet.elsewhere)}.")
    return " ".join(parts)


def _named(title: str, label: str) -> str:
    """Return title of a study and label of a sheet, without a repetition.

    >>> _named("Digits", "Digits, pixels"), _named("Digits", "pixels"), _named("Digits", "Digits")
    ('Digits, pixels', 'Digits, pixels', 'Digits')
    """
    within = f"{label},".startswith(f"{title},")
    return label if within else ", ".join(filter(None, (title, label)))


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


def _rows(row: Row, line: Sequence[TableCell], heads: int, cited: bool) -> Iterator[str]:
    words = [escape(text) for text in texts(row, heads)]
    if cited and (found := cite_keys(row)):
        words[0] += f"~\\cite{{{','.join(found)}}}"
    paper = [_printed(place.paper) if place.paper else "--" for place in line]
    if all(place.here is None for place in line):
        yield " & ".join([f"{words[0]}$^\\dagger$", *words[1:], *paper]) + " \\\\"
        return
    yield " & ".join([*words, *(_here(place) for place in line)]) + " \\\\"
    if any(place.paper for place in line):
        yield " & ".join(["\\quad paper", *[""] * (heads - 1), *paper]) + " \\\\"


def cite_keys(row: Row) -> tuple[str, ...]:
    """Return the BibTeX keys of the works that a row of methods comes from."""
    trained = next((one.reference for one in NEEDS_TRAINING if row.label in one.rows), None)
    names = {entry.cell.method for entry in row.entries if entry.cell is not None}
    found = [trained] if trained else [METHODS[name].reference for name in sorted(names) if name in METHODS]
    return tuple(dict.fromkeys(key for reference in found for key in references.keys(reference)))


_NO_INTERVAL = "\\phantom{{}\\pm 0.00}"  # keeps numbers under each other


def _printed(value: Value) -> str:
    width = _NO_INTERVAL if value.ci95 is None else f" \\pm {value.ci95:.2f}"
    return f"${value.mean:.2f}{width}$"


def _here(place: TableCell) -> str:
    if place.here is None:
        return "--"
    mean = f"{place.here:.2f}"
    mean = f"\\mathbf{{{mean}}}" if place.best else f"\\underline{{{mean}}}" if place.tied else mean
    return f"${mean}{_NO_INTERVAL}$" if place.pooled else f"${mean} \\pm {place.half_width:.2f}$"


def latex_differences(found: Iterable[Meeting]) -> str:
    """Return tables of paired differences on the same episodes, one for each bank."""
    return "\n\n".join(_differences(number, meeting) for number, meeting in enumerate(found, start=1))


def _differences(number: int, meeting: Meeting) -> str:
    lines = [line for lines in meeting.methods for line in lines if line.against]
    adjusted = holm_of_meeting(meeting)
    heads = ["Setting", "against", *meeting.heads]
    written = [
        "\\begin{table*}[t]",
        "\\centering\\footnotesize",
        f"\\caption{{Differences on the same episodes, {escape(str(meeting.bank))}: percentage points with 95\\,\\% CI "
        "half-widths. $^*$: significant at 5\\,\\% after Holm's correction for all comparisons of its column.}",
        f"\\label{{tab:differences-{number}}}",
        f"\\fitted{{\\begin{{tabular}}{{@{{}}ll{'r' * len(meeting.recipes)}@{{}}}}",
        "\\toprule",
        " & ".join(map(escape, heads)) + " \\\\",
        "\\midrule",
    ]
    for line in lines:
        cells = [_difference(match, adjusted.get(id(match), 1.0)) for match in line.matches]
        written.append(" & ".join([escape(str(line.setting)), escape(str(line.against)), *cells]) + " \\\\")
    return "\n".join([*written, "\\bottomrule", "\\end{tabular}}", "\\end{table*}"])


def _difference(match: Match | None, p: float) -> str:
    if match is None:
        return "--"
    star = "^*" if p <= LEVEL else "\\phantom{^*}"
    return f"${match.difference:+.2f} \\pm {match.ci95:.2f}{star}$"
