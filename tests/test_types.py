"""What a type checker sees of the package's public names."""

from __future__ import annotations

from pathlib import Path

import pytest

import sinkshot

PROGRAM = """
import sinkshot

reveal_type(sinkshot.BMSClassifier())
reveal_type(sinkshot.FewShotClassifier())
reveal_type(sinkshot.NearestClassMean())
sinkshot.tune(1)
sinkshot.BMSClassifier(no_such_argument=1)
sinkshot.no_such_name
"""


@pytest.mark.long  # test_api_reference.py has mypy look at every name of the front door
def test_mypy_knows_the_names_that_are_imported_on_first_use(tmp_path, monkeypatch):
    api = pytest.importorskip("mypy.api")
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    monkeypatch.setenv("MYPYPATH", str(Path(sinkshot.__file__).parents[1]))
    skipped = ["--ignore-missing-imports", "--follow-imports=silent"]
    printed, errors, _ = api.run(["--config-file=", f"--cache-dir={tmp_path}", *skipped, str(file)])
    assert not errors
    for name in ("BMSClassifier", "FewShotClassifier", "NearestClassMean"):
        assert f'.{name}"' in printed, printed
    assert 'to "tune" has incompatible type "int"' in printed
    assert '"no_such_argument" for "BMSClassifier"' in printed
    assert 'Module has no attribute "no_such_name"' in printed


def test_every_public_name_exists():
    assert all(hasattr(sinkshot, name) for name in sinkshot.__all__)
    assert set(sinkshot._LATER) <= set(sinkshot.__all__)
