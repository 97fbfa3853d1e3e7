"""Limits on the length of files, functions and copies, unless a comment gives a reason; and one meaning a name.

A longer file has a line `# long: why`, and so has a longer function, on the line of its `def`. ruff holds complexity.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import sinkshot

ROOT = Path(__file__).parents[1]
SOURCES = sorted(Path(sinkshot.__file__).parent.rglob("*.py"))
SCRIPTS = sorted(file for name in ("benchmarks", "tools") for file in (ROOT / name).glob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LINES_OF_A_FILE, LINES_OF_A_FUNCTION, LINES_OF_A_COPY = 400, 60, 8
REASON = "# long: "


def too_long(text: str) -> list[str]:
    """What is too long in a file without a reason; the docstring of a function does not count."""
    lines = text.splitlines()
    found = []
    if len(lines) > LINES_OF_A_FILE and not any(line.startswith(REASON) for line in lines):
        found.append(f"the file has {len(lines)} lines")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and REASON not in lines[node.lineno - 1]:
            documented = ast.get_docstring(node, clean=False) is not None
            first = node.body[0]
            length = (node.end_lineno or 0) - node.lineno + 1
            length -= (first.end_lineno or 0) - first.lineno + 1 if documented else 0
            if length > LINES_OF_A_FUNCTION:
                found.append(f"{node.name} has {length} lines")
    return found


def test_files_and_functions_are_short_or_say_why_not():
    found = {str(file): long for file in SOURCES if (long := too_long(file.read_text(encoding="utf-8")))}
    assert not found


def test_files_of_tests_are_short_too():
    lengths = {str(file): len(file.read_text(encoding="utf-8").splitlines()) for file in TESTS}
    assert not {file: length for file, length in lengths.items() if length > LINES_OF_A_FILE}


def test_a_long_function_and_a_long_file_are_found_unless_they_have_a_reason():
    body = "".join(f"    x = {i}\n" for i in range(61))
    assert too_long("def f():\n" + body) == ["f has 62 lines"]
    assert not too_long("def f():  # long: a table\n" + body)
    assert too_long("x = 0\n" * 401) == ["the file has 401 lines"]
    assert not too_long("# long: a table\n" + "x = 0\n" * 401)


def classes_with_one_name(texts: dict[str, str]) -> dict[str, list[str]]:
    """The public classes of several modules that share a name, and where they are."""
    places: dict[str, list[str]] = {}
    for module, text in texts.items():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(module)
    return {name: modules for name, modules in places.items() if len(modules) > 1}


def test_a_public_class_has_a_name_of_its_own():
    assert not classes_with_one_name({str(file): file.read_text(encoding="utf-8") for file in SOURCES})


def test_two_classes_with_one_name_are_found():
    modules = {"a": "class Row: ...\nclass _Own: ...", "b": "class Row: ...\nclass _Own: ...", "c": "class Column: ..."}
    assert classes_with_one_name(modules) == {"Row": ["a", "b"]}


def test_nothing_is_written_twice():
    similar = pytest.importorskip("pylint.checkers.symilar").Symilar(
        min_lines=LINES_OF_A_COPY, ignore_comments=True, ignore_docstrings=True
    )
    for file in (*SOURCES, *SCRIPTS):
        with file.open(encoding="utf-8") as stream:
            similar.append_stream(str(file), stream)
    copies = [
        f"{lines} lines in {', '.join(str(place) for place in places)}" for lines, places in similar._compute_sims()
    ]
    assert not copies
