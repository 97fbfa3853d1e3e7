"""The demo page is one file, shows what was measured, and escapes every name."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from html_page import Page

from sinkshot.bank import FeatureBank
from sinkshot.episodes import Recipe
from sinkshot.errors import InputError
from sinkshot.evaluate import compare, evaluate
from sinkshot.report.demo import DemoCell, DemoRow, PaperValue, demo_page

HOSTILE = "<script>alert('x')</script>"
ODD = ["$\\frac$", "_hidden", "line\nbreak", "nul\x00", "lone \udcff", "&amp;", "a" * 60]

FIGURES = (
    *("1-shot accuracy", "5-shot accuracy", "1-shot difference", "5-shot difference", "Histograms of accuracy"),
    *("Histogram of BMS", "Histograms for 3 classes", "Raw features", "After PEMnE"),
)
MINUS = "\N{MINUS SIGN}"


def make_bank(names: list[str], seed: int = 0) -> FeatureBank:
    random = np.random.default_rng(seed)
    centres = random.gamma(1.0, 1.0, (len(names), 16))
    features = random.gamma(0.7, 1.0, (len(names) * 40, 16)) * np.repeat(centres, 40, axis=0)
    base = {"PE": np.full(16, 0.2, dtype=np.float32)}
    meta = {"data_set": f"Toy {HOSTILE}", "backbone": "none", "split": "novel"}
    return FeatureBank(features.astype(np.float32), np.repeat(np.arange(len(names)), 40), tuple(names), meta, base)


def make_rows(bank: FeatureBank, episodes: int = 30) -> list[DemoRow]:
    def row(label: str, method: str, paper: Any = None, chain: str | None = None) -> DemoRow:
        one, five = (
            evaluate(
                bank, Recipe(shot=shot, episodes=episodes, seed=3), method=method, preprocess=chain, engine="numpy"
            )
            for shot in (1, 5)
        )
        return DemoRow(label, one, five, paper)

    paper = PaperValue(60.0, 0.2), PaperValue(1.0, 0.1)
    return [row("NCM, raw", "ncm", chain=""), row("NCM", "ncm", paper), row(f"BMS {HOSTILE}", "bms", paper)]


@pytest.fixture(scope="module")
def bank() -> FeatureBank:
    return make_bank([HOSTILE, *ODD])


@pytest.fixture(scope="module")
def rows(bank: FeatureBank) -> list[DemoRow]:
    return make_rows(bank)


@pytest.fixture(scope="module")
def page(bank: FeatureBank, rows: list[DemoRow], tmp_path_factory: pytest.TempPathFactory) -> Page:
    path = tmp_path_factory.mktemp("page") / "demo.html"
    demo_page(bank, rows, path)
    assert [file.name for file in path.parent.iterdir()] == ["demo.html"]
    return Page(path)


def test_page_loads_nothing_and_runs_nothing(page: Page) -> None:
    assert not re.search(r"https?:|//[a-z]|@import|javascript:", page.source)
    assert not {tag for tag, _ in page.tags} & {"script", "img", "iframe", "object", "embed", "audio", "video", "base"}
    for _, attributes in page.tags:
        assert not any(name.startswith("on") or name in ("src", "srcset", "action") for name in attributes)
        assert (attributes.get("href") or "#").startswith(("#", "data:,"))
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", page.source))


def test_page_is_small(page: Page) -> None:
    assert len(page.source) < 500_000


def test_every_figure_is_there_and_says_in_words_what_it_shows(page: Page) -> None:
    told = [svg["aria-label"] or "" for svg in page.drawings()]
    for start in FIGURES:
        assert any(text.startswith(start) for text in told), start
    assert len(told) == 12


def test_names_inside_drawings_are_unique_and_lead_somewhere(page: Page) -> None:
    names = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(names) == len(set(names))
    targets = re.findall(r'(?:href="|url\()#([^")]*)', page.source)
    assert targets
    assert set(targets) <= set(names)


def test_drawings_take_every_colour_from_the_scheme(page: Page) -> None:
    drawings = re.findall(r"<svg.*?</svg>", page.source, flags=re.DOTALL)
    assert not any(re.search(r"(fill|stroke): *#", drawing) for drawing in drawings)
    used = set(re.findall(r"var\(--([a-z0-9-]+)\)", page.source))
    light, dark = (set(re.findall(r"--([a-z0-9-]+):", part)) for part in page.source.split("prefers-color-scheme")[:2])
    assert used <= light
    assert used - {"sans", "mono"} <= dark


def test_table_holds_the_numbers_of_the_results(page: Page, rows: list[DemoRow]) -> None:
    text = " ".join(page.text.split())
    for row in rows:
        for result in (row.one, row.five):
            assert f"{100 * result.accuracy:.2f} ± {100 * result.ci95:.2f}" in text
    assert text.count("60.00 ± 0.20") == text.count("1.00 ± 0.10") == 2
    assert f"{100 * rows[1].one.accuracy - 60:+.2f}".replace("-", MINUS) in text


def test_paired_differences_are_those_of_compare(page: Page, rows: list[DemoRow]) -> None:
    text = " ".join(page.text.split())
    for row in rows[:2]:
        pair = compare(row.five, rows[2].five)
        assert f"{100 * pair.difference:+.2f} ± {100 * pair.ci95:.2f}".replace("-", MINUS) in text


def test_settings_and_command_make_the_page_again(page: Page) -> None:
    assert "sinkshot demo --episodes 30 --seed 3" in page.text
    assert f"numpy {np.__version__}" in page.text
    assert "variant = published" in page.text


def test_names_of_strangers_are_text(page: Page) -> None:
    assert "<script" not in page.source
    assert page.text.count(HOSTILE) > 5
    assert "$\\frac$" in page.text


def test_tables_and_headings_can_be_read_aloud(page: Page) -> None:
    assert page.all("html") == [{"lang": "en"}]
    assert len(page.all("h1")) == 1
    assert all(head.get("scope") for head in page.all("th"))
    assert all(svg.get("role") == "img" or svg.get("aria-hidden") == "true" for svg in page.all("svg"))


def test_same_results_give_the_same_page(page: Page, bank: FeatureBank, rows: list[DemoRow], tmp_path: Path) -> None:
    demo_page(bank, rows, tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == page.source


def test_page_without_values_of_the_paper_judges_nothing(
    bank: FeatureBank, rows: list[DemoRow], tmp_path: Path
) -> None:
    demo_page(bank, [replace(rows[2], paper=None)], tmp_path / "one.html", command="my command")
    page = Page(tmp_path / "one.html")
    assert "reached" not in page.text
    assert [attributes for attributes in page.all("span") if attributes.get("aria-label") == "not reported"]
    assert "my command" in page.text


def test_no_results_are_refused(bank: FeatureBank, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least one method"):
        demo_page(bank, [], tmp_path / "none.html")


@pytest.mark.parametrize(("paper", "verdict"), [(50.0, "level"), (10.0, "above"), (90.0, "below"), (50.7, "undecided")])
def test_the_demo_agrees_with_the_paper_as_a_report_does(rows: list[DemoRow], paper: float, verdict: str) -> None:
    result = replace(rows[0].one, per_episode=np.tile([0.45, 0.55], 100))  # 50 ± 0.69
    assert DemoCell(result, PaperValue(paper, 0.4)).verdict == verdict
    few = replace(result, per_episode=result.per_episode[:10])  # 50 ± 3.27
    assert DemoCell(few, PaperValue(50.0, 0.4)).verdict == "undecided"


def test_importing_the_page_leaves_matplotlib_alone() -> None:
    code = "import sys, sinkshot.report.demo; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
