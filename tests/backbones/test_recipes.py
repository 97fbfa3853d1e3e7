"""Recipes: the bundled ones can be read, and an error names the mistake."""

from __future__ import annotations

from itertools import pairwise

import pytest
from pattern_images import recipe_file

from sinkshot.backbones import networks, recipes
from sinkshot.backbones.recipes import Stage, Views, from_table, read
from sinkshot.backbones.schedule import rate
from sinkshot.errors import InputError

WHOLE = {"modern", "s2m2"}  # those that others extend, and that leave the network open


@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_that_comes_along_is_whole_and_names_a_known_network(name):
    recipe = read(name, {"network": "conv4"} if name in WHOLE else {})
    assert recipe.network in networks.names()
    assert recipe.stored >= recipe.size
    assert from_table(recipe.table()) == recipe


def test_the_published_recipe_has_its_two_stages():
    recipe = read("mini-imagenet_wrn-28-10_s2m2")
    rotation, mixup = recipe.stage.values()
    assert list(recipe.stage) == ["rotation", "mixup"]
    assert (rotation.epochs, mixup.epochs) == (400, 100)
    assert (rotation.optimiser, rotation.rate, rotation.schedule) == ("adam", 0.001, "constant")
    assert (rotation.views.four, mixup.views.four, mixup.views.mixed) == (1, 0.25, 1)
    assert mixup.alpha == 2.0


def test_a_recipe_lies_over_the_one_it_extends(tmp_path):
    recipe = read(recipe_file(tmp_path, "[stage.train]\nepochs = 7\n"), {"stage.train.rate": 0.25, "seed": 3})
    stage = recipe.stage["train"]
    assert (stage.epochs, stage.rate, stage.batch, recipe.seed) == (7, 0.25, 32, 3)
    assert recipe.options == {"channels": 8}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("sise = 32", "unknown key of the recipe 'sise'; did you mean 'size'"),
        ("[augment]\njiter = 0.1", r"unknown key of the recipe in \[augment\] 'jiter'; did you mean 'jitter'"),
        ("[stage.train]\nbatch = 'many'", r"stage.train.batch must be a whole number; 'many' was given"),
        ("[stage.train]\nbatch = 33", r"\[stage.train\]: batch must be a multiple of 8"),
        (
            "[stage.train]\nviews = { four = 0.25 }\nbatch = 16",
            "views.four = 0.25 of a batch of 16 is not a whole number",
        ),
        ("[stage.train]\noptimiser = 'sdg'", "unknown optimiser 'sdg'; did you mean 'sgd'"),
        ("[stage.train]\nrate = 0", "rate must be a number above 0"),
        ("[augment]\narea = [0.5]", "augment.area must be a list of 2"),
        ("[augment]\nflip = 1", "augment.flip must be true or false"),
        ("[augment]\narea = [0.5, 0.2]", "augment.area must be a range"),
        ("augment = 3", "augment must be a table; 3 was given"),
        ("ema = 1.5", "ema must be a number from 0 to"),
        ("network = conv4", "is not valid TOML"),
    ],
)
def test_a_mistake_is_named_with_its_key(tmp_path, more, words):
    with pytest.raises(InputError, match=words):
        read(recipe_file(tmp_path, more))


def test_unknown_recipes_missing_files_and_circles_are_named(tmp_path):
    with pytest.raises(InputError, match="unknown recipe 'modrn'; did you mean 'modern'"):
        read("modrn")
    with pytest.raises(InputError, match=r"there is no recipe file nowhere\.toml"):
        read("nowhere.toml")
    with pytest.raises(InputError, match="names no network"):
        read("modern")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"bytes\.toml is not valid TOML"):
        read(tmp_path / "bytes.toml")
    circle = tmp_path / "circle.toml"
    circle.write_text(f'extends = "{circle}"')
    with pytest.raises(InputError, match="extends itself"):
        read(circle)


def test_views_must_be_some():
    with pytest.raises(InputError, match="at least one kind"):
        Views(mixed=0, rotated=0)


@pytest.mark.parametrize("fall", ["cosine", "linear"])
def test_one_cycle_climbs_to_its_rate_and_falls_to_nothing(fall):
    stage = Stage(rate=0.4, warm_up=0.2, fall=fall)
    rates = [rate(stage, step, 200) for step in range(200)]
    top = rates.index(max(rates))
    assert max(rates) == pytest.approx(0.4)
    assert top == 40
    assert all(a < b for a, b in pairwise(rates[: top + 1]))
    assert all(a > b for a, b in pairwise(rates[top:]))
    assert 0 < rates[-1] < 0.01
    assert rate(Stage(rate=0.4, schedule="constant"), 150, 200) == 0.4
