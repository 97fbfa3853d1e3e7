"""Tables for papers and programs: valid LaTeX and Markdown, and cells that other programs can read."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from toy_outcomes import EPISODES, HOSTILE, ODD, cell, odd, outcome_of, stored

from sinkshot.errors import printable
from sinkshot.report import markdown
from sinkshot.report.export import Record, flat, write_csv, write_parquet
from sinkshot.report.latex import escape, latex_tables
from sinkshot.report.studies import write_report
from sinkshot.studies.run import RunResult
from sinkshot.studies.study import Column, Entry, Row, Sheet, Study, Value

# --- LaTeX ----------------------------------------------------------------------------------------------------------

COMMANDS = {
    *("begin", "end", "caption", "label", "toprule", "midrule", "bottomrule", "cmidrule", "multicolumn", "emph"),
    *("centering", "footnotesize", "quad", "dagger", "pm", "mathbf", "times", "cdot", "approx", "leq", "geq", "to"),
    *("fitted", "providecommand", "sbox", "ifdim", "wd", "linewidth", "resizebox", "usebox", "else", "fi", "cite"),
    *("phantom", "underline"),
    *("textbackslash", "textasciitilde", "textasciicircum", "textless", "textgreater", "textbar", "dots"),
    *("alpha", "beta", "gamma", "delta", "epsilon", "kappa", "lambda", "mu", "sigma", "tau"),
}


def mistakes(source: str) -> list[str]:
    """List what LaTeX with booktabs would reject in a file of tables, as far as can be told without LaTeX."""
    found = []
    text = re.sub(r"(?<!\\)%.*", "", source)  # comments
    bare = re.sub(r"\\[&%$#_{},]|\\\\", "", text)  # characters that are escaped, ends of rows
    unknown = set(re.findall(r"\\([a-zA-Z]+)", bare)) - COMMANDS
    found += [f"unknown command \\{name}" for name in sorted(unknown)]
    plain = re.sub(r"\\label\{[^}]*\}|~\\cite|\\providecommand.*", "", bare)
    found += [f"bare {character}" for character in "#_~" if character in plain]
    if bare.count("$") % 2:
        found.append("a formula without end")
    if re.sub(r"\$[^$]*\$", "", bare).count("^"):
        found.append("bare ^")
    if any((ord(character) < 32 and character != "\n") or ord(character) > 0x17F for character in text):
        found.append("a character that no usual font has")
    depth = 0
    for character in re.sub(r"\\[{}]", "", text):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth < 0:
            found.append("a brace that closes nothing")
            break
    if depth > 0:
        found.append("a brace without end")
    opened = []
    for kind, name in re.findall(r"\\(begin|end)\{([^}]*)\}", text):
        if kind == "begin":
            opened.append(name)
        elif not opened or opened.pop() != name:
            found.append(f"\\end{{{name}}} without its beginning")
    found += [f"\\begin{{{name}}} without end" for name in opened]
    return found + [mistake for table in tabulars(text) for mistake in table]


def tabulars(text: str) -> list[list[str]]:
    """Count the columns of every row of every table."""
    tables = re.findall(r"\\begin\{tabular\}\{@\{\}([lrc]+)@\{\}\}\n(.*?)\\end\{tabular\}", text, re.DOTALL)
    found = [[] for _ in tables]
    for mistakes_of, (columns, body) in zip(found, tables, strict=True):
        rules = r"\\(?:toprule|midrule|bottomrule)|\\cmidrule\(lr\)\{\d+-\d+\}"
        for row in re.sub(rules, "", body).split("\\\\"):
            if not row.strip():
                continue
            if re.match(r"\s*[\[*]", row):
                mistakes_of.append(f"taken for an option of the row before: {row.strip()}")
            cells = re.split(r"(?<!\\)&", row)
            width = sum(int((re.search(r"\\multicolumn\{(\d+)\}", part) or [0, 1])[1]) for part in cells)
            if width != len(columns):
                mistakes_of.append(f"{width} columns instead of {len(columns)}: {row.strip()}")
    return found


GOOD = "\\begin{tabular}{@{}lr@{}}\n\\toprule\na \\& b & $1 \\pm 2$ \\\\\n\\bottomrule\n\\end{tabular}"


@pytest.mark.parametrize(
    ("broken", "mistake"),
    [
        (GOOD, None),
        (GOOD.replace(" & $1", " $1"), "1 columns instead of 2"),
        (GOOD.replace("2$", "2"), "a formula without end"),
        (GOOD.replace("\\&", "\\emph{"), "a brace without end"),
        (GOOD.replace("\\&", "}"), "a brace that closes nothing"),
        (GOOD.replace("\\&", "_"), "bare _"),
        (GOOD.replace("\\&", "^"), "bare ^"),
        (GOOD.replace("\\&", "文"), "no usual font"),
        (GOOD.replace("\\pm", "\\wrong"), "unknown command"),
        (GOOD.replace("\\end{tabular}", ""), "without end"),
        (GOOD.replace("\na ", "\nx & y \\\\\n[a] "), "taken for an option"),
    ],
)
def test_the_checker_of_these_tests_sees_mistakes(broken: str, mistake: str | None) -> None:
    found = mistakes(broken)
    assert found == [] if mistake is None else any(mistake in one for one in found), found


@pytest.mark.slow
def test_tables_of_the_paper_compile(folder: Path) -> None:
    source = (folder / "tables.tex").read_text(encoding="utf-8")
    assert source.count("\\begin{tabular}") > 6
    assert mistakes(source) == []
    assert "\\usepackage{booktabs,graphicx}" in source.splitlines()[0]
    labels = re.findall(r"\\label\{([^}]*)\}", source)
    assert len(labels) == len(set(labels)) == source.count("\\caption{")


def test_a_caption_says_once_what_study_and_sheet_are_both_called() -> None:
    one = cell()
    sheet = Sheet("Birds", (Column("1-shot"),), (Row("NCM", (Entry(one),)),))
    study = Study("birds", "Birds", "table", "", "", (sheet,))
    assert "\\caption{Birds. Percent" in latex_tables([study], {one: stored(one, 80.0, 0)})
    longer = replace(study, sheets=(replace(sheet, label="Birds, pixels"),))
    assert "\\caption{Birds, pixels. Percent" in latex_tables([longer], {one: stored(one, 80.0, 0)})


def test_two_studies_of_one_name_have_labels_of_their_own() -> None:
    first, second = odd(), odd()
    source = latex_tables([*first.studies, *second.studies], first.results)
    labels = re.findall(r"\\label\{(.*?)\}", source)
    assert len(set(labels)) == len(labels) == 2


@pytest.mark.parametrize("kind", ["table", "curve"])
def test_whatever_a_name_holds_the_table_compiles(kind: str) -> None:
    outcome = odd(kind)
    source = latex_tables(outcome.studies, outcome.results)
    assert source.count("\\begin{tabular}") == 1
    assert mistakes(source) == []


def test_text_comes_out_as_it_was_meant() -> None:
    assert escape("BMS* & 50 % of λ") == "BMS* \\& 50 \\% of $\\lambda$"
    assert escape("*a") == "{}*a"
    assert escape("[a]") == "{}[a]"
    assert escape("naïve Café\n \N{MULTIPLICATION SIGN}2") == "naïve Café $\\times$2"
    assert escape("a文\x07") == "a[U+6587][U+0007]"


def some_table() -> tuple[Study, dict]:
    value = Value("80.12 ± 0.30", 80.12, 0.3)
    rows = (
        Row("ours", (Entry(cell(), value), Entry(cell(shot=5))), "Inductive", ("WRN",)),
        Row("better", (Entry(cell(chain="E")), Entry(cell(shot=5, chain="E"), value)), "Inductive", ("WRN",)),
        Row("theirs", (Entry(None, value), Entry(None)), "Transductive", ("ResNet12",)),
    )
    columns = (Column("1-shot", "mini", 1.0), Column("5-shot", "mini", 5.0))
    study = Study("s", "A title", "table", "Table 9", sheets=(Sheet("a bank", columns, rows, ("Method", "Backbone")),))
    means = {cell(): 70.0, cell(chain="E"): 90.0, cell(shot=5): 80.0}
    return study, {of: stored(of, mean, seed) for seed, (of, mean) in enumerate(means.items())}


def test_a_latex_table_has_ours_the_papers_line_and_the_best_in_bold() -> None:
    study, results = some_table()
    source = latex_tables([study], results)
    first, best = results[cell()], results[cell(chain="E")]
    lines = source.splitlines()
    row = next(i for i, line in enumerate(lines) if line.startswith("ours"))
    five = results[cell(shot=5)]
    assert lines[row] == (
        "ours~\\cite{hu2022squeezing,wang2019simpleshot} & WRN"
        f" & ${100 * first.accuracy:.2f} \\pm {100 * first.ci95:.2f}$"
        f" & ${100 * five.accuracy:.2f} \\pm {100 * five.ci95:.2f}$ \\\\"
    )
    assert lines[row + 1] == "\\quad paper &  & $80.12 \\pm 0.30$ & -- \\\\"
    assert f"$\\mathbf{{{100 * best.accuracy:.2f}}} \\pm {100 * best.ci95:.2f}$ & --" in source
    assert "theirs$^\\dagger$ & ResNet12 & $80.12 \\pm 0.30$ & -- \\\\" in lines
    assert "\\multicolumn{2}{c}{mini}" in source
    assert "\\cmidrule(lr){3-4}" in source


def test_a_figure_becomes_a_table_with_its_axis_downwards() -> None:
    study, results = some_table()
    sheet = Sheet("", study.sheets[0].columns, study.sheets[0].rows, axis="$shots$")
    source = latex_tables([Study("s", "t", "curve", sheets=(sheet,))], results)
    assert mistakes(source) == []
    assert "\\$shots\\$ & ours & better & theirs \\\\" in source


def test_a_table_with_nothing_measured_is_left_out() -> None:
    study, _ = some_table()
    assert "tabular" not in latex_tables([study], {})


def test_what_is_not_significantly_worse_is_underlined_after_holm() -> None:
    near, far = cell(chain="E"), cell(chain="PE")
    rows = tuple(Row(name, (Entry(of),)) for name, of in (("one", cell()), ("other", near), ("far", far)))
    study = Study("s", "A title", "table", sheets=(Sheet("a bank", (Column("1-shot"),), rows),))
    results = {cell(): stored(cell(), 80.0, 0), near: stored(near, 80.0, 1), far: stored(far, 70.0, 2)}
    source = latex_tables([study], results)
    assert source.count("\\mathbf{") == source.count("\\underline{") == 1
    assert "\\underline" not in next(line for line in source.splitlines() if line.startswith("far"))
    assert "underlined: not significantly worse" in source


def test_differences_have_intervals_and_corrected_p_values(folder: Path, outcome: RunResult) -> None:
    with (folder / "differences.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) > 10
    for line in lines:
        assert float(line["ci95"]) > 0
        assert int(line["wins"]) + int(line["ties"]) + int(line["losses"]) == int(line["episodes"]) == EPISODES
        assert 0 <= float(line["p_holm"]) <= 1
    far = [line for line in lines if abs(float(line["difference"])) > 4 * float(line["ci95"])]
    assert far
    assert all(float(line["p_holm"]) < 1e-6 for line in far)
    assert "\\label{tab:differences-1}" in (folder / "tables.tex").read_text(encoding="utf-8")


def test_differences_of_a_leaderboard_are_those_to_its_reference_row(tmp_path: Path) -> None:
    cells = [cell("bms"), cell("ncm"), cell("kmeans")]
    rows = tuple(Row(of.method, (Entry(of),)) for of in cells)
    study = Study("s", "s", "leaderboard", sheets=(Sheet("", (Column("1-shot"),), rows),), against="bms")
    results = {of: stored(of, 80.0 - 5 * seed, seed) for seed, of in enumerate(cells)}
    write_report(tmp_path, outcome_of([study], results, {}))
    with (tmp_path / "differences.csv").open(newline="", encoding="utf-8") as file:
        lines = {line["setting"]: line for line in csv.DictReader(file)}
    assert set(lines) == {"ncm", "kmeans"}
    assert {line["against"] for line in lines.values()} == {"bms"}
    for name, of in (("ncm", cells[1]), ("kmeans", cells[2])):
        points = 100 * (results[of].accuracy - results[cells[0]].accuracy)
        assert float(lines[name]["difference"]) == pytest.approx(points)
        assert float(lines[name]["ci95"]) > 0
        assert 0 <= float(lines[name]["p_holm"]) <= 1


def test_differences_under_unequal_sizes_have_heads_and_columns_of_their_own(tmp_path: Path) -> None:
    balanced = [cell(chain="E"), cell("bms", chain="E")]
    unequal = [replace(of, recipe=replace(of.recipe, protocol="dirichlet", alpha=0.7)) for of in balanced]
    rows = tuple(Row(one.method, (Entry(one), Entry(other))) for one, other in zip(balanced, unequal, strict=True))
    study = Study("s", "s", "table", sheets=(Sheet("", (Column("balanced"), Column("unequal")), rows),))
    results = {of: stored(of, 80.0 + seed, seed) for seed, of in enumerate((*balanced, *unequal))}
    write_report(tmp_path, outcome_of([study], results, {}))
    source = (tmp_path / "tables.tex").read_text(encoding="utf-8")
    assert "Setting & against & 5-way 1-shot & 5-way 1-shot, dirichlet (alpha 0.7) \\\\" in source
    assert "| 5-way 1-shot | 5-way 1-shot, dirichlet (alpha 0.7) |" in (tmp_path / "report.md").read_text(
        encoding="utf-8"
    )
    for name in ("cells.csv", "differences.csv"):
        with (tmp_path / name).open(newline="", encoding="utf-8") as file:
            told = {(line["protocol"], line["alpha"], line["ratio"]) for line in csv.DictReader(file)}
        assert told == {("balanced", "", ""), ("dirichlet", "0.7", "")}


def test_every_work_that_is_cited_is_in_the_bibliography(folder: Path) -> None:
    cited = re.findall(r"\\cite\{([^}]*)\}", (folder / "tables.tex").read_text(encoding="utf-8"))
    known = re.findall(r"^@\w+\{([^,]+),$", (folder / "references.bib").read_text(encoding="utf-8"), re.MULTILINE)
    assert {key for keys in cited for key in keys.split(",")} <= set(known)
    assert len(known) == len(set(known)) > 20


@pytest.mark.slow
@pytest.mark.parametrize("columns", ["onecolumn", "twocolumn"])
def test_latex_compiles_without_overfull_boxes(folder: Path, tmp_path: Path, columns: str) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("no LaTeX is installed; on Debian, apt-get install texlive-latex-recommended brings it")
    for name in ("tables.tex", "references.bib"):
        shutil.copy(folder / name, tmp_path)
    tables = (tmp_path / "tables.tex").read_text(encoding="utf-8")
    tables = re.sub(r"(\\end\{table\*?\})", r"\1\n\\clearpage", tables)  # LaTeX keeps few floats waiting
    (tmp_path / "tables.tex").write_text(tables, encoding="utf-8")
    (tmp_path / "paper.tex").write_text(
        f"\\documentclass[{columns}]{{article}}\n\\usepackage[utf8]{{inputenc}}\n\\usepackage[T1]{{fontenc}}\n"
        "\\usepackage{booktabs,graphicx}\n\\begin{document}\n\\input{tables}\n"
        "\\bibliographystyle{plain}\n\\bibliography{references}\n\\end{document}\n"
    )
    for command in (("pdflatex",), ("bibtex",), ("pdflatex",), ("pdflatex",)):
        words = [*command, "paper"] if command == ("bibtex",) else [*command, "-interaction=nonstopmode", "paper.tex"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, errors="replace")
        assert done.returncode == 0, done.stdout[-2000:]
    log = (tmp_path / "paper.log").read_text(errors="replace")
    assert "Overfull" not in log
    assert "undefined" not in log
    assert "multiply defined" not in log


# --- Markdown -------------------------------------------------------------------------------------------------------


def tables_of(text: str) -> list[list[str]]:
    """Return the rows of each table."""
    return [part.splitlines() for part in text.split("\n\n") if part.startswith("|")]


@pytest.mark.parametrize("which", ["paper", "odd"])
def test_every_row_of_a_markdown_table_has_its_columns(which: str, folder: Path, tmp_path: Path) -> None:
    if which == "odd":
        write_report(tmp_path, odd())
    text = ((tmp_path if which == "odd" else folder) / "report.md").read_text(encoding="utf-8")
    tables = tables_of(text)
    assert len(tables) >= 3
    for rows in tables:
        widths = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
        assert len(widths) == 1, rows
    assert not re.search(r"(?<!\\)<script", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def test_markdown_says_what_the_page_says(folder: Path, outcome: RunResult) -> None:
    text = (folder / "report.md").read_text(encoding="utf-8")
    for record in flat(outcome.studies, outcome.results):
        if record.here is not None:
            ours = f"**{record.here:.2f}** ± {record.here_ci95:.2f}"
            assert ours + (f" · paper {record.paper_text}" if record.paper_text else "") in text
    assert all(markdown.escape(sentence) in text for sentence in outcome.missing)
    assert "12.5 seconds" in text.partition("## Time")[2]


def test_markdown_prints_text_as_it_is() -> None:
    assert markdown.escape("BMS* | a_b\n<c> &amp; $x$") == "BMS\\* \\| a\\_b \\<c\\> \\&amp; \\$x\\$"


# --- cells ----------------------------------------------------------------------------------------------------------


def test_csv_has_a_line_for_every_place(folder: Path, outcome: RunResult) -> None:
    with (folder / "cells.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    wanted = sum(len(row.entries) for study in outcome.studies for sheet in study.sheets for row in sheet.rows)
    assert len(lines) == wanted > 300
    measured = [line for line in lines if line["here"]]
    assert {line["study"] for line in measured} >= {"table-2", "table-5", "table-7", "figure-lambda"}
    swept = [line for line in measured if line["study"] == "figure-lambda"]
    assert {json.loads(line["hyper"])["lam"] for line in swept} == {float(line["x"]) for line in swept}
    for line in measured:
        assert int(line["episodes"]) == EPISODES
        assert line["engine"] == "numpy"
        if line["difference"]:
            assert float(line["difference"]) == pytest.approx(float(line["here"]) - float(line["paper"]))
        assert bool(line["difference"]) == bool(line["standing"])


def test_parquet_holds_the_same_with_its_types(folder: Path, outcome: RunResult) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(folder / "cells.parquet")
    assert [Record(**row) for row in table.to_pylist()] == flat(outcome.studies, outcome.results)
    kinds = {field.name: str(field.type) for field in table.schema}
    assert (kinds["here"], kinds["way"], kinds["study"]) == ("double", "int64", "string")


def test_odd_names_survive_in_cells(tmp_path: Path) -> None:
    outcome = odd()
    records = flat(outcome.studies, outcome.results)
    write_csv(tmp_path / "cells.csv", records)
    with (tmp_path / "cells.csv").open(encoding="utf-8", newline="") as file:
        assert [line["row"] for line in csv.DictReader(file)] == [printable(record.row) for record in records]
    assert records[0].row == f"{ODD} {HOSTILE}"


def test_names_that_never_were_text_are_replaced(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    study, results = some_table()
    outcome = outcome_of([study], results, {})
    records = flat([Study("lone \udcff", "t", "table", sheets=outcome.studies[0].sheets)], results)
    write_csv(tmp_path / "cells.csv", records)
    write_parquet(tmp_path / "cells.parquet", records)
    assert "lone ?" in (tmp_path / "cells.csv").read_text(encoding="utf-8")
