"""Tables that are small on the disk and large in memory are refused; what looks odd and is honest is read."""

from __future__ import annotations

import pytest

from sinkshot.errors import InputError
from sinkshot.label import inputs
from sinkshot.label.run import label


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("keys.jsonl", "".join(f'{{"k{i}": 1}}\n' for i in range(3_000)), r"3,000 rows and 3,000 columns would take"),
        ("rows.jsonl", "{}\n" * 1_500_000, r"1,500,000 rows would take 300\.0 MB"),
        ("rows.txt", "\n" * 1_500_000, r"1,500,000 rows would take 300\.0 MB"),
        ("rows.csv", "x,label\r" + "1,\r" * 1_500_000, r"1,500,001 rows would take 300\.0 MB"),
        ("wide.csv", ",".join(map(str, range(100_001))), r"has 100,001 columns"),
        ("wide.jsonl", "{" + ",".join(f'"{i}":1' for i in range(100_001)) + "}", r"has 100,001 columns"),
        ("deep.jsonl", '{"a":' + "[" * 500 + "]" * 500 + "}", r"deep\.jsonl, line 1 has more than 64 levels"),
        ("digits.jsonl", '{"a":' + "9" * 5_000 + "}", r"digits\.jsonl, line 1 is damaged: it is not valid JSON"),
    ],
)
def test_a_small_file_cannot_become_a_large_table(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        inputs.read(tmp_path / name)


def test_more_classes_than_memory_holds_are_refused_before_anything_is_fitted(tmp_path):
    rows = "".join(f"{i},{i % 7},c{i}\n" for i in range(20_000))
    (tmp_path / "x.csv").write_text("x,y,label\n" + rows)
    with pytest.raises(InputError, match=r"20,000 items in 20,000 classes would take 9\.6 GB"):
        label(tmp_path / "x.csv")


def test_only_line_ends_end_a_line(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"id": "a\u2028b\x85", "x": 1}\r\n\r\n{"id": "c", "x": 2}', encoding="utf-8")
    assert inputs.read(tmp_path / "x.jsonl").names == ("a\u2028b\x85", "c")
    (tmp_path / "x.txt").write_bytes(b"a\x0cb\r\n\nc\rd")
    found = inputs.read(tmp_path / "x.txt")
    assert found.texts == ("a\x0cb", "c", "d")
    assert found.names == ("1", "3", "4")
