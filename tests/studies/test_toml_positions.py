"""Every key of a TOML text is found on the line where it stands."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sinkshot.studies
from sinkshot.studies.toml_positions import lines, nearest

FILES = sorted((Path(sinkshot.studies.__file__).parent).rglob("*.toml"))


def paths(value, path=()):
    """Every key and every element of an array."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*path, key)
        yield from paths(part, (*path, key))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_key_of_the_papers_studies_is_found_and_no_other(file):
    text = file.read_text(encoding="utf-8")
    assert set(lines(text)) == set(paths(tomllib.loads(text)))


def test_keys_are_found_in_every_form_that_people_write():
    text = '''\
a = 1  # [not.a.table]
"b.c" = 'x = "1"'
d.e = """
[[sheets]]
f = 1 \\""" still inside"""
[[sheets]]  # the first
rows = [
  # a comment, with ] and }
  { label = "one, two", set.lam = 8.5 }, { label = "]" },
  { label = 'three' } ,
]
'quoted key' = 2020-01-01
[sheets.sweep]
set.lam = [
  4, 8,
  16 ]
[[sheets]]
[[sheets.rows]]
y = {}
[[sheets.rows]]
z = [[1], [
2]]
'''
    found = lines(text)
    assert set(found) == set(paths(tomllib.loads(text)))
    assert found[("b.c",)] == 2
    assert found[("d", "e")] == 3
    assert found[("sheets", 0)] == 6
    assert found[("sheets", 0, "rows", 0, "set", "lam")] == 9
    assert found[("sheets", 0, "rows", 1, "label")] == 9
    assert found[("sheets", 0, "rows", 2)] == 10
    assert found[("sheets", 0, "sweep", "set", "lam", 2)] == 16
    assert found[("sheets", 1)] == 17
    assert found[("sheets", 1, "rows", 1, "z", 1, 0)] == 22


def test_what_is_missing_is_placed_at_what_surrounds_it():
    found = lines("a = 1\n[b]\nc = 2\n")
    assert nearest(found, ("b", "d", 3)) == 2
    assert nearest(found, ("e",)) == 1


KEYS = st.sampled_from(["a", "bc", "d-1", '"e.f"', "'g h'", '"\\u00e9"'])
PLAIN = st.sampled_from(
    ["1", "-2.5", "true", '"x"', "'#]}'", '"\\"],"', "1979-05-27T07:32:00Z", '"""a\n[b]\n"""', "'''\n'''"]
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda parts: "[" + ",\n  # note\n".join(parts) + "]"),
        st.dictionaries(KEYS, PLAIN.filter(lambda text: "\n" not in text), max_size=3).map(
            lambda table: "{ " + ", ".join(f"{key} = {value}" for key, value in table.items()) + " }"
        ),
    ),
    max_leaves=6,
)
PAIRS = st.dictionaries(KEYS, VALUES, max_size=4).map(
    lambda table: "".join(f"{key} = {value} # {key}\n" for key, value in table.items())
)


@pytest.mark.slow
@given(st.lists(PAIRS, min_size=1, max_size=4), st.lists(PAIRS, max_size=3))
def test_texts_of_any_shape_are_walked_as_tomllib_reads_them(sheets, rows):
    text = sheets[0] + "".join(f"\n[[sheets]]\n{pairs}" for pairs in sheets[1:])
    if len(sheets) > 1:
        text += "".join(f"[[sheets.rows]]\n{pairs}" for pairs in rows)
    found = lines(text)
    assert set(found) == set(paths(tomllib.loads(text)))
    for path, line in found.items():
        key = path[-1]
        if isinstance(key, str) and key.isalnum() and key.isascii():
            assert key in text.splitlines()[line - 1]
