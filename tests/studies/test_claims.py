"""Claims are judged by numbers; without a clear difference there is no verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest

from sinkshot.episodes import Recipe
from sinkshot.studies import parse
from sinkshot.studies.claims import RULES, judge, needed, options
from sinkshot.studies.compare import Number, above, combined
from sinkshot.studies.study import BankKey, Cell, Claim, Column, Entry, Measure, Row, Sheet, Study, Value

KEY = BankKey("cub", ("wrn-28-10",))


@dataclass
class World:
    """Sheets, and results of their cells, made from means."""

    results: dict

    def entry(self, mean, noise=0.0, bank=KEY, metric="accuracy", **recipe):
        """A place with 400 episodes around a mean, in percent; None has no cell, a Value is the paper's."""
        if mean is None or isinstance(mean, Value):
            return Entry(None, mean)
        cell = Cell(bank, Recipe(**recipe), f"m{len(self.results)}")
        shared = np.random.default_rng(0).normal(size=400)  # what an episode has in common for all methods
        own = np.random.default_rng(len(self.results) + 1).normal(size=400)
        values = (mean + 10 * (shared - shared.mean()) + noise * (own - own.mean())) / 100
        ci95 = 1.96 * values.std(ddof=1) / 20
        self.results[cell] = SimpleNamespace(accuracy=values.mean(), ci95=ci95, per_episode=values, auroc=None)
        if metric != "accuracy":
            vars(self.results[cell]).update({metric: values.mean(), f"{metric}_per_episode": values})
            self.results[cell].accuracy, self.results[cell].per_episode = 0.2, np.full(400, 0.2)
        return Entry(cell, None, metric)

    def judge(self, sheet, rule, **options):
        claim = Claim("A claim.", rule, tuple(sorted(options.items())))
        (judgement,) = judge(Study("s", "S", "table", sheets=(sheet,), claims=(claim,)), self.results)
        assert (judgement.claim, judgement.sheet) == (claim, sheet.label)
        assert judgement.evidence.endswith((".", "hold."))
        return judgement

    def table(self, noise=0.5, **rows):
        """One column; each keyword is a row."""
        return Sheet("Sheet", (Column("1-shot"),), tuple(Row(k, (self.entry(v, noise),)) for k, v in rows.items()))

    def curve(self, x, *series, noise=0.5):
        rows = tuple(Row(f"series {i}", tuple(self.entry(y, noise) for y in ys)) for i, ys in enumerate(series))
        return Sheet("Curve", tuple(Column(f"{v:g}", x=float(v)) for v in x), rows)


@pytest.fixture
def world():
    return World({})


# --- tables ---------------------------------------------------------------------------------------------------------


def test_a_claim_is_judged_on_the_sheets_that_have_its_row(world):
    sheets = (world.table(a=80, b=82), replace(world.table(c=81, d=83), label="Other"))
    for row, where in (("b", ["Sheet"]), ("x", ["Sheet", "Other"])):
        claim = Claim("A claim.", "best-row", (("row", row),))
        found = judge(Study("s", "S", "table", sheets=sheets, claims=(claim,)), world.results)
        assert [judgement.sheet for judgement in found] == where


def test_the_best_row_is_best(world):
    found = world.judge(world.table(a=80, b=82, c=81), "best-row", row="b")
    assert found.verdict == "holds"
    assert "b 82.00, c 81.00, difference +1.00 ±" in found.evidence


def test_rows_that_a_claim_leaves_out_do_not_count(world):
    table = world.table(a=80, b=82, c=83)
    assert world.judge(table, "best-row", row="b").verdict == "does not hold"
    assert world.judge(table, "best-row", row="b", without="c").verdict == "holds"


def test_a_row_that_another_surpasses_is_not_best(world):
    found = world.judge(world.table(a=80, b=82, c=83), "best-row", row="b")
    assert found.verdict == "does not hold"
    assert "c 83.00, difference -1.00" in found.evidence


