"""The documentation works: code in README and docs, the method in CONTRIBUTING, examples in docstrings."""

from __future__ import annotations

import doctest
import functools
import importlib
import importlib.util
import json
import os
import pkgutil
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from PIL import Image

import sinkshot
from sinkshot.backbones import checkpoints, datasets, networks
from sinkshot.backbones.extract import extract
from sinkshot.cli.app import app
from sinkshot.studies import claims, measures, parse
from sinkshot.studies.catalogue import Catalogue
from sinkshot.studies.claims import judge
from sinkshot.studies.expand import expand
from sinkshot.studies.run import run
from sinkshot.studies.store import Store
from sinkshot.studies.study import BankKey

ROOT = Path(__file__).parent.parent


def committed(page):
    """Whether a page is written by hand, not made by `make docs`."""
    return page.relative_to(ROOT / "docs").parts[0] not in ("_build", "_generated", "api", "gallery", "methods")


MODULES = [m.name for m in pkgutil.walk_packages(sinkshot.__path__, "sinkshot.") if not m.name.endswith((".gpu", "__"))]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(page for page in (ROOT / "docs").glob("**/*.md") if committed(page))])
PAGES = [ROOT / "docs" / "getting_started.md", *(page for page in DOCUMENTS if page.parent.name == "guide")]
PAGES = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]


@functools.cache
def commands():
    """The subcommands of `sinkshot` by name."""
    return typer.main.get_command(app).commands


def python_blocks(document):
    return blocks(document, "python")


def blocks(document, language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / document).read_text(), flags=re.DOTALL)


def prose(document):
    """The text of a document without code."""
    return re.sub(r"```.*?```|`[^`]*`", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.slow
def test_the_readmes_code_runs(capsys):
    (block,) = python_blocks("README.md")
    exec(block, {})
    assert float(capsys.readouterr().out) > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space = {}
    for block in python_blocks(page.relative_to(ROOT)):
        exec(block, space)
    assert space


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_files_that_a_document_links_to_exist(document):
    targets = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", prose(document))
    generated = ("gallery/", "methods/", "_generated/", "api/")
    for target in targets:
        goal = (document.parent / target).resolve()
        made = goal.is_relative_to(ROOT / "docs") and str(goal.relative_to(ROOT / "docs")).startswith(generated)
        assert made or goal.exists(), f"{document.name} links to {target}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_commands_in_documents_have_options_that_exist(document):
    for line in re.findall(r"^    (sinkshot [^\n]+)", document.read_text(encoding="utf-8"), flags=re.MULTILINE):
        name, *words = shlex.split(line.partition("#")[0])[1:]
        known = {option for one in commands()[name].params for option in (*one.opts, *one.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= known | {"--help"}, line


def test_a_broken_link_of_the_site_is_found(tmp_path):
    (tmp_path / "a.html").write_text('<h1 id="here">A</h1><a href="b.html#there">b</a><a href="#here">a</a>')
    (tmp_path / "b.html").write_text('<a href="gone.html">gone</a><a href="https://example.org">outside</a>')
    words = [sys.executable, ROOT / "tools" / "check_links.py", tmp_path]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "a.html links to b.html#there: the page has no such anchor." in done.stdout
    assert "b.html links to gone.html: there is no such file." in done.stdout
    assert "3 links checked, 2 broken, 1 to other hosts not fetched." in done.stdout


@pytest.fixture
def package_with_one_more_file(tmp_path):
    """The package as it would be with the method of CONTRIBUTING in its folder; returns the folder to import from."""
    (source,) = python_blocks("CONTRIBUTING.md")
    package, real = tmp_path / "src" / "sinkshot", ROOT / "src" / "sinkshot"
    (package / "methods").mkdir(parents=True)
    for file in (*real.iterdir(), *(real / "methods").iterdir()):
        if file.name not in ("methods", "__pycache__"):
            (package / file.relative_to(real)).symlink_to(file)
    (package / "methods" / "nearest_neighbour.py").write_text(source, encoding="utf-8")
    return package.parent


@pytest.mark.slow
def test_the_method_in_contributing_needs_one_file_and_no_list(package_with_one_more_file, tmp_path):
    assert "nearest-neighbour" not in sinkshot.METHODS  # a reader can add it
    environment = {**os.environ, "PYTHONPATH": str(package_with_one_more_file)}

    def run(*words):
        done = subprocess.run(
            [sys.executable, *map(str, words)],
            capture_output=True,
            text=True,
            env=environment,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    words = ("--method", "nearest-neighbour", "--episodes", 30, "--json")
    assert json.loads(run("-m", "sinkshot", "eval", "cifar-fs_wrn-28-10_novel", *words))["accuracy"] > 0.5
    assert "nearest-neighbour" in run("-m", "sinkshot", "methods")
    pages = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'tools')!r}); import make_methods_page; from pathlib import Path; "
    )
    run("-c", pages + "make_methods_page.write(Path('pages'))")
    assert "Cover, Hart" in (tmp_path / "pages" / "nearest-neighbour.md").read_text(encoding="utf-8")


