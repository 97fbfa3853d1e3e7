"""Leaderboards follow the registry, rank methods on the same episodes, and list those that fail."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from toy_studies import save

import sinkshot
from sinkshot import METHODS, FeatureBank, InputError, Scores, register
from sinkshot.cli.print_leaderboards import broken, print_boards
from sinkshot.open_set import OPEN_SET
from sinkshot.report.leaderboard import Rank, Spot, _named, board, drawing, front, time_of
from sinkshot.report.pairs import match
from sinkshot.report.studies import write_report
from sinkshot.report.table_cells import TableCell
from sinkshot.studies import parse
from sinkshot.studies.catalogue import Catalogue
from sinkshot.studies.expand import expand
from sinkshot.studies.resolve import resolve
from sinkshot.studies.run import run
from sinkshot.studies.store import Store
from sinkshot.studies.study import Entry

HEAD = """
title = "Toys"
kind = "leaderboard"
{keys}
[defaults]
data_set = "toy"
backbone = "net"
way = 4
query = 5
episodes = 40
[[sheets]]
label = "Toy, net"
transfer = true
columns = [
  {{ group = "Balanced", label = "1-shot" }},
  {{ group = "Dirichlet", label = "1-shot", protocol = "dirichlet" }},
  {{ group = "Dirichlet", label = "sizes known", protocol = "dirichlet", set.prior = "oracle" }},
]
rows = [{rows}]
"""
SOME = '{ methods = ["ncm", "matching"] }, { methods = ["pt-map", "bms"] }, { methods = ["kmeans"], most = 15 }'


def write(folder, rows, keys='against = "bms"\nfloor = "ncm"'):
    file = folder / "toys.toml"
    file.write_text(HEAD.format(rows=rows, keys=keys))
    return file


@pytest.fixture
def written(tmp_path):
    return lambda *words: write(tmp_path, *words)


@pytest.fixture(scope="module")
def newcomer():
    @register("newcomer", transductive=True, preprocess="E", reference="nobody")
    def function(task):
        """Say that every query is of the first class."""
        answer = np.zeros((*task.query.shape[:2], task.way))
        answer[..., 0] = 1
        return Scores(answer)

    yield
    del METHODS["newcomer"]


def labels(study):
    return [row.label for row in study.sheets[0].rows]


# --- rows from the registry -----------------------------------------------------------------------------------------


def test_all_methods_are_rows_and_a_new_one_by_being_registered(written, newcomer):
    study = parse.read(written('{ methods = "all" }'))
    assert labels(study) == [name for name, method in METHODS.items() if not method.open_set]
    assert "newcomer" in labels(study)


def test_kinds_part_the_registry_and_a_method_named_elsewhere_is_not_there_twice(written):
    rows = '{ methods = "inductive" }, { methods = ["bms"], most = 7 }, { label = "k", method = "kmeans" }'
    study = parse.read(written(rows + ', { methods = "transductive" }', 'against = "bms"'))
    named = {cell.method for cell in study.cells()}
    assert named == {name for name, method in METHODS.items() if not method.open_set}
    assert labels(study).count("bms") == 1
    assert "kmeans" not in labels(study)  # it has a row of its own, under another label
    assert study.sheets[0].rows[-1].entries[0].cell.most is None


@pytest.mark.parametrize(
    "row", ['{ methods = "all", protocol = "open-set" }', '{ methods = ["bms", "ncm", "nn-ratio"] }']
)
def test_a_method_that_is_another_score_is_a_row_of_open_sets_and_where_it_is_named(written, row):
    assert "nn-ratio" in labels(parse.read(written(row)))
    assert "nn-ratio" not in labels(parse.read(written('{ methods = "all" }')))


def test_a_column_for_a_hyper_parameter_is_empty_where_a_method_has_none(written):
    study = parse.read(written(SOME))
    empty = {row.label: [entry.cell is None for entry in row.entries] for row in study.sheets[0].rows}
    assert empty["ncm"] == [False, False, True]
    assert empty["pt-map"] == [False, False, False]


@pytest.mark.parametrize(("asked", "slow", "quick"), [(None, 15, 40), (10, 10, 10), (500, 15, 500)])
def test_a_slow_method_is_kept_at_its_most_whatever_is_asked_for(written, asked, slow, quick):
    study = expand(parse.read(written(SOME)), Catalogue(), asked)
    counts = {cell.method: cell.recipe.episodes for cell in study.cells()}
    assert (counts["kmeans"], counts["ncm"]) == (slow, quick)


@pytest.mark.parametrize(
    ("rows", "keys", "sentence"),
    [
        ('{ methods = ["nmc"] }', "", "line 19: there is no method 'nmc'; did you mean 'ncm'"),
        ('{ methods = "some" }', "", "methods must be all, inductive, transductive, or a list"),
        ('{ methods = ["ncm"], label = "x" }', "", "several methods cannot have the key 'label'"),
        ('{ methods = ["ncm"], values = ["1", "2", "3"] }', "", "several methods cannot have the key 'values'"),
        ('{ methods = ["ncm"], most = 0 }', "", "most must be a whole number"),
        ('{ methods = ["ncm"] }', 'against = "nc"', "line 4: sheet 'Toy, net' has no row 'nc'; did you mean 'ncm'"),
        ('{ label = "n", method = "ncm" }', "", "ncm has no hyper-parameter 'prior'"),
    ],
)
def test_what_is_wrong_with_a_leaderboard_is_said_with_its_line(written, rows, keys, sentence):
    with pytest.raises(InputError, match=re.escape(sentence)):
        parse.read(written(rows, keys))


def test_a_board_is_carried_to_other_banks_and_nothing_there_speaks_of_a_paper(written):
    study = expand(parse.read(written(SOME)), Catalogue())
    assert [sheet.label for sheet in study.sheets][:2] == ["Toy, net", "CIFAR-FS, WRN"]
    assert not any(sheet.elsewhere for sheet in study.sheets)


def test_a_leaderboard_goes_to_every_bank_and_its_sheets_keep_apart_there(tmp_path, bank):
    for name in ("cub_wrn-28-10", "cifar-fs_resnet18"):
        bank.save(tmp_path / f"{name}_novel.safetensors")
    study = expand(parse.find("leaderboard"), Catalogue([tmp_path]))
    names = [sheet.label for sheet in study.sheets]
    assert {"CUB, WRN", "CUB, WRN, open set", "CIFAR-FS, ResNet18", "CIFAR-FS, ResNet18, open set"} <= set(names)
    assert len(set(names)) == len(names)


def test_a_leaderboard_skips_files_that_the_banks_toml_beside_them_names(tmp_path, bank):
    for name in ("cub_wrn-28-10", "cub_resnet18"):
        bank.save(tmp_path / f"{name}_novel.safetensors")
    (tmp_path / "banks.toml").write_text('no_transfer = ["cub_resnet18_novel.safetensors"]\n')
    names = {sheet.label for sheet in expand(parse.find("leaderboard"), Catalogue([tmp_path])).sheets}
    assert "CUB, WRN" in names
    assert "CUB, ResNet18" not in names


def test_a_method_that_needs_more_supports_is_left_out_with_the_reason(written, bank, tmp_path):
    study = parse.read(written('{ methods = ["bms", "ncm", "openmax"] }'))
    resolved, sentences = resolve([study], save(bank, tmp_path), "cpu", on_cluster=False)
    assert {cell.method for cell in resolved} == {"bms", "ncm"}
    assert any(s.startswith("openmax cannot be measured on toy, net: openmax needs at least 2") for s in sentences)


# --- the studies that come along ------------------------------------------------------------------------------------


def test_the_leaderboard_has_every_method_balanced_dirichlet_and_open(newcomer):
    study = parse.find("leaderboard")
    closed, opened = ({cell.method for cell in sheet.cells()} for sheet in study.sheets)
    assert opened == set(METHODS)
    assert closed == {name for name in opened if not METHODS[name].open_set}
    asked = {(cell.recipe.protocol, cell.recipe.shot) for cell in study.cells()}
    assert asked == {(protocol, shot) for protocol in ("balanced", "dirichlet", "open-set") for shot in (1, 5)}
    assert {entry.metric for row in study.sheets[1].rows for entry in row.entries} == {"accuracy", *OPEN_SET}


def test_imbalance_asks_every_transductive_method_and_tells_those_that_listen():
    sheets = parse.find("imbalance").sheets
    transductive = {name for name, method in METHODS.items() if method.transductive}
    for sheet in sheets:
        assert {row.label for row in sheet.rows} == transductive | {"ncm"}
    for prior in ("estimated", "oracle"):
        told = {cell.method for cell in sheets[0].cells() if dict(cell.hyper).get("prior") == prior}
        assert told == {name for name in transductive if "prior" in METHODS[name].hyper}


def test_imbalance_goes_from_nearly_equal_sizes_to_absent_classes_and_large_pools():
    _, unequal, large = parse.find("imbalance").sheets
    for shot in (1, 5):
        recipes = {cell.recipe for cell in unequal.cells() if cell.recipe.shot == shot}
        alphas = {recipe.alpha for recipe in recipes if recipe.protocol == "dirichlet"}
        assert alphas == {0.2, 0.5, 0.7, 1, 2, 5}
        assert {recipe.ratio for recipe in recipes if recipe.protocol == "long-tail"} == {10, 30}
    assert {cell.recipe.way * cell.recipe.query for cell in large.cells()} == {500}
    assert {cell.recipe.protocol for cell in large.cells()} == {"balanced", "dirichlet", "long-tail"}


def test_our_own_studies_are_found_by_name_but_are_not_the_papers():
    ours = {"leaderboard", "leaderboard-full", "imbalance", "calibration", "variants", "next-labels", "training"}
    assert set(parse.names("bench")) == ours
    assert not set(parse.names("bench")) & set(parse.names())
    with pytest.raises(InputError, match="did you mean 'leaderboard'"):
        parse.find("leaderbord")


# --- what a board says ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bank():
    rng = np.random.default_rng(0)
    features = np.repeat(rng.gamma(1.0, 1.0, (8, 24)), 40, axis=0) + 0.3 * rng.normal(size=(320, 24))
    return FeatureBank.from_arrays(np.abs(features).astype(np.float32), np.repeat(np.arange(8), 40))


@pytest.fixture(scope="module")
def outcome(tmp_path_factory, bank, newcomer):
    """A run on the toy's bank."""
    folder = tmp_path_factory.mktemp("run")
    catalogue = save(bank, folder)
    study = parse.read(write(folder, SOME + ', { methods = ["newcomer"] }'))
    with Store(folder / "results.sqlite") as store:
        return run([study], catalogue, store, workers=1)