def test_many_rivals_need_more_than_one_that_is_barely_above():
    """Of ten rivals one is above by a little more than its interval: by chance alone, that is not rare."""
    rivals = {f"r{i}": 80.0 for i in range(9)}

    def judged(rule, near, *others, **options):
        world = World({})  # noise depends on how many rows came before
        return world.judge(world.table(noise=5, a=80, near=near, **dict(others)), rule, **options).verdict

    assert judged("row-above-row", 80.8, row="near", other="a") == "holds"
    assert judged("best-row", 80.8, row="a") == "does not hold"
    assert judged("best-row", 80.8, *rivals.items(), row="a") == "undecided"
    assert judged("best-row", 83.0, *rivals.items(), row="a") == "does not hold"


def test_a_row_within_the_interval_of_another_cannot_be_told_best(world):
    assert world.judge(world.table(a=80, b=82, c=81.99), "best-row", row="b").verdict == "undecided"
    assert world.judge(world.table(a=80, b=82, c=82.01), "best-row", row="b").verdict == "undecided"


def test_one_column_in_which_a_row_is_not_best_decides(world):
    columns = (Column("1-shot"), Column("5-shot"))
    rows = (Row("a", (world.entry(80), world.entry(90))), Row("b", (world.entry(81), world.entry(89))))
    sheet = Sheet("Sheet", columns, rows)
    assert world.judge(sheet, "best-row", row="b").verdict == "does not hold"
    assert world.judge(sheet, "best-row", row="b", columns="1-shot").verdict == "holds"
    assert world.judge(sheet, "best-row", row="b", columns=("5-shot",)).verdict == "does not hold"


def test_rows_of_other_groups_do_not_count(world):
    sheet = world.table(a=80, b=82, c=83)
    rows = tuple(replace(row, group=group) for row, group in zip(sheet.rows, ("in", "in", "trans"), strict=True))
    assert world.judge(replace(sheet, rows=rows), "best-row", row="b", groups=("in",)).verdict == "holds"


def test_rows_of_others_count_with_the_papers_values_on_the_papers_bank_only(world):
    sheet = world.table(a=Value("83", 83.0), b=82)
    assert world.judge(sheet, "best-row", row="b").verdict == "does not hold"
    assert "a (paper) 83.00" in world.judge(sheet, "best-row", row="b").evidence
    assert world.judge(replace(sheet, elsewhere="another"), "best-row", row="b").verdict == "undecided"


def test_a_rival_that_was_not_measured_leaves_it_open(world):
    sheet = world.table(a=80, b=82, c=81)
    del world.results[sheet.rows[0].entries[0].cell]
    found = world.judge(sheet, "best-row", row="b")
    assert found.verdict == "undecided"
    assert "Not measured: a." in found.evidence


@pytest.mark.parametrize(("a", "b", "verdict"), [(82, 80, "holds"), (80, 82, "does not"), (80, 80.001, "undecided")])
def test_one_row_is_above_another(world, a, b, verdict):
    assert world.judge(world.table(a=a, b=b), "row-above-row", row="a", other="b").verdict.startswith(verdict)


def test_rows_are_compared_within_the_same_details(world):
    rows = [Row(label, (world.entry(mean),), details=(net,)) for label, net, mean in [
        ("BMS", "small", 70), ("BMS", "large", 80), ("k-means", "small", 69), ("k-means", "large", 79),
    ]]  # fmt: skip
    sheet = Sheet("Sheet", (Column("1-shot"),), tuple(rows))
    assert world.judge(sheet, "row-above-row", row="BMS", other="k-means").verdict == "holds"


