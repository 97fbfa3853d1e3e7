"""A pickle that would run code is refused by name, and nothing of it runs."""

import codecs
import collections
import os
import pickle
import struct
import subprocess

import numpy as np
import pytest

from sinkshot.bank import load
from sinkshot.errors import InputError


def write(folder, content, protocol):
    (folder / "output.plk").write_bytes(content if isinstance(content, bytes) else pickle.dumps(content, protocol))
    return folder / "output.plk"


def objects(*items):
    array = np.empty(len(items), object)
    array[:] = items
    return array


class Calls:
    """Pickles into the call of a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def make_file(name):
    with open(name, "w") as file:
        file.write("it ran")


def array_trap(mark):
    file = f"{mark}-trap.npy"
    np.save(file, objects(Calls(make_file, mark)), allow_pickle=True)
    return file


def method_of_an_array(mark):
    array = pickle.dumps(np.ones(2), 4)[11:-1]  # without protocol, frame and stop
    name = os.fsencode(mark)
    called = b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93" + array
    return called + b"X" + struct.pack("<I", len(name)) + name + b"\x86R."


ROWS = [np.ones(2, np.float32)]
HOSTILE = {  # what it is: the name it is refused by, and what is pickled, given the file it would make
    "a command": ("os.system", lambda mark: b"cos\nsystem\n(S'touch %s'\ntR." % os.fsencode(mark)),
    "a command, by INST": ("os.system", lambda mark: b"(S'touch %s'\nios\nsystem\n." % os.fsencode(mark)),
    "a command after rows": ("posix.system", lambda mark: {0: ROWS, 1: Calls(os.system, f"touch {mark}")}),
    "a process": ("subprocess.call", lambda mark: Calls(subprocess.call, ["touch", mark])),
    "eval": ("builtins.eval", lambda mark: {0: [Calls(eval, f"open({mark!r}, 'w').close()")]}),
    "exec": ("builtins.exec", lambda mark: Calls(exec, f"open({mark!r}, 'w').close()")),
    "open, deep in a list": ("io.open", lambda mark: [0, [1, {"a": ROWS, "b": [*ROWS, Calls(open, mark, "w")]}]]),
    "a function of one's own": (f"{__name__}.make_file", lambda mark: {0: [*ROWS, Calls(make_file, mark)]}),
    "in an array of objects": (f"{__name__}.make_file", lambda mark: {0: objects(*ROWS, Calls(make_file, mark))}),
    "as a class": (f"{__name__}.make_file", lambda mark: {0: ROWS, Calls(make_file, mark): ROWS}),
    "as a default": (f"{__name__}.make_file", lambda mark: Calls(collections.defaultdict, Calls(make_file, mark))),
    "a memory map": ("numpy.memmap", lambda mark: {0: Calls(np.memmap, mark, "u1", "w+", 0, (8,))}),
    "an array file that is a trap": ("numpy.load", lambda mark: {0: Calls(np.load, array_trap(mark), None, True)}),
    "a method of an array": ("numpy.ndarray.tofile", method_of_an_array),
    "a method looked up": ("builtins.getattr", lambda mark: {0: Calls(np.ndarray.tofile, np.ones(2), mark)}),
}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_hostile_pickle_is_refused_by_name_and_nothing_of_it_runs(tmp_path, case):
    name, make = HOSTILE[case]
    mark = tmp_path / "it-ran"
    file = write(tmp_path, make(str(mark)), 4)
    pickle.loads(file.read_bytes())
    assert mark.exists(), "it is harmless, so refusing it shows nothing"
    mark.unlink()
    with pytest.raises(InputError, match=rf"output\.plk: it asks for {name}, which is refused"):
        load(file)
    assert not mark.exists()


class Builds(Calls):
    """Pickles into the call of a function and a state for what it gives."""

    def __init__(self, function, arguments, state):
        self.call = function, arguments, state


def array_with(shape, dtype, data):
    return {0: Builds(np.empty(0).__reduce__()[0], (np.ndarray, (0,), b"b"), (1, shape, dtype, False, data))}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"c_codecs\nencode\n(N(dS'_function'\nI1\nstb.", "change a function that it may only call"),
        (b"cnumpy\ndtype\n(dS'a'\nI1\nsb.", "change a function that it may only call"),
        (b"c__builtin__\nlist\n(tR.", "calls the default factory of a dict"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n.", r"torch\._utils\._rebuild_tensor_v2, which is refused"),
        (b"Pstorage\n.", "outside of itself"),
        (b"Vstorage\nQ.", "outside of itself"),
        (b"\x82\x01.", "ValueError"),
        (Calls(codecs.encode, "x", "rot13"), "encodes text as 'rot13'"),
        (array_with((10**9,), np.dtype("f4"), b"abcd"), "data have a different size"),
        (array_with(([0], 10**9), np.dtype("f4"), b"abcd"), "without dtype or shape"),
        (array_with((-1, -1), np.dtype("f4"), b"abcd"), "without dtype or shape"),
        (array_with((1,), "f4", b"abcd"), "without dtype or shape"),
        (array_with((2, 1), np.dtype("O"), [1, 2]), "an array of objects"),
        (array_with((1,), np.dtype("O"), b"01234567"), "an array of objects"),
        (
            {0: Builds(np.dtype, ("f8",), (3, "|", None, ("a",), {"a": (np.dtype("O"), 0)}, 8, 1, 0))},
            "fields or sub-arrays",
        ),
        ({0: Builds(np.dtype, (["f8"],), (3, "|", None, None, None, 8, 1, 0))}, "an array of"),
    ],
)
def test_a_forged_pickle_gets_no_further_than_its_forgery(tmp_path, content, message):
    with pytest.raises(InputError, match=rf"output\.plk.*{message}"):
        load(write(tmp_path, content, 4))
    assert load(write(tmp_path, {0: ROWS}, 2)).features.tolist() == [[1, 1]]


def test_buffers_kept_outside_of_the_pickle_are_missed(tmp_path):
    content = pickle.dumps({0: ROWS}, 5, buffer_callback=lambda buffer: None)
    with pytest.raises(InputError, match="UnpicklingError"):
        load(write(tmp_path, content, 5))