def the_board(outcome):
    study = outcome.studies[0]
    return board(study, study.sheets[0], outcome.results)


@pytest.mark.slow
def test_differences_are_paired_and_cut_to_the_episodes_that_both_saw(outcome, bank):
    ranks = {rank.label: rank for rank in the_board(outcome).ranks}
    recipe = sinkshot.Recipe(way=4, query=5, episodes=15)
    slow, middle = (sinkshot.evaluate(bank, recipe, method=name).per_episode for name in ("kmeans", "bms"))
    spot = ranks["kmeans"].spots[0]
    assert spot.episodes == 15
    assert spot.match.difference == pytest.approx(100 * (slow - middle).mean())
    assert ranks["bms"].spots[0].match is None


def test_a_row_that_lacks_a_hard_column_gains_nothing_by_it():
    def rank(label, *heres):
        return Rank(label, 0, tuple(Spot(TableCell(Entry(None, metric="fpr95"), here)) for here in heres))

    partial, complete = rank("partial", None, 30.0), rank("complete", 60.0, 20.0)
    middles = [100 - 60.0, 100 - 25.0]  # of which more is better
    assert complete.above(middles) > partial.above(middles)


def test_easy_first_episodes_do_not_lift_a_method_that_saw_only_those():
    easy, hard = np.full(20, 0.95), np.full(80, 0.75)
    rival, slow = np.concatenate([easy, hard]), easy - 0.01
    few = Spot(TableCell(Entry(None), 94.0), 1.0, 20, match(slow, rival), rival=100 * rival.mean())
    assert few.worth == pytest.approx(79 - 1)


