"""Every public name has a page of the reference, with Parameters, Returns, Examples and See Also."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path

import pytest

import sinkshot

validate = pytest.importorskip("numpydoc.validate")  # of the extra [docs]

sys.path.insert(0, str(Path(__file__).parent.parent / "docs" / "_ext"))
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
