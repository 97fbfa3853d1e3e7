"""The coverage of the paper: every value is counted once, with the reason where it cannot be measured as printed."""

from __future__ import annotations

import numpy as np
import pytest

from sinkshot.bank import FeatureBank
from sinkshot.studies import parse
from sinkshot.studies.catalogue import Catalogue
from sinkshot.studies.coverage import COVERS, covered_values, summary
from sinkshot.studies.expand import expand


@pytest.fixture
def bundled(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("SINKSHOT_BANKS", "")
    return Catalogue()


def papers(catalogue):
    return [expand(parse.find(name), catalogue) for name in parse.names()]


def test_every_value_of_tables_and_curves_is_counted_once(bundled):
    told = summary(papers(bundled), bundled)
    printed = [
        entry.paper
        for name in parse.names()
        for sheet in parse.find(name).sheets
        for row in sheet.rows
        for entry in row.entries
        if entry.paper is not None
    ]
    assert told["values"] == len(printed) == 415
    assert told["with_method"] + told["no_method"] == 415
    assert sum(told[cover.replace("-", "_").replace(" ", "_")] for cover in COVERS) == 415


def test_what_is_not_measured_as_printed_has_a_reason(bundled):
    for one in covered_values(papers(bundled), bundled):
        assert bool(one.reason) == (one.cover != "same"), one


def test_a_bank_moves_its_values_to_the_same_data_set_and_backbone(bundled, tmp_path):
    before = summary(papers(bundled), bundled)
    rng = np.random.default_rng(0)
    bank = FeatureBank.from_arrays(rng.random((120, 8), dtype=np.float32), np.repeat(np.arange(6), 20))
    bank.save(tmp_path / "cub_resnet12_novel.npz")
    more = Catalogue([tmp_path])
    after = summary(papers(more), more)
    assert after["same"] == before["same"] + 6  # three rows of Table 4, two shots
    assert after["same_head"] == before["same_head"] + 2  # FEAT of Table 2
    assert after["no_features"] == before["no_features"] - 8


def test_a_head_on_the_backbone_of_the_paper_is_counted_apart(bundled):
    found = {(one.sheet, one.row): one.cover for one in covered_values(papers(bundled), bundled)}
    assert found["CIFAR-FS", "S2M2_R"] == "same head"
    assert found["CIFAR-FS", "BD-CSPN"] == "same"


def test_the_banks_of_a_checkout_cover_what_the_docs_say(monkeypatch):
    monkeypatch.delenv("SINKSHOT_BANKS", raising=False)
    catalogue = Catalogue()
    told = summary(papers(catalogue), catalogue)
    assert (told["same"], told["same_head"], told["stand_in"], told["head"]) == (106, 16, 102, 12)
