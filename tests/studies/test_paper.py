"""The paper's studies hold every number of its tables and figures, as an independent transcript has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sinkshot import preprocess
from sinkshot.studies import parse
from sinkshot.studies.catalogue import Catalogue, Missing
from sinkshot.studies.expand import expand
from sinkshot.studies.study import BankKey, runs

TRANSCRIPT = json.loads((Path(__file__).parent / "transcript.json").read_text(encoding="utf-8"))
BUNDLED = BankKey("cifar-fs", ("wrn-28-10",))


def printed(text):
    """A value with its interval, however its sign is spaced; None where the paper has none."""
    return None if text in (None, "", "\\") else text.replace(" ", "")


def table(study):
    """Every value of a study's sheets by where it stands: sheet, row, its group and details, column and its group."""
    return {
        (sheet.label, row.group, row.label, *row.details, column.group, column.label): printed(
            entry.paper and entry.paper.text
        )
        for sheet in study.sheets
        for row in sheet.rows
        for column, entry in zip(sheet.columns, row.entries, strict=True)
    }


def flat(value, path=()):
    """Leaves of nested dicts."""
    if isinstance(value, dict):
        return {leaf: text for key, inner in value.items() for leaf, text in flat(inner, (*path, key)).items()}
    return {path: printed(value)}


def test_every_study_of_the_transcript_is_there_and_no_more():
    assert set(parse.names()) == set(TRANSCRIPT) | {"figure-projection", "power"}  # without numbers in the paper


@pytest.mark.parametrize("name", ["table-1", "table-2"])
def test_comparison_tables_are_as_printed(name):
    wanted = {
        (data_set, row["setting"], row["method"], row["backbone"], "", shot): printed(row[shot])
        for data_set, rows in TRANSCRIPT[name].items()
        for row in rows
        for shot in ("1-shot", "5-shot")
    }
    assert table(parse.find(name)) == wanted


def test_cross_domain_table_is_as_printed():
    wanted = {
        ("miniImageNet to CUB, WRN", row["setting"], row["method"], "", shot): printed(row[shot])
        for row in TRANSCRIPT["table-3"]
        for shot in ("1-shot", "5-shot")
    }
    assert table(parse.find("table-3")) == wanted


def test_backbone_table_is_as_printed():
    wanted = {
        ("Backbones", "", row["method"], row["backbone"], data_set, shot): text
        for row in TRANSCRIPT["table-4"]
        for (data_set, shot), text in flat({k: v for k, v in row.items() if k not in ("method", "backbone")}).items()
    }
    assert table(parse.find("table-4")) == wanted


def test_preprocessing_table_is_as_printed():
    groups = {"inductive": "Inductive (NCM)", "transductive": "Transductive (BMS)"}
    wanted = {
        ("miniImageNet, WRN", "", row["preprocessing"], groups[setting], shot): printed((row[setting] or {}).get(shot))
        for row in TRANSCRIPT["table-5"]
        for setting in groups
        for shot in ("1-shot", "5-shot")
    }
    assert table(parse.find("table-5")) == wanted


def test_external_data_table_is_as_printed():
    wanted = {
        ("External data", row["benchmark"], row["method"], "", shot): printed(row[shot])
        for row in TRANSCRIPT["table-6"]
        for shot in ("1-shot", "5-shot")
    }
    assert table(parse.find("table-6")) == wanted


def test_open_set_table_is_as_printed():
    sheets = {"miniImageNet": "miniImageNet, WRN", "tieredImageNet": "tieredImageNet, DenseNet121"}
    wanted = {
        (sheets[data_set], "", row["method"], shot, metric): text
        for row in TRANSCRIPT["table-7"]
        for (data_set, shot, metric), text in flat({k: v for k, v in row.items() if k != "method"}).items()
    }
    assert table(parse.find("table-7")) == wanted


def test_merged_table_is_as_printed():
    wanted = {
        ("Merged backbones", "", row["backbone"], data_set, shot): printed((row[data_set] or {}).get(shot))
        for row in TRANSCRIPT["table-8"]
        for data_set in ("miniImageNet", "CUB", "CIFAR-FS")
        for shot in ("1-shot", "5-shot")
    }
    study = parse.find("table-8")
    assert {place: text for place, text in table(study).items() if place[0] == "Merged backbones"} == wanted
    assert not any(text for place, text in table(study).items() if place[0] != "Merged backbones")
    stars = {row["backbone"]: row["method"] == "BMS*" for row in TRANSCRIPT["table-8"]}
    for row in study.sheets[0].rows:
        assert {entry.cell.method for entry in row.entries} == {"bms-star" if stars[row.label] else "bms"}


@pytest.mark.parametrize("name", ["figure-queries", "figure-epochs", "figure-lambda", "figure-backbones"])
def test_curves_are_as_printed(name):
    (sheet,) = parse.find(name).sheets
    assert {
        row.label: [[column.x, entry.paper.mean] for column, entry in zip(sheet.columns, row.entries, strict=True)]
        for row in sheet.rows
    } == TRANSCRIPT[name]


def test_distributions_are_as_printed():
    (sheet,) = parse.find("figure-distributions").sheets
    assert {
        part: {
            name: [list(point) for point in zip(of["x"], counts, strict=True)] for name, counts in of["counts"].items()
        }
        for part, of in sheet.paper.items()
    } == TRANSCRIPT["figure-distributions"]


