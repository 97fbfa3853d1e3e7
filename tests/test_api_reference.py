"""Every public name has a page of the reference, with Parameters, Returns, Examples and See Also."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sinkshot

validate = pytest.importorskip("numpydoc.validate")  # of the extra [docs]

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs" / "_ext"))
import api_page  # noqa: E402

MISSING = {"GL08", "PR01", "PR02", "PR03", "PR07", "RT01", "RT03"}
"""numpydoc's names for: no docstring; parameters missing, unknown, out of order, undescribed; returns likewise."""
OF_A_NAME = {"SA01", "EX01"}  # no See Also, no Examples
NOT_MADE_BY_USERS = {"sinkshot.Result"}  # evaluate makes them: they have attributes, not parameters
CLASSES = [name for name in api_page.public_names() if name.rpartition(".")[2][0].isupper()]


def found(name):
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


def faults(name, codes, member=""):
    """What numpydoc finds wrong; the name is that of the definition, since `sinkshot.evaluate` is a module as well."""
    home = f"{found(name).__module__}.{found(name).__qualname__}{member}"
    return [text for code, text in validate.validate(home)["errors"] if code in codes]


def test_every_public_name_is_on_the_page():
    assert {f"sinkshot.{name}" for name in sinkshot.__all__} <= {
        *api_page.public_names(),
        *(f"sinkshot.{name}" for name in api_page.DATA),
    }


@pytest.mark.slow
def test_a_type_checker_knows_every_public_name(tmp_path):
    lines = [f"reveal_type(sinkshot.{name})" for name in sinkshot.__all__]
    (tmp_path / "front_door.py").write_text("\n".join(["import sinkshot", *lines]))
    source = Path(sinkshot.__file__).parents[1]
    words = ["--config-file", ROOT / "pyproject.toml", "--cache-dir", tmp_path / "cache", tmp_path / "front_door.py"]
    environment = {**os.environ, "MYPYPATH": str(source)}
    command = [sys.executable, "-m", "mypy", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    types = dict(zip(sinkshot.__all__, re.findall(r'Revealed type is "(.*)"', done.stdout), strict=True))
    assert {name: kind for name, kind in types.items() if kind == "Any"} == {}


@pytest.mark.parametrize("name", api_page.public_names())
def test_a_public_name_is_described_in_full(name):
    attributes = {"PR01", "PR02"} if name in NOT_MADE_BY_USERS else set()
    assert faults(name, (MISSING | OF_A_NAME) - attributes) == []


@pytest.mark.parametrize("name", CLASSES)
def test_methods_of_a_public_class_are_described(name):
    own = [cls for cls in found(name).__mro__ if cls.__module__.startswith("sinkshot")]
    members = {key: value for cls in reversed(own) for key, value in vars(cls).items() if not key.startswith("_")}
    methods = [key for key, value in members.items() if inspect.isfunction(value) or isinstance(value, classmethod)]
    methods = [key for key in methods if key not in ("get_params", "set_params")]  # as scikit-learn has them
    assert {key: errors for key in methods if (errors := faults(name, MISSING - {"PR07", "RT03"}, f".{key}"))} == {}