def test_the_same_episodes_tell_what_intervals_cannot(world):
    """The two differ by a point in every episode and episodes vary by ten: intervals overlap, differences do not."""
    sheet = world.table(noise=0.1, a=80.6, b=80)
    a, b = (world.results[row.entries[0].cell] for row in sheet.rows)
    assert a.accuracy - a.ci95 < b.accuracy + b.ci95
    assert world.judge(sheet, "row-above-row", row="a", other="b").verdict == "holds"
    a.per_episode = b.per_episode = None
    assert world.judge(sheet, "row-above-row", row="a", other="b").verdict == "undecided"


def test_other_episodes_are_not_paired(world):
    rows = tuple(Row(name, (world.entry(mean, 0.1, seed=seed),)) for name, mean, seed in [("a", 80.6, 0), ("b", 80, 1)])
    sheet = Sheet("Sheet", (Column("1-shot"),), rows)
    assert world.judge(sheet, "row-above-row", row="a", other="b").verdict == "undecided"


def test_auroc_is_judged_where_it_is_the_metric(world):
    sheet = Sheet("Sheet", (Column("AUROC"),), (Row("ncm", (world.entry(72, metric="auroc"),)),))
    assert world.judge(sheet, "above-value", row="ncm", value=50).verdict == "holds"
    assert world.judge(sheet, "above-value", row="ncm", value=90).verdict == "does not hold"
    assert world.judge(sheet, "above-value", row="ncm", value=72).verdict == "undecided"


def test_of_the_share_of_false_alarms_less_is_better(world):
    rows = tuple(Row(k, (world.entry(v, 0.5, metric="fpr95"),)) for k, v in {"a": 30, "b": 35, "c": 60}.items())
    sheet = Sheet("Sheet", (Column("FPR95"),), rows)
    best = world.judge(sheet, "best-row", row="a")
    assert best.verdict == "holds"
    assert "b 35.00, difference -5.00" in best.evidence  # the nearest of them
    assert world.judge(sheet, "best-row", row="b").verdict == "does not hold"
    assert world.judge(sheet, "row-above-row", row="b", other="c").verdict == "holds"
    assert world.judge(sheet, "row-above-row", row="c", other="b").verdict == "does not hold"


def test_merged_backbones_are_set_against_the_best_of_them(world):
    both = world.entry(85, bank=replace(KEY, backbones=("wrn", "resnet"))).cell
    sheet = Sheet("Sheet", (Column("1-shot"),), (Row("both", (Entry(both),)),))
    assert world.judge(sheet, "merged-above-single").verdict == "undecided"
    for backbone, mean in (("wrn", 84), ("resnet", 80)):
        alone = replace(both, bank=replace(KEY, backbones=(backbone,)))
        world.results[alone] = world.results[world.entry(mean).cell]
    found = world.judge(sheet, "merged-above-single")
    assert found.verdict == "holds"
    assert "wrn alone 84.00" in found.evidence


def test_merged_backbones_are_not_set_against_one_measured_on_other_rows(world):
    both = world.entry(85, bank=replace(KEY, backbones=("wrn", "resnet"))).cell
    sheet = Sheet("Sheet", (Column("1-shot"),), (Row("both", (Entry(both),)),))
    world.results[both].labels = "first rows"
    for backbone, mean, labels in (("wrn", 90, "all rows"), ("resnet", 80, "first rows")):
        alone = replace(both, bank=replace(KEY, backbones=(backbone,)))
        world.results[alone] = SimpleNamespace(**vars(world.results[world.entry(mean).cell]), labels=labels)
    found = world.judge(sheet, "merged-above-single")
    assert found.verdict == "holds"
    assert "resnet alone 80.00" in found.evidence
    del world.results[alone]
    found = world.judge(sheet, "merged-above-single")
    assert found.verdict == "undecided"
    assert "measured on other rows" in found.evidence


def test_numbers_of_different_rows_are_not_paired(world):
    apart = []
    for labels in ("first rows", "all rows"):
        sheet = world.table(a=80, b=81)
        cell = sheet.rows[1].entries[0].cell
        world.results[sheet.rows[0].entries[0].cell].labels, world.results[cell].labels = "all rows", labels
        apart.append(world.judge(sheet, "row-above-row", row="b", other="a").verdict)
    assert apart == ["undecided", "holds"]


