"""Every registered method has a page that agrees with the registry."""

from __future__ import annotations

import csv
import dataclasses
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from sinkshot import METHODS
from sinkshot.report.export import Record

ROOT = Path(__file__).parent.parent
TOOL = ROOT / "tools" / "make_methods_page.py"
COLUMNS = [field.name for field in dataclasses.fields(Record)]


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("make_methods_page", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_registering_a_method_is_enough_for_a_page(tool, tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "brand-new", dataclasses.replace(METHODS["ncm"], name="brand-new"))
    tool.write(tmp_path)
    assert {file.stem for file in tmp_path.iterdir()} == {*METHODS, "index"}
    assert "[brand-new](brand-new.md)" in (tmp_path / "index.md").read_text(encoding="utf-8")


def test_the_page_of_a_method_that_is_gone_goes_too(tool, tmp_path):
    (tmp_path / "gone.md").write_text("# gone\n")
    tool.write(tmp_path)
    assert not (tmp_path / "gone.md").exists()


def test_every_method_has_a_page_with_what_one_needs_to_know(tool):
    found = tool.pages(tool.stored())
    assert set(found) == {"index.md", *(f"{name}.md" for name in METHODS)}
    for name, method in METHODS.items():
        page = found[f"{name}.md"]
        for word in ("reference", "preprocessing", "hyper-parameters", "class balance", "base classes"):
            assert f"- *{word}*: " in page
        assert method.reference in page
        assert all(f"`{key}=" in page for key in method.hyper)
        assert (": assumes equal query sizes" in page) == (method.transductive and method.balanced)
        assert ("needs their features" in page) == method.features


def test_names_that_share_a_function_say_how_they_differ(tool):
    found = tool.pages(tool.stored())
    assert "[bms](bms.md) with `prior=balanced`." in found["bms-star.md"]
    assert "Algorithm 1" in found["bms.md"]
    assert "[ncm](ncm.md) with preprocessing `PE`." in found["pt-ncm.md"]


@pytest.fixture
def cells(tmp_path):
    """A run's cells.csv with three places of one method and one of another study."""
    common = {"study": "leaderboard", "sheet": "A bank", "hardware": "a machine", "finished": "2026-01-02T03:04:05"}
    places = [
        {"method": "ncm", "column_group": "Balanced", "column": "1-shot", "here": 76.543, "here_ci95": 0.456},
        {"method": "ncm", "column_group": "Dirichlet", "column": "1-shot", "here": 70.0, "here_ci95": 1.0},
        {"method": "bms", "column_group": "Balanced", "column": "1-shot", "here": 87.0, "here_ci95": 0.4},
        {"method": "bms", "column_group": "Dirichlet", "column": "1-shot", "here": "", "here_ci95": ""},
        {"method": "ncm", "study": "table-5", "column": "1-shot", "here": 1.0, "here_ci95": 1.0},
    ]
    path = tmp_path / "cells.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for place in places:
            writer.writerow({**common, "episodes": 400, "seconds": 0.5, **place})
    return path


def test_numbers_of_a_run_come_from_its_cells(tool, cells):
    numbers = tool.measured(cells)
    assert json.loads(json.dumps(numbers)) == numbers
    assert numbers["sheets"]["A bank"]["ncm"]["Balanced 1-shot"] == {
        "value": 76.54,
        "ci95": 0.46,
        "episodes": 400,
        "ms": 1.25,
    }
    assert "Dirichlet 1-shot" not in numbers["sheets"]["A bank"]["bms"]
    page = tool.pages(numbers)["index.md"]
    whole, partial = "| [ncm](ncm.md) | 76.54 ± 0.46 |", "| [bms](bms.md) | 87.00 ± 0.40 |  | 1.25 |"
    assert page.index(whole) < page.index(partial)  # a row with a gap cannot be ranked among the others
    assert "Balanced 1-shot 1.25 ms, Dirichlet 1-shot 1.25 ms" in tool.pages(numbers)["ncm.md"]
    assert "- *A bank*: not measured yet" in tool.pages(numbers)["kmeans.md"]


def test_a_page_names_the_command_that_made_its_numbers(tool, cells):
    assert "sinkshot reproduce --study leaderboard" in tool.pages(tool.measured(cells))["index.md"]
    cells.write_text(cells.read_text().replace("leaderboard,", "leaderboard-full,"))
    page = tool.pages(tool.measured(cells))["index.md"]
    assert "python tools/gpu_leaderboard.py" in page
    assert "several share a machine" in page


def test_methods_that_a_run_lacks_come_from_another_which_the_page_names(tool, cells):
    whole = tool.measured(cells)
    part = tool.without(whole, ["ncm"])
    assert list(part["sheets"]["A bank"]) == ["bms"]
    both = tool.joined(part, {**whole, "hardware": "an older machine"})
    assert both["sheets"] == whole["sheets"]
    assert "of [ncm](ncm.md) are of another run, on an older machine" in tool.pages(both)["index.md"]
    assert tool.joined(both, whole)["others"] == both["others"]  # nothing is missing any more


def test_a_method_that_a_run_lacks_on_one_sheet_is_filled_in_with_the_run_it_came_from(tool):
    first = {"study": tool.STUDY, "hardware": "a", "finished": "1", "sheets": {"one": {"ncm": {}}, "two": {}}}
    kept = {"hardware": "c", "finished": "3", "methods": ["bms", "oslo"]}
    other = {"hardware": "b", "finished": "2", "others": [kept], "sheets": {"two": {"ncm": {}, "bms": {}}}}
    both = tool.joined(first, other)
    assert both["sheets"] == {"one": {"ncm": {}}, "two": {"ncm": {}, "bms": {}}}
    assert [(run["hardware"], run["methods"]) for run in both["others"]] == [("b", ["ncm"]), ("c", ["bms"])]


def test_numbers_without_an_interval_are_left_out(tool, cells):
    text = cells.read_text()
    place = text.splitlines()[0].split(",").index("here_ci95")
    head, first, *rest = text.splitlines()
    without = first.split(",")
    without[place] = ""
    cells.write_text("\n".join([head, ",".join(without).replace("Balanced", "Calibration error"), first, *rest]) + "\n")
    assert not any("Calibration error" in name for name in tool.measured(cells)["sheets"]["A bank"]["ncm"])


@pytest.mark.slow
def test_cells_of_another_study_are_refused_in_a_sentence(tmp_path):
    path = tmp_path / "cells.csv"
    path.write_text(",".join(COLUMNS) + "\n")
    done = subprocess.run([sys.executable, TOOL, "--cells", path], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no measured number of the study leaderboard" in done.stderr
    assert "Traceback" not in done.stderr
