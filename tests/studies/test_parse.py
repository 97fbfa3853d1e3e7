"""A study file is read as intended; an error names the line and suggests a better name."""

from __future__ import annotations

import pytest

from sinkshot.episodes import Recipe
from sinkshot.errors import InputError
from sinkshot.studies import parse
from sinkshot.studies.catalogue import Catalogue
from sinkshot.studies.expand import expand
from sinkshot.studies.study import BankKey, Cell, Value

STUDY = """\
title = "Square roots on birds"
heads = ["Method", "Backbone"]

[defaults]
data_set = "cub"
backbone = "resnet18"
query = 10

[[sheets]]
label = "Birds"
set = { lam = 5.0 }
method = "bms"
columns = [
  { label = "1-shot", shot = 1, group = "few" },
  { label = "5-shot", shot = 5, set = { epochs = 3 } },
]

[[sheets.rows]]
label = "as they are"
details = ["ResNet18"]
preprocess = ""
values = ["80.57 ± 0.20", "91.15"]

[[sheets.rows]]
label = "other backbone"
details = ["WRN"]
backbone = "wrn-28-10"
set = { lam = 7.0 }
values = ["", "-"]

[[claims]]
text = "The second is better."
rule = "row-above-row"
row = "other backbone"
other = "as they are"
columns = "few"
"""

CURVE = """\
title = "Lambda"
kind = "curve"

[[sheets]]
data_set = "cub"
backbone = "resnet18"
axis = "lambda"
sweep = { set.lam = [4, 8.5, 16] }
rows = [{ label = "BMS", method = "bms", shot = 5 }, { label = "of others", values = ["1", "2", "3"] }]
"""

MEASURE = """\
title = "Gauss"
kind = "gaussianity"
[[sheets]]
data_set = "cub"
backbone = "resnet18"
options = { chain = "PE" }
[sheets.paper]
before = { passed = 1 }
"""


@pytest.fixture
def wrong(tmp_path):
    """The error for a study with one line, or part of it, changed."""

    def said(text, old="", new=""):
        assert old in text
        file = tmp_path / "mine.toml"
        file.write_text(text.replace(old, new, 1), encoding="utf-8")
        with pytest.raises(InputError) as error:
            parse.read(file)
        message = str(error.value)
        assert message.startswith(f"{file}, line ")
        line, _, sentence = message.removeprefix(f"{file}, line ").partition(": ")
        return int(line), sentence

    return said


def written(tmp_path, text):
    file = tmp_path / "mine.toml"
    file.write_text(text, encoding="utf-8")
    return parse.read(file)


def line_of(text, piece):
    return text[: text.index(piece)].count("\n") + 1


# --- what a study says ----------------------------------------------------------------------------------------------


def test_settings_of_a_row_come_before_those_of_its_column_sheet_and_the_defaults(tmp_path):
    study = written(tmp_path, STUDY)
    (sheet,) = study.sheets
    first, second = sheet.rows
    assert (study.name, study.title, study.kind) == ("mine", "Square roots on birds", "table")
    assert first.entries[0].cell == Cell(
        BankKey("cub", ("resnet18",)), Recipe(shot=1, query=10), "bms", "", (("lam", 5.0),)
    )
    assert first.entries[1].cell == Cell(
        BankKey("cub", ("resnet18",)), Recipe(shot=5, query=10), "bms", "", (("epochs", 3), ("lam", 5.0))
    )
    assert second.entries[0].cell == Cell(
        BankKey("cub", ("wrn-28-10",)), Recipe(shot=1, query=10), "bms", None, (("lam", 7.0),)
    )
    assert second.entries[1].cell is None


def test_values_are_kept_as_printed(tmp_path):
    first, second = written(tmp_path, STUDY).sheets[0].rows
    assert [entry.paper for entry in first.entries] == [Value("80.57 ± 0.20", 80.57, 0.20), Value("91.15", 91.15)]
    assert [entry.paper for entry in second.entries] == [None, None]


@pytest.mark.parametrize("text", ["82.07±0.25", "82.07 +- 0.25", "82.07% ± 0.25%", " 82.07 ± 0.25 %"])
def test_intervals_may_be_written_in_several_ways(text):
    assert (parse.value(text).mean, parse.value(text).ci95) == (82.07, 0.25)


def test_a_sweep_makes_a_column_for_each_of_its_values(tmp_path):
    (sheet,) = written(tmp_path, CURVE).sheets
    assert [(column.x, column.label) for column in sheet.columns] == [(4.0, "4"), (8.5, "8.5"), (16.0, "16")]
    assert [entry.cell.hyper for entry in sheet.rows[0].entries] == [(("lam", 4),), (("lam", 8.5),), (("lam", 16),)]
    assert [entry.cell for entry in sheet.rows[1].entries] == [None] * 3


