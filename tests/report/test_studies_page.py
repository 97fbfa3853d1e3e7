"""The page of studies shows every measured number beside the paper's, and which claims hold."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest
from html_page import Page
from toy_outcomes import EPISODES, HERE, HOSTILE, cell, odd, odd_study, outcome_of, stored

from sinkshot.episodes import Recipe
from sinkshot.errors import InputError
from sinkshot.report.export import flat
from sinkshot.report.pairs import Meeting, match, meetings
from sinkshot.report.studies import Report, write_report
from sinkshot.studies.claims import judge
from sinkshot.studies.run import RunResult
from sinkshot.studies.study import Column, Entry, Row, Sheet, Study

FILES = ["cells.csv", "cells.parquet", "differences.csv", "index.html", "references.bib", "report.md", "tables.tex"]
MINUS = "\N{MINUS SIGN}"


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page(folder / "index.html")


def words(page: Page) -> str:
    return " ".join(page.text.split())


def signed(value: float) -> str:
    written = f"{value:+.2f}"
    return "0.00" if written[1:] == "0.00" else written.replace("-", MINUS)


# --- files ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_report_is_seven_files_in_a_folder_that_is_made(folder: Path) -> None:
    assert sorted(file.name for file in folder.iterdir()) == FILES


def some_of(outcome: RunResult) -> RunResult:
    """One study of each kind but the plainest curves."""
    few = ("table-5", "figure-projection", "gaussianity")
    return replace(outcome, studies=[study for study in outcome.studies if study.name in few])


def test_same_outcome_gives_the_same_bytes(outcome: RunResult, tmp_path: Path) -> None:
    for place in ("one", "two"):
        write_report(tmp_path / place, some_of(outcome))
    for name in FILES:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


@pytest.mark.slow
def test_every_figure_is_drawn_the_same_again(page: Page, report: Report) -> None:
    panels = [panel for section in report.sections for shown in section.sheets for panel in shown.drawing.panels]
    assert all(panel.svg in page.source for panel in panels)


def test_another_clock_changes_nothing_but_times(outcome: RunResult, tmp_path: Path) -> None:
    outcome = some_of(outcome)
    write_report(tmp_path / "first", outcome)
    later = outcome.started + timedelta(days=400)
    slower = {
        of: replace(result, seconds={"total": 77.7}, finished=later.isoformat())
        for of, result in outcome.results.items()
    }
    other = replace(outcome, results=slower, started=later, finished=later + timedelta(hours=2))
    write_report(tmp_path / "second", other)
    without = {
        "index.html": lambda text: re.sub(r"<time[^>]*>[^<]*</time>", "", text),
        "report.md": lambda text: text.partition("## Time")[0],
        "tables.tex": str,
        "cells.csv": lambda text: [line.rsplit(",", 2)[0] for line in text.splitlines()],
    }
    for name, cut in without.items():
        first, second = ((tmp_path / place / name).read_text(encoding="utf-8") for place in ("first", "second"))
        assert cut(first) == cut(second), name
        assert name == "tables.tex" or first != second, name


def test_without_pyarrow_parquet_is_left_out_with_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cells.parquet").write_text("of an earlier run")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    written = write_report(tmp_path, outcome_of([], {}, {}))
    texts = ["index.html", "report.md", "tables.tex", "references.bib", "cells.csv", "differences.csv"]
    assert [file.name for file in written.files] == texts
    assert len(written.notes) == 1
    assert "cells.parquet was not written" in written.notes[0]
    assert "pip install 'sinkshot[parquet]'" in written.notes[0]
    assert not (tmp_path / "cells.parquet").exists()


def test_a_folder_that_cannot_be_made_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot create the folder"):
        write_report(tmp_path / "file" / "report", outcome_of([], {}, {}))


def test_an_outcome_without_any_study_has_a_page_too(tmp_path: Path) -> None:
    write_report(tmp_path, outcome_of([], {}, {}))
    text = words(Page(tmp_path / "index.html"))
    assert "0 of 0" in text
    assert "Measured here" in text


# --- the page as a file ---------------------------------------------------------------------------------------------


def test_page_loads_nothing_and_runs_nothing(page: Page) -> None:
    assert not re.search(r"https?:|//[a-z]|@import|javascript:", page.source)
    assert not {tag for tag, _ in page.tags} & {"img", "iframe", "object", "embed", "audio", "video", "base"}
    assert [attributes for tag, attributes in page.tags if tag == "script"] == [{}]  # ours, within the page
    for _, attributes in page.tags:
        assert not any(name.startswith("on") or name in ("src", "srcset", "action") for name in attributes)
        assert (attributes.get("href") or "#").startswith(("#", "data:,"))
    assert len(page.source) < 1_500_000


def test_every_anchor_is_there_once_and_every_link_leads_somewhere(page: Page) -> None:
    names = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert [name for name, count in Counter(names).items() if count > 1] == []
    pointers = [attributes.get("aria-labelledby") for _, attributes in page.tags]
    targets = re.findall(r'(?:href="|url\()#([^")]+)', page.source) + [name for name in pointers if name]
    assert set(targets) <= set(names)


def test_page_can_be_read_aloud_and_walked_with_the_keyboard(page: Page) -> None:
    assert page.all("html") == [{"lang": "en"}]
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert all(head.get("scope") for head in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table")) > 20
    regions = [div for div in page.all("div") if div.get("role") == "region"]
    assert len(regions) == len(page.all("table"))
    assert all(region.get("tabindex") == "0" and region.get("aria-labelledby") for region in regions)
    assert all(svg.get("role") == "img" or svg.get("aria-hidden") == "true" for svg in page.all("svg"))
    assert all(svg.get("aria-label") for svg in page.drawings())
    first_link = page.all("a")[0]
    assert first_link == {"class": "skip", "href": "#main"}


def test_drawings_take_every_colour_from_the_scheme(page: Page) -> None:
    drawings = re.findall(r"<svg.*?</svg>", page.source, flags=re.DOTALL)
    assert not any(re.search(r"(fill|stroke): *#", drawing) for drawing in drawings)


# --- what it says ---------------------------------------------------------------------------------------------------


def test_contents_name_every_study_in_order(page: Page, outcome: RunResult) -> None:
    contents = page.source.partition('<nav class="contents"')[2].partition("</nav>")[0]
    listed = re.findall(r'href="#([^"]+)"><span class="where">', contents)
    assert listed == [study.name for study in outcome.studies]


def test_every_measured_number_stands_there_with_the_papers_and_the_difference(page: Page, outcome: RunResult) -> None:
    source = re.sub(r"<[^>]+>", " ", page.source)
    text = " ".join(source.split())
    judged = [record for record in flat(outcome.studies, outcome.results) if record.difference is not None]
    assert len(judged) > 15
    for record in judged:
        sign = {"level": "≈ agrees", "above": "▲ above", "below": "▼ below", "undecided": "? undecided"}
        sign = sign[record.standing]
        ours = f"{record.here:.2f} ± {record.here_ci95:.2f}"
        assert f"{ours} paper {record.paper_text} {signed(record.difference)} {sign}" in text, record
    printed = {record.paper_text for record in flat(outcome.studies, outcome.results) if record.paper_text}
    assert len(printed) > 150
    assert all(value in text for value in printed)


def test_summary_counts_what_the_tables_show(page: Page, outcome: RunResult, report: Report) -> None:
    records = flat(outcome.studies, outcome.results)
    stands = Counter(record.standing for record in records if record.standing)
    text = words(page)
    assert f"cells measured {len(outcome.results)} of {len(report.cells)}" in text
    assert f"agree with the paper {stands['level']} of {stands.total()}" in text
    assert f"{stands['above']} above, {stands['below']} below" in text
    assert sum(stands.values()) == report.tally.judged


def test_claims_are_those_of_the_judge_and_only_of_measured_sheets(
    page: Page, outcome: RunResult, report: Report
) -> None:
    known = {**outcome.results, **outcome.facts}
    judged = [judgement for study in outcome.studies for judgement in judge(study, known)]
    told = [judgement for _, judgement in report.told]
    assert len(told) > 10
    assert len(told) + report.untold == len(judged)
    assert all("None of its numbers" not in judgement.evidence for judgement in told)
    verdicts = Counter(judgement.verdict for judgement in told)
    decided = verdicts["holds"] + verdicts["does not hold"]
    assert f"claims that hold {verdicts['holds']} of {decided}" in words(page)
    brief = page.source.partition('<ul class="claims brief">')[2].partition("</ul>")[0]
    assert re.findall(r'class="verdict ([a-z-]+)"', brief) == [one.verdict.replace(" ", "-") for one in told]


def test_values_of_another_bank_are_shown_and_never_judged(page: Page, outcome: RunResult) -> None:
    carried = [record for record in flat(outcome.studies, outcome.results) if record.paper_elsewhere]
    assert any(record.here is not None for record in carried)
    assert all(record.standing is None and record.difference is None for record in carried)
    section = page.source.partition('id="table-5"')[2].partition("</section>")[0]
    assert "values are for miniImageNet, WRN, a different bank" in section
    assert "verdict level" not in section


def test_rows_of_other_authors_are_muted(page: Page) -> None:
    row = re.search(r'<tr([^>]*)>\s*<th scope="row">MCT', page.source.partition('id="table-2"')[2])
    assert row is not None
    assert 'class="theirs"' in row[1]


def test_every_figure_of_the_studies_is_drawn(page: Page, outcome: RunResult, report: Report) -> None:
    told = [svg["aria-label"] or "" for svg in page.drawings()]
    wanted = 0
    for section in report.sections:
        for shown in section.sheets:
            wanted += len(shown.drawing.panels)
            known = shown.measured or shown.printed
            assert section.study.kind in ("table", "projection", "gaussianity") or shown.drawing.panels or not known
            assert shown.facts is None or shown.drawing.panels
    assert len(told) == wanted > 12
    curves = [study for study in outcome.studies if study.kind == "curve"]
    assert len(curves) == 5
    for study in curves:
        for point in (entry.paper for row in study.sheets[0].rows for entry in row.entries):
            assert point is None or any(f": {point.mean:.2f}" in text for text in told)


def test_a_curve_of_another_bank_has_its_own_axis_and_a_panel_for_each_series(report: Report) -> None:
    epochs = next(section for section in report.sections if section.study.name == "figure-epochs")
    home, here = epochs.sheets
    assert len(home.drawing.panels) == 1
    assert [panel.title for panel in here.drawing.panels] == ["BMS*, 1-shot", "BMS, 5-shot"]
    assert all("paper, miniImageNet, WRN, %" in panel.svg for panel in here.drawing.panels)
    assert "paper, " not in home.drawing.panels[0].svg


def test_ticks_are_those_of_the_columns(report: Report) -> None:
    queries = next(section for section in report.sections if section.study.name == "figure-queries")
    drawn = re.findall(r"<text[^>]*>([^<]*)</text>", queries.sheets[0].drawing.panels[0].svg)
    assert [text for text in drawn if text in ("10", "20", "30", "50", "75", "100", "150")] == (
        ["10", "20", "30", "50", "75", "100", "150"]
    )


def test_gaussianity_shows_both_shares_and_the_papers(page: Page, outcome: RunResult) -> None:
    facts = next(fact for fact in outcome.facts.values() if "tests" in fact)
    section = page.source.partition('id="gaussianity"')[2].partition("</section>")[0]
    for part in ("before", "after"):
        assert f"{100 * facts[part]['rate']:.2f}&nbsp;%" in section
    assert "0.01 %" in section
    assert "above 50 %" in section


def test_settings_of_every_cell_are_there(page: Page, outcome: RunResult) -> None:
    table = page.source.partition('id="cells--table"')[2].partition("</table>")[0]
    assert table.count('<th scope="row">') == len(outcome.results)
    assert table.count("0123456789ab</code>") == table.count("0.1.0+abc") == len(outcome.results)
    assert "On 1" in page.text
    assert "numpy 2.0.0" in page.text


def test_what_is_missing_is_said_in_full(page: Page, outcome: RunResult) -> None:
    assert all(sentence in page.text for sentence in outcome.missing)


@pytest.mark.parametrize("kind", ["table", "curve"])
def test_names_of_strangers_are_text(tmp_path: Path, kind: str) -> None:
    write_report(tmp_path, odd(kind))
    page = Page(tmp_path / "index.html")
    assert page.source.count("<script") == 1  # ours
    assert page.text.count(HOSTILE) > 8
    names = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[A-Za-z][\w:.-]*", name or "") for name in names)


def test_studies_of_one_name_have_anchors_of_their_own(tmp_path: Path) -> None:
    one = replace(odd_study(), name="claims")
    write_report(tmp_path, outcome_of([one, one, replace(one, name="!")], {}, {}))
    names = [attributes["id"] for _, attributes in Page(tmp_path / "index.html").tags if "id" in attributes]
    assert len(names) == len(set(names))
    assert {"claims-2", "claims-3", "study"} <= set(names)


# --- paired differences ----------------------------------------------------------------------------------------------
def test_settings_meet_on_the_same_episodes(page: Page) -> None:
    means = {("bms", "PEMnE"): 90.0, ("bms", "E"): 70.0, ("ncm", "PE"): 80.0, ("ncm", "E"): 60.0}
    cells = {cell(method, shot, chain): mean for (method, chain), mean in means.items() for shot in (1, 5)}
    lonely = replace(cell("bms", 1, "PEMnE"), bank=replace(HERE, data_set="cub"))
    rows = tuple(Row("", (Entry(of),)) for of in (*cells, lonely))
    study = Study("s", "s", "table", sheets=(Sheet("", (Column(""),), rows),))
    results = {of: stored(of, mean, seed) for seed, (of, mean) in enumerate(cells.items())}
    (meeting,) = meetings([study, replace(study, kind="curve")], {**results, lonely: stored(lonely, 50, 0)})
    lines = [line for lines in meeting.methods for line in lines]
    told = [(str(line.setting), str(line.against)) for line in lines]
    assert told == [
        ("bms PEMnE", "None"),
        ("bms E", "bms PEMnE"),
        ("ncm PE", "bms PEMnE"),
        ("ncm E", "ncm PE"),
    ]
    assert [recipe.shot for recipe in meeting.recipes] == [1, 5]
    assert meeting.heads == ["5-way 1-shot", "5-way 5-shot"]
    third = lines[2].matches[1]
    assert third == match(results[cell("ncm", 5, "PE")].per_episode, results[cell("bms", 5, "PEMnE")].per_episode)
    assert third.wins + third.ties + third.losses == EPISODES
    assert third.standing == "below"


def test_heads_of_differences_tell_their_recipes_apart() -> None:
    def heads(*recipes: Recipe) -> list[str]:
        return Meeting(HERE, recipes, ()).heads

    one = Recipe(shot=5)
    unequal = replace(one, protocol="dirichlet")
    assert heads(one, unequal, replace(unequal, alpha=0.7)) == [
        "5-way 5-shot",
        "5-way 5-shot, dirichlet (alpha 2)",
        "5-way 5-shot, dirichlet (alpha 0.7)",
    ]
    assert heads(one, replace(one, query=5)) == ["5-way 5-shot, 15 queries", "5-way 5-shot, 5 queries"]
    assert heads(one, replace(one, seed=1)) == ["5-way 5-shot, seed 0", "5-way 5-shot, seed 1"]
    assert heads(one, replace(one, protocol="official")) == ["5-way 5-shot, balanced", "5-way 5-shot, official"]


def test_the_best_setting_is_the_best_on_average_and_is_called_so(tmp_path: Path) -> None:
    means = {("bms", 1): 82.0, ("bms", 5): 70.0, ("ncm", 1): 80.0, ("ncm", 5): 79.0}
    cells = {cell(method, shot, "E"): mean for (method, shot), mean in means.items()}
    rows = tuple(Row("", (Entry(of),)) for of in cells)
    study = Study("s", "s", "table", sheets=(Sheet("", (Column(""),), rows),))
    results = {of: stored(of, mean, seed) for seed, (of, mean) in enumerate(cells.items())}
    write_report(tmp_path, outcome_of([study], results, {}))
    text = words(Page(tmp_path / "index.html"))
    assert "ncm E best on average" in text
    assert "largest mean accuracy over its columns" in text


def test_paired_differences_stand_on_the_page(page: Page, report: Report) -> None:
    assert len(report.meetings) == 1
    text = words(page)
    lines = [line for lines in report.meetings[0].methods for line in lines if line.against]
    assert len(lines) > 10
    for line in lines:
        for found in filter(None, line.matches):
            assert f"{signed(found.difference)} ± {found.ci95:.2f}" in text
            assert f"won, tied, lost: {found.wins:,} / {found.ties:,} / {found.losses:,}" in text


def test_importing_the_report_leaves_matplotlib_alone() -> None:
    code = "import sys, sinkshot.report.studies; sys.exit('matplotlib' in sys.modules or 'pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