def test_every_extra_has_a_trial_and_a_line_in_getting_started():
    spec = importlib.util.spec_from_file_location("try_extras", ROOT / "tools" / "try_extras.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert set(tool.extras()) == set(tool.TRIALS)
    page = (ROOT / "docs" / "getting_started.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", page.partition("| extra | for |")[2], re.MULTILINE)
    listed = [name for row in rows for name in re.findall(r"\w+", row)]
    assert {"core", *listed} == set(tool.TRIALS)


def test_the_backbones_page_turns_a_folder_into_a_table_of_labels(tmp_path, monkeypatch):
    for number, name in enumerate(["cat", "dog", "owl"]):
        for index in range(20):
            noise = np.random.default_rng([number, index]).integers(0, 40, (32, 32, 3))
            place = tmp_path / "photos" / (name if index < 3 else "_unlabeled") / f"{name}-{index}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray((noise + 200 * np.eye(3)[number]).astype(np.uint8)).save(place)
    torch.manual_seed(0)
    checkpoints.save(networks.build("conv4"), tmp_path / "weights.safetensors", mean=(0.5,) * 3, std=(0.25,) * 3)
    photos = datasets.load(tmp_path / "photos", size=32)
    weights = checkpoints.load(tmp_path / "weights.safetensors")
    extract(weights, photos, tmp_path / "photos_all.safetensors", device="cpu")
    monkeypatch.chdir(tmp_path)
    (snippet,) = python_blocks("docs/backbones.md")
    exec(snippet, {})
    header, *lines = (tmp_path / "labels.csv").read_text().splitlines()
    assert header == "image,label,probability"
    assert len(lines) == 3 * 17
    assert all(line.split(",")[1] == line.split(",")[0].removeprefix("_unlabeled/").partition("-")[0] for line in lines)


@pytest.mark.slow
def test_the_studies_page_shows_a_study_that_runs_and_banks_that_are_found(tmp_path):
    banks, study, _ = blocks("docs/studies.md", "toml")
    (tmp_path / "roots.toml").write_text(study)
    (tmp_path / "banks.toml").write_text(banks)
    (tmp_path / "features").mkdir()
    (tmp_path / "features" / "birds.npz").touch()
    catalogue = Catalogue([tmp_path])
    assert catalogue.find(BankKey("birds", ("resnet50",), trained_on="imagenet")) == tmp_path / "features" / "birds.npz"
    roots = expand(parse.find(tmp_path / "roots.toml"), catalogue, episodes=20)
    with Store(tmp_path / "results.sqlite") as store:
        outcome = run([roots], catalogue, store, workers=1, device="cpu")
    assert outcome.missing == []
    assert set(outcome.results) == set(roots.cells())
    assert [one.verdict for one in judge(roots, outcome.results)] == ["holds"]


@pytest.mark.slow
def test_the_guide_makes_a_latex_table_of_own_features(tmp_path, monkeypatch):
    page = "docs/guide/researcher.md"
    (study,), (features,) = blocks(page, "toml"), [block for block in python_blocks(page) if "np.savez" in block]
    monkeypatch.chdir(tmp_path)
    exec(features, {})
    (tmp_path / "own.toml").write_text(study, encoding="utf-8")
    (line,) = re.findall(r"^    (sinkshot reproduce --study own[^\n]+)", (ROOT / page).read_text("utf-8"), re.MULTILINE)
    words = [sys.executable, "-m", *shlex.split(line), "--episodes", "20"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    tables = (tmp_path / "sinkshot-report" / "tables.tex").read_text(encoding="utf-8")
    assert "Method & 1-shot & 5-shot & 5-shot, unequal" in tables
    assert "\\label{tab:differences-1}" in tables


def test_the_studies_page_names_every_key_rule_and_option():
    page = (ROOT / "docs" / "studies.md").read_text()
    known = {*parse._STUDY, *parse._SHEET, *parse._MEASURED, *parse._COLUMN, *parse._ROW, *claims.RULES}
    known |= {option for rule in claims.RULES for option in claims.options(rule)}
    known |= {name for kind, options in measures.OPTIONS.items() for name in (kind, *options)}
    named = set(re.findall(r"`([\w-]+)`", page))
    assert known - named == {"defaults", "sheets"}  # the example has those


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.slow
def test_the_wheel_is_small_and_brings_the_bank_and_the_templates(tmp_path):
    words = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", tmp_path, ROOT]
    subprocess.run(list(map(str, words)), check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size < 12e6
    inside = zipfile.ZipFile(wheel).namelist()
    templates = ("report/page.html.jinja", "report/page.css", "review/static/main.js", "review/static/review.css")
    for file in ("data/cifar-fs_wrn-28-10_novel.safetensors", "py.typed", *templates):
        assert f"sinkshot/{file}" in inside
    assert not any(name.startswith("tests") for name in inside)
