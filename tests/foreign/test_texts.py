"""TOML, JSON and messages: input that is too deep, too long or unprintable gets a sentence."""

import os
import pickle
import time

import pytest

from sinkshot.backbones import recipes
from sinkshot.errors import InputError, is_printable, number, printable, whole
from sinkshot.foreign import files, limits, texts
from sinkshot.studies.toml_schema import Document

HOSTILE = {
    "arrays in arrays": ("x = " + "[" * 5_000 + "]" * 5_000, "more than 64 levels"),
    "tables in tables": ("x = " + "{a = " * 5_000 + "1" + "}" * 5_000, "more than 64 levels"),
    "a key of many parts": (".".join("a" * 5_000) + " = 1", "more than 64 levels"),
    "a header of many parts": ("[" + ".".join("a" * 5_000) + "]", "more than 64 levels"),
    "a key of quoted parts": (".".join(['"a"'] * 5_000) + " = 1", "more than 64 levels"),
    "a number of 5,000 digits": ("x = " + "9" * 5_000, "number or date"),
    "a number of 5,000 hexadecimal digits": ("x = 0x" + "f" * 5_000, "more than 64 bits"),
    "a control character in a text": ('x = "\\u001b[31m"', "control characters"),
    "a control character in a key": ('"\\u001b" = 1', "control characters"),
    "more than a megabyte": ("#" * (limits.TOML.value + 1), "more than"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_toml_is_refused_at_once_by_every_reader_of_toml(tmp_path, case):
    written, message = HOSTILE[case]
    file = tmp_path / "x.toml"
    file.write_text(written)
    for read in (Document, recipes.read):
        began = time.process_time()
        with pytest.raises(InputError, match=rf"x\.toml.*{message}"):
            read(file if read is Document else str(file))
        assert time.process_time() - began < 5


def test_brackets_in_strings_and_comments_are_not_counted():
    written = 'x = "' + "[" * 200 + "\"\ny = '''\n" + "[" * 200 + "'''\n# " + "[" * 200 + "\nz = [[[1.5, 2.5]]]"
    assert texts.toml(written)["z"] == [[[1.5, 2.5]]]


@pytest.mark.slow
def test_the_lines_of_a_long_file_are_found_in_linear_time(tmp_path):
    file = tmp_path / "long.toml"
    file.write_text("x = [\n" + "1,\n" * 200_000 + "]\n")
    began = time.process_time()
    assert Document(file).lines[("x", 199_999)] == 200_001
    assert time.process_time() - began < 20


@pytest.mark.parametrize("written", ["[" * 100_000, "[1]", "1" * 5_000, "{", '{"a": NaN', "\ud800", "null"])
def test_json_that_is_no_object_is_refused(written):
    with pytest.raises(InputError, match="JSON"):
        texts.json_object(written)


def test_pipes_devices_and_folders_are_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "null.toml").symlink_to("/dev/null")
    (tmp_path / "folder.toml").mkdir()
    for name, message in (("pipe", "not a regular file"), ("null", "not a regular file"), ("folder", "is a folder")):
        with pytest.raises(InputError, match=message):
            files.opened(tmp_path / f"{name}.toml")
        with pytest.raises(InputError, match=message):
            Document(tmp_path / f"{name}.toml")
    with pytest.raises(InputError, match="null"):
        files.opened("a\0b")


def test_messages_have_no_control_characters_whatever_the_names_in_them():
    name = "a\x1b[2J\r\n\x00\x9b\u202e\u2066\udcff.png"
    error = InputError(f"{name} is bad", "first", f"second {name}")
    assert str(error).split("\n") == [
        r"a\x1b[2J\r\n\x00\x9b\u202e\u2066\udcff.png is bad",
        "  first",
        r"  second a\x1b[2J\r\n\x00\x9b\u202e\u2066\udcff.png",
    ]
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert len(str(InputError("x" * 10**6))) < 5_000


@pytest.mark.parametrize(
    "text", ["Zoë, 日本語, a b", "a\u00a0b\u3000c", "\u0645\u06cc\u200c\u062e", "\U0001f469\u200d\U0001f52c"]
)
def test_letters_and_spaces_of_any_script_are_shown_as_they_are(text):
    assert printable(text) == text
    assert is_printable(text)


@pytest.mark.parametrize(
    "character",
    "\0\t\n\x1b\x7f\x85\x9b\xad\u061c\u200b\u200e\u2028\u2029\u202e\u2066\ud800\ue000\ufeff\uffff\U000e0041",
)
def test_characters_that_change_what_a_terminal_shows_are_escaped(character):
    assert printable(f"a{character}b") == f"a{character!r}b".replace("'", "")
    assert not is_printable(f"a{character}b")
    assert is_printable(printable(f"a{character}b"))


def test_numbers_of_thousands_of_digits_are_refused_in_a_sentence():
    for check in (number, whole):
        with pytest.raises(InputError, match="must be a"):
            check("epochs", -(1 << 20_000), 0)
    with pytest.raises(InputError, match="must be a number"):
        number("epochs", 1 << 20_000)


def test_memory_that_a_file_may_ask_for(monkeypatch):
    monkeypatch.delenv(limits.VARIABLE, raising=False)
    limits.admit(limits.MEMORY.value, 1, "it")
    limits.admit(20 << 30, 1 << 30, "it")
    with pytest.raises(InputError, match=r"it would take 3\.2 GB of memory.*--max-memory"):
        limits.admit(3 << 30, 3 << 20, "it")
    monkeypatch.setenv(limits.VARIABLE, "4G")
    limits.admit(3 << 30, 3 << 20, "it")
    with pytest.raises(InputError, match=r"more than the 4\.3 GB"):
        limits.admit(5 << 30, 5 << 30, "it")
    monkeypatch.setenv(limits.VARIABLE, "lots")
    with pytest.raises(InputError, match="8G or 500M"):
        limits.admit(1, 1, "it")
