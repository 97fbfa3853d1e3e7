"""A safe reader of pickles: it follows their instructions, but can only make plain containers.

A pickle is a program for a small stack machine. This is such a machine without the dangerous parts: a name must stand
for a function that the caller provides, otherwise the pickle is refused without looking the name up; keys of dicts are
strings and numbers, so nothing deep is ever hashed; lengths are checked against the remaining bytes; and memory is
counted as it is allocated.
"""

from __future__ import annotations

import codecs
import pickle
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from sinkshot.errors import InputError
from sinkshot.foreign.limits import DEPTH, INTEGER_IN_PICKLE, STEPS, admit

Functions = Mapping[tuple[str, str], "Lent"]
_CONTAINER, _VALUE, _MEMO = 120, 60, 100  # approximate bytes per object
_EVERY = 1 << 12  # instructions between checks of the memory


class NameRefused(InputError):
    """A pickle names something that it may not use."""


class Lent:
    """A function that a pickle may call, and may do nothing else with."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        """Call it."""
        return self._function(*arguments)

    def __setstate__(self, state: Any) -> NoReturn:
        raise InputError("it tries to change a function that it may only call, which is refused.")


class Stateful:
    """Base class of results of such functions whose state a pickle may set afterwards."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        raise NotImplementedError  # each has its own


def loads(
    data: bytes, lent: Functions, persistent: Callable[[Any], Any] | None = None, start: int = 0
) -> tuple[Any, int]:
    """Return the content of the pickle at `start`, and its end. Python 2 strings are read as Latin-1."""
    machine = _Machine(data, lent, persistent, start)
    try:
        return machine.run(), machine.at
    except (IndexError, struct.error) as error:
        raise pickle.UnpicklingError("the pickle is truncated, or its instructions make no sense") from error


def checked(value: Any, inside: Callable[[Any], Any] = lambda value: value) -> Any:
    """Return a copy of nested containers, each visited once, as dicts and lists; `inside` translates every value.

    Containers nested deeper than the limit are refused, so the copy can be traversed recursively.
    """
    return _copied(value, inside, {}, 0)


def kind(value: Any) -> str:
    """Return a short name for a value of a pickle in messages; never its content, which may be very long."""
    return repr(value)[:60] if isinstance(value, str | bytes | int | float | None) else f"a {type(value).__name__}"


def _copied(value: Any, inside: Callable[[Any], Any], done: dict[int, Any], depth: int) -> Any:
    value = inside(value)
    if not isinstance(value, dict | list | tuple):
        return value
    if id(value) in done:
        return done[id(value)][1]
    if depth >= DEPTH.value:
        raise InputError(f"it has more than {DEPTH.value} levels of containers within each other.")
    copy: Any = {} if isinstance(value, dict) else []
    done[id(value)] = value, copy  # keep the value too: its id is unique only while it exists
    if isinstance(value, dict):
        copy.update((key, _copied(entry, inside, done, depth + 1)) for key, entry in value.items())
    else:
        copy.extend(_copied(entry, inside, done, depth + 1) for entry in value)
    return copy


