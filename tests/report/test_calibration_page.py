"""The calibration study: every method has its diagram, and values without an interval are printed without one."""

from __future__ import annotations

import csv
import json
import re

import numpy as np
import pytest

from sinkshot import FeatureBank
from sinkshot.report.studies import write_report
from sinkshot.studies import parse
from sinkshot.studies.catalogue import Catalogue
from sinkshot.studies.expand import expand
from sinkshot.studies.run import run
from sinkshot.studies.store import Store

STUDY = """
title = "Trust"
kind = "calibration"

[defaults]
data_set = "toy"
backbone = "net"
way = 3
query = 5
episodes = 40

[[sheets]]
label = "Toys"
columns = [
  { label = "Accuracy" },
  { label = "ECE", metric = "ece" },
  { label = "if calibrated", metric = "ece_null" },
  { label = "Brier", metric = "brier" },
]
rows = [{ group = "All", methods = ["ncm", "bms", "kmeans", "logreg", "paddle", "pt-map"] }]
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibration")
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(5), 30)
    features = np.abs(rng.normal(size=(150, 8)) + 2 * rng.normal(size=(5, 8))[labels]).astype(np.float32)
    FeatureBank.from_arrays(features, labels).save(folder / "toy_net_novel.safetensors")
    (folder / "trust.toml").write_text(STUDY)
    catalogue = Catalogue([folder])
    with Store(folder / "results.sqlite") as store:
        return run([expand(parse.read(folder / "trust.toml"), catalogue)], catalogue, store, workers=1)


@pytest.mark.slow
def test_every_method_has_a_diagram_and_a_curve(outcome, tmp_path):
    write_report(tmp_path, outcome)
    page = (tmp_path / "index.html").read_text()
    drawn = "".join(re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL))
    for stored in outcome.results.values():
        assert f">{stored.method}<" in drawn
        assert f"{stored.method} {100 * stored.ece:.1f}" in drawn, "told in words"
    assert "Risk against coverage" in page
    assert "the other methods" in page, "six methods, five colours"
    assert "in which no paper" not in page


def test_what_has_no_interval_is_printed_without_one(outcome, tmp_path):
    write_report(tmp_path, outcome)
    stored = next(one for one in outcome.results.values() if one.method == "bms")
    line = next(line for line in (tmp_path / "report.md").read_text().splitlines() if line.startswith("| bms"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[-3] == f"**{100 * stored.ece:.2f}**"
    assert cells[-2] == f"**{100 * stored.ece_null:.2f}**"
    assert cells[-1].startswith(f"**{100 * stored.brier:.2f}** ± ")
    rows = list(csv.DictReader((tmp_path / "cells.csv").open()))
    ece = next(row for row in rows if row["metric"] == "ece" and row["method"] == "bms")
    assert float(ece["here"]) == pytest.approx(100 * stored.ece)
    assert ece["here_ci95"] == ""


def test_the_command_tells_metrics_of_confidence_as_json(outcome, tmp_path):
    from sinkshot.cli.print_studies import answer

    places = json.loads(json.dumps(answer(outcome, tmp_path / "index.html")))["places"]
    ece = [place for place in places if place["metric"] == "ece"]
    assert len(ece) == 6
    assert all(place["half_width"] is None and place["mean"] == place["result"]["ece"] for place in ece)