def test_gaussianity_is_as_printed():
    (sheet,) = parse.find("gaussianity").sheets
    told = TRANSCRIPT["gaussianity"]
    paper = sheet.paper
    assert (str(paper["coordinates"]), str(paper["classes"]), str(paper["tests"])) == (
        told["coordinates"],
        told["classes"],
        told["tests"],
    )
    assert paper["level"] == float(told["p"])
    assert str(paper["before"]["passed"]) == told["positives, raw"]
    assert f">{100 * paper['after']['rate_above']:.0f}" == told["pass rate after the power transform"]


# --- what the cells say ---------------------------------------------------------------------------------------------


def test_the_axis_of_the_figure_on_unlabelled_samples_is_five_times_the_query():
    (sheet,) = parse.find("figure-queries").sheets
    for row in sheet.rows:
        assert [entry.cell.recipe.query * entry.cell.recipe.way for entry in row.entries] == [
            c.x for c in sheet.columns
        ]
        assert {entry.cell.method for entry in row.entries} == {"bms"}


@pytest.mark.parametrize(("name", "hyper"), [("figure-epochs", "epochs"), ("figure-lambda", "lam")])
def test_sweeps_change_their_hyper_parameter_alone(name, hyper):
    (sheet,) = parse.find(name).sheets
    for row, (method, shot) in zip(sheet.rows, [("bms-star", 1), ("bms", 5)], strict=True):
        cells = [entry.cell for entry in row.entries]
        assert [cell.hyper for cell in cells] == [((hyper, int(column.x)),) for column in sheet.columns]
        assert {(cell.method, cell.recipe.shot, cell.preprocess) for cell in cells} == {(method, shot, "PEMnE")}


def test_backbones_are_multiples_of_a_wide_resnets_width():
    (sheet,) = parse.find("figure-backbones").sheets
    for entry, column in zip(sheet.rows[0].entries, sheet.columns, strict=True):
        assert len(entry.cell.bank.backbones) == 6
        assert (entry.cell.bank.coordinates, entry.cell.bank.selections) == (640 * column.x, 100)


def test_six_runs_of_another_network_take_the_place_of_six_wide_resnets(tmp_path, blobs):
    for run in ("", "-run2", "-run3", "-run4", "-run5", "-run6"):
        blobs.save(tmp_path / f"birds_resnet12{run}_novel.npz")
    blobs.save(tmp_path / "birds_resnet18_novel.npz")
    paper, ours = expand(parse.find("figure-backbones"), Catalogue([tmp_path])).sheets
    assert paper.rows[0].entries[0].cell.bank.backbones == runs("wrn-28-10", 6)
    assert ours.label == "birds, 6\N{MULTIPLICATION SIGN}ResNet12"
    assert ours.elsewhere == paper.label
    assert {cell.bank.backbones for cell in ours.cells()} == {runs("resnet12", 6)}


def test_preprocessing_rows_are_the_chains_the_paper_names():
    (sheet,) = parse.find("table-5").sheets
    chains = {row.label: {e.cell.preprocess for e in row.entries if e.cell is not None} for row in sheet.rows}
    assert chains == {
        "None": {""},
        "Batch Norm": {"ZE"},  # the reading of an open question that goes the way of the paper's values
        "L2N": {"E"},
        "CL2N": {"MbE"},
        **{chain: {chain} for chain in ("EMbE", "PEMbE", "EMnE", "PEMnE")},
    }
    assert [entry.cell is None for entry in sheet.rows[-1].entries] == [True, True, False, False]


def test_cross_domain_features_are_of_birds_by_a_network_that_never_saw_one():
    (sheet,) = parse.find("table-3").sheets
    assert {cell.bank for cell in sheet.cells()} == {BankKey("cub", ("wrn-28-10",), trained_on="mini")}


def test_open_set_cells_are_shared_by_accuracy_and_auroc():
    study = parse.find("table-7")
    ours = study.sheets[0].rows[-1].entries
    assert [entry.metric for entry in ours] == ["accuracy", "auroc"] * 2
    assert ours[0].cell == ours[1].cell != ours[2].cell == ours[3].cell
    assert {cell.recipe.protocol for cell in study.cells()} == {"open-set"}


def test_every_cell_has_the_papers_ten_thousand_episodes():
    for name in parse.names():
        for cell in parse.find(name).cells():
            assert (cell.recipe.way, cell.recipe.episodes) == (5, 10_000)
            preprocess.parse(cell.preprocess or "")


def test_the_bundled_bank_alone_allows_what_the_paper_is_about(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("SINKSHOT_BANKS", "")
    catalogue = Catalogue()
    can = {}
    for name in parse.names():
        study = expand(parse.find(name), catalogue)
        cells = [cell for cell in study.cells() if not isinstance(catalogue.files(cell.bank), Missing)]
        measures = [m for m in study.measures() if not isinstance(catalogue.files(m.bank), Missing)]
        can[name] = len(cells) + len(measures)
    assert can["table-5"] == 28
    assert can["table-4"] == 6
    assert (can["figure-epochs"], can["figure-lambda"], can["figure-queries"]) == (18, 20, 7)
    assert can["table-7"] == 7  # 4 methods at two shots; OpenMax needs two supports
    assert can["figure-distributions"] == can["figure-projection"] == can["gaussianity"] == 1
    assert can["table-2"] >= 6