def test_a_detail_is_best_within_each_label(world):
    nets = [("BMS", "WRN", 80), ("BMS", "RN", 78), ("other", "WRN", 70), ("other", "RN", 75)]
    rows = [Row(label, (world.entry(mean, 0.5),), details=(net,)) for label, net, mean in nets]
    sheet = Sheet("Sheet", (Column("1-shot"),), tuple(rows))
    assert world.judge(sheet, "best-detail", rows="BMS", detail="WRN").verdict == "holds"
    assert world.judge(sheet, "best-detail", rows=("BMS", "other"), detail="WRN").verdict == "does not hold"
    assert "WRN 80.00, RN 78.00" in world.judge(sheet, "best-detail", rows="BMS", detail="WRN").evidence


@pytest.mark.parametrize(
    ("mean", "noise", "verdict"),
    [(81, 0.5, "holds"), (83, 0.5, "does not hold"), (80, 0.5, "does not hold"), (81.5, 5, "undecided")],
)
def test_a_gain_lies_within_its_bounds(world, mean, noise, verdict):
    sheet = world.table(noise=noise, a=mean, b=80)
    assert world.judge(sheet, "gain-between", row="a", other="b", low=0.5, high=1.5).verdict == verdict


# --- curves ---------------------------------------------------------------------------------------------------------

Q = [10, 20, 30, 50, 75, 100, 150]


def test_a_curve_rises_to_a_plateau(world):
    sheet = world.curve(Q, [84.14, 85.38, 85.93, 86.42, 86.84, 87.00, 87.21])
    found = world.judge(sheet, "rises-to-plateau")
    assert found.verdict == "holds"
    assert "84.14 at 10, 87.21 at 150" in found.evidence


def test_a_plateau_that_gains_nothing_is_told_without_a_sign(world):
    found = world.judge(world.curve(Q, [84.0, 85.0, 86.0, 87.0, 88.0, 88.0, 87.999]), "rises-to-plateau")
    assert "the gain up to 75 is 4.00, and from there to 150 0.00." in found.evidence


def test_a_straight_line_is_no_plateau(world):
    sheet = world.curve(Q, [80 + x / 10 for x in Q])
    assert world.judge(sheet, "rises").verdict == "holds"
    assert world.judge(sheet, "rises-to-plateau").verdict == "does not hold"


def test_a_curve_that_falls_does_not_rise(world):
    found = world.judge(world.curve([1, 2, 3, 4], [80, 82, 81, 83]), "rises")
    assert found.verdict == "does not hold"
    assert "a drop of 1.00 at 3" in found.evidence
    assert world.judge(world.curve([1, 2, 3], [83, 82, 81]), "rises").verdict == "does not hold"
    assert world.judge(world.curve([1, 2, 3], [80, 80, 80]), "rises").verdict == "undecided"


def test_columns_in_any_order_make_the_same_curve(world):
    sheet = world.curve([3, 1, 2], [83, 80, 82])
    assert world.judge(sheet, "rises").verdict == "holds"


X = [4, 5, 6, 7, 8, 9, 10, 12, 15, 20]


def test_the_papers_lambda_has_its_optimum_between_six_and_ten(world):
    sheet = world.curve(X, [85.56, 88.73, 89.34, 89.50, 89.52, 89.49, 89.41, 89.20, 88.88, 88.53], noise=0.1)
    found = world.judge(sheet, "optimum-between", low=6, high=10)
    assert found.verdict == "holds"
    assert "89.52 at 8, best outside 89.20 at 12" in found.evidence