def test_a_method_that_may_come_later_is_shown_by_the_papers_values_until_then(tmp_path):
    text = CURVE.replace('"of others",', '"of others", method_if_known = "no-such-method",')
    assert [entry.cell for entry in written(tmp_path, text).sheets[0].rows[1].entries] == [None] * 3
    text = text.replace("no-such-method", "kmeans").replace(
        "sweep = { set.lam = [4, 8.5, 16] }", "sweep.query = [4, 8, 16]"
    )
    assert [entry.cell.method for entry in written(tmp_path, text).sheets[0].rows[1].entries] == ["kmeans"] * 3


def test_cells_are_keys_even_with_lists_among_their_hyper_parameters(tmp_path):
    text = CURVE.replace('method = "bms"', 'method = "bms", way = 2, set = { prior = [0.5, 0.5] }')
    cell = written(tmp_path, text).cells()[0]
    assert dict(cell.hyper)["prior"] == (0.5, 0.5)
    assert {cell: 1}[cell] == 1


def test_a_measure_keeps_its_options_and_the_papers_values(tmp_path):
    (sheet,) = written(tmp_path, MEASURE).sheets
    assert (sheet.measure.kind, sheet.measure.options) == ("gaussianity", (("chain", "PE"),))
    assert sheet.paper == {"before": {"passed": 1}}


def test_the_data_set_a_network_was_trained_on_is_said_only_where_it_is_another(tmp_path):
    text = STUDY.replace("query = 10", 'query = 10\ntrained_on = "cub"')
    assert written(tmp_path, text).cells()[0].bank.trained_on is None
    assert (
        written(tmp_path, text.replace('trained_on = "cub"', 'trained_on = "mini"')).cells()[0].bank.trained_on
        == "mini-imagenet"
    )


def test_studies_are_found_by_name_and_by_path(tmp_path):
    file = tmp_path / "own.toml"
    file.write_text(STUDY, encoding="utf-8")
    assert parse.find(file).name == "own"
    assert parse.find("table-5").where == "Table 5"
    with pytest.raises(InputError, match="did you mean 'table-5'"):
        parse.find("tabel-5")
    with pytest.raises(InputError, match="there is no file"):
        parse.find(tmp_path / "none.toml")


# --- what is wrong with a study -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        ("title =", "titel =", "a study has no key 'titel'; did you mean 'title'?"),
        ('backbone = "resnet18"', 'backbon = "resnet18"', "[defaults] has no key 'backbon'; did you mean 'backbone'"),
        ('label = "Birds"', 'lable = "Birds"', "a sheet has no key 'lable'; did you mean 'label'?"),
        ("{ epochs = 3 }", "{ epoch = 3 }", "bms has no hyper-parameter 'epoch'; did you mean 'epochs'"),
        ("set = { lam = 7.0 }", "set.lambda = 7.0", "bms has no hyper-parameter 'lambda'; did you mean 'lam'"),
        ("shot = 1, group", "shots = 1, group", "a column has no key 'shots'; did you mean 'shot'"),
        ('preprocess = ""', 'preproces = ""', "a row has no key 'preproces'; did you mean 'preprocess'"),
        ('method = "bms"', 'method = "bsm"', "there is no method 'bsm'; did you mean 'bms'"),
        ('rule = "row-above-row"', 'rule = "row-above"', "there is no rule 'row-above'; did you mean 'row-above-row'"),
        ('other = "as', 'othr = "as', "the rule row-above-row has no key 'othr'; did you mean 'other'"),
        ('row = "other backbone"', 'row = "other backbon"', "no row is called 'other backbon'; did you mean 'other ba"),
        ('columns = "few"', 'columns = "fewer"', "no column is called 'fewer'; did you mean 'few'"),
        ("query = 10", 'query = "10"', "query must be a whole number of at least 1; '10' was given."),
        ("query = 10", "query = 0", "query must be a whole number of at least 1; 0 was given."),
        ("query = 10", "way = true", "way must be a whole number of at least 2; true was given."),
        ("query = 10", 'protocol = "balance"', "protocol must be one of balanced"),
        ("query = 10", 'metric = "auroc"', "auroc needs queries of unknown classes; add protocol"),
        ('preprocess = ""', 'preprocess = "PEME"', "unknown preprocessing step 'ME'"),
        ('details = ["WRN"]', "details = []", "row 'other backbone' has 0 details; with the heads Method, Backbone"),
        ('values = ["", "-"]', 'values = [""]', "row 'other backbone' has 1 values, but its sheet has 2 columns"),
        ('values = ["", "-"]', "values = [1.0, 2.0]", "values must be a list of strings"),
        ('values = ["80.57 ± 0.20",', 'values = ["80,57",', "'80,57' is not a value; write it as"),
        ('label = "as they are"', 'group = "x"', "a row needs a label"),
        ("set = { lam = 5.0 }", "set = 5.0", "set must be a table"),
        ("set = { lam = 5.0 }", "set.lam.x = 5.0", "lam must be a number, a string"),
        ("set = { lam = 7.0 }", 'set.lam = "seven"', "lam must be a number above 0; 'seven' was given."),
        ("{ epochs = 3 }", "{ epochs = -3 }", "epochs (unless 'auto') must be a whole number of at least 0; -3"),
        ("set = { lam = 7.0 }", 'set.variant = "letters"', "unknown variant of BMS 'letters'; did you mean 'letter'"),
        ("set = { lam = 7.0 }", "set.prior = [0.5, 0.5]", "prior "),
        ("set = { lam = 5.0 }", "transfer = true", "transfer needs a sheet about one bank"),
        ("set = { lam = 5.0 }", "sweep.query = [1, 2]", "a sheet has columns or a sweep, not both."),
        ('backbone = "wrn-28-10"', 'backbones = "wrn-28-10"', "backbones must be a list of names"),
    ],
)
def test_an_error_names_the_line_and_what_to_write(wrong, old, new, hint):
    line, sentence = wrong(STUDY, old, new)
    assert sentence.startswith(hint)
    expected = line_of(STUDY, old)
    # An error about a row as a whole, or about two keys, stands at the row, or at the second key.
    elsewhere = {"a row needs a label": -1, "a sheet has columns or a sweep": 2}
    assert line == expected + next((by for text, by in elsewhere.items() if sentence.startswith(text)), 0)


