"""docs/methods.md lists every registered method, and says what the registry says."""

from __future__ import annotations

import csv
import dataclasses
import importlib.util
import json
import re
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


def sections(page):
    parts = re.split(r"^### ", page, flags=re.MULTILINE)[1:]
    return {part.split("\n", 1)[0]: part for part in parts}


def test_the_page_is_what_the_registry_and_its_numbers_make_of_it(tool):
    written = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    assert written == tool.page(tool.stored()), "python tools/make_methods_page.py writes it again"


def test_every_method_has_a_section_with_what_one_needs_to_know(tool):
    found = sections(tool.page(tool.stored()))
    assert set(found) == set(METHODS)
    for name, method in METHODS.items():
        for word in ("reference", "preprocessing", "hyper-parameters", "class balance", "base classes"):
            assert f"- *{word}*: " in found[name]
        assert method.reference in found[name]
        assert all(f"`{key}=" in found[name] for key in method.hyper)
        assert ("equal query sizes for granted" in found[name]) == (method.transductive and method.balanced)
        assert ("needs their features" in found[name]) == method.features


def test_names_that_share_a_function_say_how_they_differ(tool):
    found = sections(tool.page(tool.stored()))
    assert "[bms](#bms) with `prior=balanced`." in found["bms-star"]
    assert "Algorithm 1" in found["bms"]
    assert "[ncm](#ncm) with preprocessing `PE`." in found["pt-ncm"]


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
    page = tool.page(numbers)
    whole, partial = "| [ncm](#ncm) | 76.54 ± 0.46 |", "| [bms](#bms) | 87.00 ± 0.40 |  | 1.25 |"
    assert page.index(whole) < page.index(partial)  # a row with a gap cannot be ranked among the others
    assert "Balanced 1-shot 1.25 ms, Dirichlet 1-shot 1.25 ms" in sections(page)["ncm"]
    assert "- *A bank*: not measured yet" in sections(page)["kmeans"]


def test_cells_of_another_study_are_refused_in_a_sentence(tmp_path):
    path = tmp_path / "cells.csv"
    path.write_text(",".join(COLUMNS) + "\n")
    done = subprocess.run([sys.executable, TOOL, "--cells", path], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "no measured number of the study leaderboard" in done.stderr
    assert "Traceback" not in done.stderr