@pytest.mark.parametrize(
    ("y", "verdict"),
    [
        ([80, 81, 82, 83, 84, 85, 86, 87, 88, 89], "does not hold"),
        ([89, 88, 87, 86, 85, 84, 83, 82, 81, 80], "does not hold"),
        ([80, 84.999, 85, 85, 85, 85, 85, 84.999, 81, 80], "undecided"),
    ],
)
def test_an_optimum_elsewhere_or_a_flat_one_is_said(world, y, verdict):
    assert world.judge(world.curve(X, y), "optimum-between", low=6, high=10).verdict == verdict


def test_without_bounds_the_optimum_is_to_lie_within_the_curve(world):
    assert world.judge(world.curve([0, 10, 20, 30], [80, 82, 81, 79]), "optimum-between").verdict == "holds"
    assert world.judge(world.curve([0, 10, 20, 30], [83, 82, 81, 79]), "optimum-between").verdict == "does not hold"


def test_a_curve_without_some_of_its_points_cannot_be_told(world):
    sheet = world.curve([0, 10, 20, 30], [80, 82, 81, 79], [80, 82, 81, 79])
    del world.results[sheet.rows[1].entries[2].cell]
    found = world.judge(sheet, "optimum-between")
    assert found.verdict == "undecided"
    assert "series 1: some points of the curve have not been measured." in found.evidence
    assert world.judge(sheet, "optimum-between", rows="series 0").verdict == "holds"


# --- measures, and what is missing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "options", "verdict"),
    [
        (1, 70, {}, "holds"),
        (10, 70, {}, "does not hold"),
        (0, 5, {}, "holds"),
        (0, 0, {}, "does not hold"),
        (10, 70, {"times": 5}, "holds"),
    ],
)
def test_pass_rates_jump(world, before, after, options, verdict):
    what = Measure(KEY, "gaussianity")
    world.results[what] = {"tests": 100, "before": {"passed": before}, "after": {"passed": after}}
    found = world.judge(Sheet("Sheet", measure=what), "pass-rate-jumps", **options)
    assert found.verdict == verdict
    assert f"Of 100 tests {before} pass before" in found.evidence


@pytest.mark.parametrize(
    ("before", "after", "verdict"), [(1, 70, "holds"), (40, 63, "holds"), (1, 50, "does not hold")]
)
def test_a_pass_rate_is_above_a_value_however_high_it_was_before(world, before, after, verdict):
    what = Measure(KEY, "gaussianity")
    world.results[what] = {"tests": 100, "before": {"passed": before}, "after": {"passed": after}}
    assert world.judge(Sheet("Sheet", measure=what), "pass-rate-above", value=50).verdict.startswith(verdict)


@pytest.mark.parametrize("name", parse.names())
def test_nothing_can_be_told_where_nothing_is_measured(name):
    study = parse.find(name)
    assert {found.verdict for found in judge(study, {})} <= {"undecided"}


def test_every_rule_says_what_it_needs():
    for rule in RULES:
        assert set(needed(rule)) <= set(options(rule))
    assert needed("row-above-row") == ["row", "other"]


def test_long_evidence_is_cut_and_counted(world):
    columns = tuple(Column(f"c{i}") for i in range(6))
    rows = tuple(Row(name, tuple(world.entry(mean) for _ in columns)) for name, mean in (("a", 80), ("b", 82)))
    found = world.judge(Sheet("Sheet", columns, rows), "row-above-row", row="b", other="a")
    assert found.evidence.endswith("And 2 more, 6 of 6 hold.")


# --- differences ----------------------------------------------------------------------------------------------------


def test_independent_intervals_add_as_squares():
    assert combined([(1.0, Number(5, 3.0)), (-1.0, Number(2, 4.0))]) == Number(3, 5.0)


def test_an_interval_that_is_not_known_decides_nothing():
    assert above(Number(90, None), Number(10, 0.1))[0] == "undecided"


def test_a_single_episode_decides_nothing():
    one = Number(90, None, np.array([90.0]), "same")
    assert above(one, Number(10, None, np.array([10.0]), "same"))[0] == "undecided"