def test_methods_are_ranked_by_their_mean_and_the_best_of_each_column_is_marked(outcome):
    shown = the_board(outcome)
    complete = [[spot.worth for spot in rank.spots] for rank in shown.ranks if all(s.episodes for s in rank.spots)]
    means = [np.mean(values) for values in complete]
    assert means == sorted(means, reverse=True)
    assert shown.ranks[-1].label == "newcomer"
    for number in range(3):
        known = [rank.spots[number].place for rank in shown.ranks if rank.spots[number].place.here is not None]
        assert next(place.here for place in known if place.best) == max(place.here for place in known)
    assert shown.fewer == (("kmeans", 15),)


def test_who_is_below_the_floor_on_the_same_episodes_is_broken(outcome):
    found = {f"{part.column.group} {part.column.label}": dict(part.rows) for part in the_board(outcome).broken}
    for name in ("Balanced 1-shot", "Dirichlet 1-shot"):
        assert found[name]["newcomer"].difference < -50
    assert "pt-map" in found["Dirichlet 1-shot"]  # it takes equal sizes for granted
    assert "pt-map" not in found.get("Dirichlet sizes known", {})  # until it is told
    assert "matching" not in found["Balanced 1-shot"]  # inductive: it may be worse, but nothing breaks it
    listed = {(one["column"], one["row"]) for one in broken(outcome) if one["sheet"] == "Toy, net"}
    assert listed == {(column, row) for column, rows in found.items() for row in rows}


