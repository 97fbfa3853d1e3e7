"""docs/security.md shows the table of limits as it is in the code."""

from pathlib import Path

from sinkshot.foreign import limits

PAGE = Path(__file__).parents[2] / "docs" / "security.md"


def test_the_page_has_the_table_of_the_code():
    assert limits.markdown() in PAGE.read_text(encoding="utf-8")
    assert {"MEMORY", "DEPTH", "PIXELS", "STEPS", "NETWORK_SECONDS"} <= limits.table().keys()