def test_a_method_that_is_not_known_gives_a_hint_at_plugins(wrong):
    assert "--plugin FILE.py" in wrong(STUDY, 'method = "bms"', 'method = "own"')[1]


def test_a_bank_without_a_name_is_said_at_the_row_that_needs_it(wrong):
    line, sentence = wrong(STUDY, 'data_set = "cub"\n', "")
    assert sentence.startswith("no data_set is given; name one here")
    assert line == line_of(STUDY, "[[sheets.rows]]") - 1


def test_rows_and_columns_may_be_tables_in_a_line(wrong):
    line, sentence = wrong(CURVE, 'label = "of others"', 'labl = "of others"')
    assert (line, sentence) == (9, "a row has no key 'labl'; did you mean 'label'?")


def test_both_a_backbone_and_backbones_are_one_too_many(wrong):
    line, sentence = wrong(STUDY, "query = 10", 'backbones = ["a", "b"]')
    assert (line, sentence) == (7, "give backbone or backbones, not both.")


@pytest.mark.parametrize(
    ("new", "hint"),
    [
        ("sweep = { set.lam = [4, 8.5, 16], query = [1, 2] }", "lam has 3 values and query has 2; they must match."),
        ("sweep = { set.lam = 4 }", "lam must be a list in a sweep; 4 was given."),
        ("sweep = { st.lam = [4, 5, 6] }", "a sweep has no key 'st'; did you mean 'set'"),
        ("sweep = { query = [4, 5, 0] }", "query must be a whole number of at least 1; 0 was given."),
        ("sweep = { query = [4, 5, 6], shot = [1, 1, 1] }", "give x, a list of numbers"),
        ("sweep = { set = [4, 5, 6] }", "set must be a table of lists"),
        ("sweep = {}", "a sweep needs a list"),
        ("sweep = { set.lamb = [1, 2, 3] }", "bms has no hyper-parameter 'lamb'; did you mean 'lam'"),
    ],
)
def test_errors_in_a_sweep_are_found_on_its_line(wrong, new, hint):
    line, sentence = wrong(CURVE, "sweep = { set.lam = [4, 8.5, 16] }", new)
    assert sentence.startswith(hint)
    assert line == line_of(CURVE, "sweep")


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        ('chain = "PE"', 'chian = "PE"', "unknown option of gaussianity 'chian'; did you mean 'chain'"),
        ('chain = "PE"', 'chain = "PEMn"', "chain must act on each row alone"),
        ('options = { chain = "PE" }', "rows = []", "a sheet of kind gaussianity has no key 'rows'"),
        ('kind = "gaussianity"', 'kind = "gaussian"', "kind must be one of table, curve"),
    ],
)
def test_errors_in_a_measure_are_found_on_their_line(wrong, old, new, hint):
    line, sentence = wrong(MEASURE, old, new)
    assert sentence.startswith(hint)
    assert line == line_of(MEASURE, old)


@pytest.mark.parametrize(
    ("text", "line"),
    [('title = "a"\nlabel = one\n', 2), ('title = "a"\ntitle = "b"\n', 2), ('title = "a\n', 1), ("a = [1,\n", 2)],
)
def test_what_is_no_toml_is_said_with_its_line(wrong, text, line):
    assert wrong(text)[0] == line
    assert "not valid TOML" in wrong(text)[1]