def test_a_board_without_a_number_is_empty(written):
    study = parse.read(written(SOME))
    shown = board(study, study.sheets[0], {})
    assert shown.broken == shown.fewer == ()
    assert drawing("x", shown).panels == ()


@pytest.mark.filterwarnings("error")
def test_a_board_of_one_method_is_drawn(tmp_path, written, blobs):
    study, catalogue = parse.read(written('{ methods = ["ncm"] }', "")), save(blobs, tmp_path)
    with Store(tmp_path / "store.sqlite") as store:
        results = run([study], catalogue, store).results
    (first, second) = drawing("x", board(study, study.sheets[0], results)).panels
    assert "nan" not in first.svg.lower() + second.svg.lower()


def test_the_front_is_who_nobody_beats_in_both():
    @dataclasses.dataclass
    class Dot:
        seconds: float
        value: float

    dots = [Dot(1, 50), Dot(2, 40), Dot(3, 60), Dot(3, 55), Dot(9, 60), Dot(10, 61)]
    assert [(dot.seconds, dot.value) for dot in front(dots)] == [(1, 50), (3, 60), (10, 61)]
    assert [(dot.seconds, dot.value) for dot in front(dots, better=-1)] == [(1, 50), (2, 40)]


def test_names_in_the_plot_do_not_lie_on_each_other():
    from matplotlib.figure import Figure

    from sinkshot.report.leaderboard import _LETTER, _LINE, _Dot

    rng = np.random.default_rng(0)
    dots = [_Dot(f"method-{i}", 0, float(s), float(v), 0.0) for i, (s, v) in enumerate(rng.random((30, 2)) + 0.1)]
    axes = Figure(figsize=(5, 3.6)).subplots()
    axes.set_xscale("log")
    axes.plot([dot.seconds for dot in dots], [dot.value for dot in dots], "o")
    axes.autoscale_view()
    place = axes.transData + axes.transAxes.inverted()
    boxes = []
    for dot, (right, up), side in _named(axes, dots, dots):
        (x, y), width = place.transform((dot.seconds, dot.value)), _LETTER * len(dot.label)
        left = x + right / 360 - {"center": width / 2, "left": 0, "right": width}[side]
        boxes.append((left, y + up / 200, left + width, y + up / 200 + _LINE))
    assert 3 < len(boxes) < 30
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def test_times_have_two_digits():
    assert [time_of(s) for s in (0.000521, 0.0104, 0.0996, 0.94, 1.04, 12.3)] == [
        "0.52 ms",
        "10 ms",
        "100 ms",
        "940 ms",
        "1 s",
        "12 s",
    ]


def test_the_report_shows_a_board_with_time_and_without_talk_of_a_paper(outcome, tmp_path, capsys):
    page = write_report(tmp_path / "report", outcome).files[0].read_text()
    boards = page[page.index('class="study"') : page.index('id="cells"')]
    assert boards.count("</table>") == 1
    assert boards.count("<svg viewBox") == 3
    for word in (*("ncm", "pt-map", "newcomer"), "below ncm", "difference to bms", "kmeans 15"):
        assert word in boards
    assert re.search(r"<time>[\d.]+ ms</time>", boards)
    assert "The paper" not in boards
    print_boards(outcome)
    told = capsys.readouterr().out
    assert "Dirichlet 1-shot, below ncm: newcomer (-" in told
    assert "fewer episodes: kmeans 15" in told