class _Machine:
    def __init__(self, data: bytes, lent: Functions, persistent: Callable[[Any], Any] | None, start: int) -> None:
        self.data, self.lent, self.persistent, self.at = data, lent, persistent, start
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []  # stacks under the marks
        self.memo: dict[int, Any] = {}
        self.taken = 0  # bytes of memory

    def run(self) -> Any:
        table, data, steps = _TABLE, self.data, 0
        while True:
            code = data[self.at]
            self.at += 1
            if code == 0x2E:  # STOP
                return self.stack.pop()
            step = table[code]
            if step is None:
                raise ValueError(f"the instruction {bytes([code])!r} is not expected in a pickle of data")
            step(self)
            steps += 1
            if steps % _EVERY == 0:
                admit(self.taken, len(data), "what it holds")
                if steps > STEPS.value:
                    raise InputError(f"it has more than {STEPS.value:,} instructions; save arrays, not lists.")

    # --- bytes of the pickle --------------------------------------------------------------------------------------

    def take(self, count: int) -> bytes:
        if not 0 <= count <= len(self.data) - self.at:
            raise InputError(f"it declares {count:,} bytes, but {len(self.data) - self.at:,} are left; it is damaged.")
        self.at += count
        self.taken += _VALUE + count
        return self.data[self.at - count : self.at]

    def number(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def line(self) -> bytes:
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise IndexError("no end of line")
        found = self.take(end - self.at)
        self.at += 1
        return found

    def push(self, value: Any, cost: int = _VALUE) -> None:
        self.stack.append(value)
        self.taken += cost

    # --- what instructions do -------------------------------------------------------------------------------------

    def mark(self) -> None:
        self.below.append(self.stack)
        self.stack = []
        self.taken += _CONTAINER

    def marked(self) -> list[Any]:
        items, self.stack = self.stack, self.below.pop()
        return items

    def tuple_of(self, count: int) -> None:
        if len(self.stack) < count:
            raise IndexError("nothing on the stack")
        items = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        self.push(items, _CONTAINER)

    def append(self, items: list[Any]) -> None:
        if not isinstance(target := self.stack[-1], list):
            raise InputError(f"it appends to {kind(target)}, where a list is expected.")
        target.extend(items)
        self.taken += 8 * len(items)

    def set_items(self, items: list[Any]) -> None:
        if not isinstance(target := self.stack[-1], dict) or len(items) % 2:
            raise InputError(f"it puts keys into {kind(target)}, where a dict is expected.")
        fill(target, zip(items[::2], items[1::2], strict=True))
        self.taken += _MEMO * (len(items) // 2)

    def make_dict(self) -> None:
        items = self.marked()
        self.push({}, _CONTAINER)
        self.set_items(items)

    def remember(self, place: int) -> None:
        self.memo[place] = self.stack[-1]
        self.taken += _MEMO

    def recall(self, place: int) -> None:
        if place not in self.memo:
            raise pickle.UnpicklingError(f"it refers to object {place}, which it has not made")
        self.push(self.memo[place], 8)

    def find(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise pickle.UnpicklingError("a name is not text")
        module = "builtins" if module == "__builtin__" else module
        lent = self.lent.get((module.replace("numpy._core.", "numpy.core."), name))
        if lent is None:
            raise NameRefused(
                f"it asks for {module:.200}.{name:.200}, which is refused: a pickle may hold arrays, numbers, strings, "
                "lists and dicts. Nothing of it was run. If you trust it, load it yourself and save its features as "
                ".npz."
            )
        self.push(lent)

    def call(self, function: Any, arguments: Any) -> None:
        if not isinstance(function, Lent) or not isinstance(arguments, tuple):
            raise InputError(f"it calls {kind(function)}, which is refused.")
        self.push(function(*arguments), _CONTAINER)

    def build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, Lent | Stateful):
            target.__setstate__(state)
        elif not isinstance(target, dict):  # attributes of an OrderedDict are left out
            raise InputError(f"it gives a state to {kind(target)}, which is refused.")

    def refer(self, pid: Any) -> None:
        if self.persistent is None:
            raise InputError(f"it refers to an object outside of itself ({kind(pid)}), which is refused.")
        self.push(self.persistent(pid))

    def integer(self, text: bytes) -> None:
        if len(text) > 50:
            raise InputError(f"it has an integer of {len(text):,} digits, more than {INTEGER_IN_PICKLE.value} bits.")
        self.push(text == b"01" if text in (b"00", b"01") else int(text.removesuffix(b"L"), 0))

    def long(self, count: int) -> None:
        if count > INTEGER_IN_PICKLE.value // 8:
            raise InputError(f"it has an integer of {count:,} bytes, more than {INTEGER_IN_PICKLE.value} bits.")
        self.push(int.from_bytes(self.take(count), "little", signed=True))

    def string(self) -> None:
        text = self.line().strip()
        if len(text) < 2 or text[:1] not in (b"'", b'"') or text[:1] != text[-1:]:
            raise pickle.UnpicklingError("a string has no quotes")
        self.push(codecs.escape_decode(text[1:-1])[0].decode("latin1"))

    def byte_array(self) -> None:
        self.push(bytearray(self.take(self.number("<Q"))))

    def instance(self) -> None:
        module, name = self.line().decode(), self.line().decode()
        arguments = tuple(self.marked())
        self.find(module, name)
        self.call(self.stack.pop(), arguments)

    def make_object(self) -> None:
        function, *arguments = self.marked()
        self.call(function, tuple(arguments))

    def no_buffers(self) -> NoReturn:
        raise pickle.UnpicklingError("the data of its arrays were kept outside of the pickle")


def fill(target: dict[Any, Any], pairs: Iterable[Any]) -> None:
    """Put pairs into a dict whose keys must be strings and numbers."""
    for key, value in pairs:
        if not isinstance(key, str | bytes | int | float | None):
            raise InputError(f"it has a dict with {kind(key)} as a key; strings and numbers are expected.")
        target[key] = value


def _utf8(text: bytes) -> str:
    return text.decode("utf-8", "surrogatepass")


def _steps() -> list[Callable[[_Machine], Any] | None]:  # long: a table, one entry for each opcode
    def pop(m: _Machine) -> Any:
        return m.stack.pop()

    steps: dict[bytes, Callable[[_Machine], Any]] = {
        b"\x80": lambda m: m.number("<B"),  # PROTO
        b"\x95": lambda m: m.number("<Q"),  # FRAME
        b"(": _Machine.mark,
        b"0": lambda m: m.stack.pop() if m.stack else m.marked(),
        b"1": _Machine.marked,
        b"2": lambda m: m.push(m.stack[-1], 8),
        b"N": lambda m: m.push(None, 8),
        b"\x88": lambda m: m.push(True, 8),
        b"\x89": lambda m: m.push(False, 8),
        b"F": lambda m: m.push(float(m.line())),
        b"G": lambda m: m.push(m.number(">d")),
        b"I": lambda m: m.integer(m.line()),
        b"L": lambda m: m.integer(m.line()),
        b"J": lambda m: m.push(m.number("<i")),
        b"K": lambda m: m.push(m.number("<B"), 8),
        b"M": lambda m: m.push(m.number("<H")),
        b"\x8a": lambda m: m.long(m.number("<B")),
        b"\x8b": lambda m: m.long(m.number("<I")),
        b"S": _Machine.string,
        b"T": lambda m: m.push(m.take(m.number("<I")).decode("latin1")),
        b"U": lambda m: m.push(m.take(m.number("<B")).decode("latin1")),
        b"V": lambda m: m.push(m.line().decode("raw-unicode-escape")),
        b"X": lambda m: m.push(_utf8(m.take(m.number("<I")))),
        b"\x8c": lambda m: m.push(_utf8(m.take(m.number("<B")))),
        b"\x8d": lambda m: m.push(_utf8(m.take(m.number("<Q")))),
        b"B": lambda m: m.push(m.take(m.number("<I"))),
        b"C": lambda m: m.push(m.take(m.number("<B"))),
        b"\x8e": lambda m: m.push(m.take(m.number("<Q"))),
        b"\x96": _Machine.byte_array,
        b"]": lambda m: m.push([], _CONTAINER),
        b"l": lambda m: m.push(m.marked(), _CONTAINER),
        b"a": lambda m: m.append([m.stack.pop()]),
        b"e": lambda m: m.append(m.marked()),
        b"}": lambda m: m.push({}, _CONTAINER),
        b"d": _Machine.make_dict,
        b"s": lambda m: m.set_items([pop(m), pop(m)][::-1]),
        b"u": lambda m: m.set_items(m.marked()),
        b")": lambda m: m.push((), 8),
        b"t": lambda m: m.push(tuple(m.marked()), _CONTAINER),
        b"\x85": lambda m: m.tuple_of(1),
        b"\x86": lambda m: m.tuple_of(2),
        b"\x87": lambda m: m.tuple_of(3),
        b"p": lambda m: m.remember(int(m.line()[:20])),
        b"q": lambda m: m.remember(m.number("<B")),
        b"r": lambda m: m.remember(m.number("<I")),
        b"\x94": lambda m: m.remember(len(m.memo)),
        b"g": lambda m: m.recall(int(m.line()[:20])),
        b"h": lambda m: m.recall(m.number("<B")),
        b"j": lambda m: m.recall(m.number("<I")),
        b"c": lambda m: m.find(m.line().decode(), m.line().decode()),
        b"\x93": lambda m: m.find(*[pop(m), pop(m)][::-1]),
        b"R": lambda m: m.call(*[pop(m), pop(m)][::-1]),
        b"\x81": lambda m: m.call(*[pop(m), pop(m)][::-1]),  # NEWOBJ
        b"i": _Machine.instance,
        b"o": _Machine.make_object,
        b"b": _Machine.build,
        b"P": lambda m: m.refer(m.line().decode()),
        b"Q": lambda m: m.refer(m.stack.pop()),
        b"\x97": _Machine.no_buffers,
        b"\x98": _Machine.no_buffers,
    }
    return [steps.get(bytes([code])) for code in range(256)]


_TABLE = _steps()