def test_a_file_that_is_no_text_is_refused_in_a_sentence(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_bytes(b"title = '\xff'")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        parse.read(file)


@pytest.mark.parametrize(("rows", "where"), [("", 5), ("rows = []", 7)])
def test_a_sheet_needs_rows(wrong, rows, where):
    text = 'title = "a"\n[defaults]\ndata_set = "cub"\nbackbone = "resnet18"\n[[sheets]]\nlabel = "b"\n'
    line, sentence = wrong(f"{text}{rows}\n")
    assert (line, sentence) == (where, "a sheet needs [[sheets.rows]], each with a label and a method.")


def test_a_study_needs_a_title_and_sheets(wrong):
    assert wrong('kind = "table"\n')[1] == "a study needs a title."
    assert wrong('title = "a"\n')[1] == "a study needs [[sheets]]."


# --- as it is run here ----------------------------------------------------------------------------------------------


@pytest.fixture
def catalogue(tmp_path, monkeypatch, blobs):
    """The bundled bank, one of tieredImageNet, and one of birds by a network trained on miniImageNet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("SINKSHOT_BANKS", "")
    folder = tmp_path / "banks"
    folder.mkdir()
    blobs.save(folder / "mini-to-cub_resnet18_novel.npz")
    blobs.save(folder / "cub_resnet18_base.npz")
    blobs.save(folder / "tiered_resnet18_novel.npz")
    blobs.save(folder / "tiered_resnet12_novel.npz")
    return Catalogue([folder])


def test_a_study_of_one_bank_is_carried_over_to_the_others(tmp_path, catalogue):
    text = CURVE.replace('axis = "lambda"', 'label = "Birds"\ntransfer = true')
    study = expand(written(tmp_path, text), catalogue)
    assert [(sheet.label, sheet.elsewhere) for sheet in study.sheets] == [
        ("Birds", ""),
        ("tieredImageNet, ResNet18", "Birds"),  # the same backbone, so not the other one there
        ("CIFAR-FS, WRN", "Birds"),
    ]
    assert [next(sheet.cells()).bank for sheet in study.sheets] == [
        BankKey("cub", ("resnet18",)),
        BankKey("tiered", ("resnet18",)),
        BankKey("cifar-fs", ("wrn-28-10",)),
    ]
    for sheet in study.sheets:
        assert [entry.paper.mean for entry in sheet.rows[1].entries] == [1, 2, 3]


def test_a_study_across_data_sets_is_carried_over_to_banks_that_cross_them(tmp_path, catalogue):
    text = CURVE.replace('axis = "lambda"', 'label = "Birds"\ntrained_on = "tiered"\ntransfer = true')
    banks = [next(sheet.cells()).bank for sheet in expand(written(tmp_path, text), catalogue).sheets]
    assert [bank.trained_on for bank in banks] == ["tiered-imagenet", "mini-imagenet"]


def test_a_measure_is_carried_over_too(tmp_path, catalogue):
    study = expand(written(tmp_path, MEASURE.replace("options", "transfer = true\noptions")), catalogue)
    assert [what.bank.data_set for what in study.measures()] == ["cub", "tiered-imagenet", "cifar-fs"]
    assert all(sheet.paper == {"before": {"passed": 1}} for sheet in study.sheets)


def test_a_study_that_does_not_say_so_stays_where_it_is(tmp_path, catalogue):
    assert len(expand(written(tmp_path, CURVE), catalogue).sheets) == 1


def test_several_backbones_are_carried_over_where_all_of_them_are(tmp_path, catalogue, blobs, monkeypatch):
    folder = tmp_path / "banks"
    for name in ("tiered_resnet18_novel", "tiered_wrn-28-10_novel", "cub_resnet18_novel", "cub_wrn-28-10_novel"):
        blobs.save(folder / f"{name}.npz")
    text = CURVE.replace('backbone = "resnet18"', 'backbones = ["resnet18", "wrn-28-10"]\ntransfer = true')
    study = expand(written(tmp_path, text), Catalogue([folder]))
    assert [next(sheet.cells()).bank.data_set for sheet in study.sheets] == ["cub", "tiered-imagenet"]
    assert study.sheets[1].label == "tieredImageNet, ResNet18+WRN"


def test_episodes_and_seed_can_be_set_for_all_cells(tmp_path, catalogue):
    study = expand(written(tmp_path, STUDY), catalogue, episodes=100, seed=7)
    assert {(cell.recipe.episodes, cell.recipe.seed) for cell in study.cells()} == {(100, 7)}
    assert {cell.recipe.query for cell in study.cells()} == {10}
