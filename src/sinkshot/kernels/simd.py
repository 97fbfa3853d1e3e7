"""Eight floats in one vector register, as a numba type: each operation in the source is one instruction.

The compiler vectorises a Gram matrix by itself, but not Sinkhorn and logistic regression. Functions marked `@part` are
parts of compiled engines, called only by compiled code.
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir

from sinkshot.kernels import numba_environment  # noqa: F401  before Numba reads it

# isort: split
from numba import njit, types
from numba.core import cgutils
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model
from numpy.typing import NDArray

from sinkshot.settings.constants import LEAST_LOGIT

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Lanes = Any  # eight float32 values in one vector register: exists in compiled code only

WIDTH = 8
_VECTOR = ir.VectorType(ir.FloatType(), WIDTH)
_WORD = ir.IntType(32)
_ROOT_HALF = 0x3F3504F3  # the bits of the root of one half


class _LanesType(types.Type):  # type: ignore[misc]
    """The numba type of eight float32 lanes."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


@register_model(_LanesType)
class _LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    """Held as one LLVM vector."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


_lanes = _LanesType()


def _indices(*values: int) -> Any:
    return ir.Constant(ir.VectorType(_WORD, len(values)), values)


def _spread(builder: Any, value: Any) -> Any:
    """Copy a scalar to every lane; a vector stays as it is."""
    if value.type == _VECTOR:
        return value
    empty = ir.Constant(_VECTOR, ir.Undefined)
    return builder.shuffle_vector(builder.insert_element(empty, value, _WORD(0)), empty, _indices(*[0] * WIDTH))


def _arithmetic(operation: Callable[..., Any], instruction: str) -> None:
    """Define one operator on lanes for numba; a float32 operand is broadcast, and products may fuse with sums."""
    kinds = [(_lanes, _lanes), (_lanes, types.float32), (types.float32, _lanes)]
    infer_global(operation)(type("_Operator", (ConcreteTemplate,), {"cases": [signature(_lanes, *k) for k in kinds]}))

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        a, b = (_spread(builder, x) for x in args)
        return getattr(builder, instruction)(a, b, flags=("contract",))

    for kind in kinds:
        lower_builtin(operation, *kind)(emit)


_arithmetic(operator.add, "fadd")
_arithmetic(operator.iadd, "fadd")
_arithmetic(operator.sub, "fsub")
_arithmetic(operator.mul, "fmul")
_arithmetic(operator.truediv, "fdiv")


def _operation(result: Any, arguments: int) -> Callable[[Callable[..., Any]], Any]:
    """Make an operation for compiled code from a function that emits its instructions."""

    def define(emit: Callable[..., Any]) -> Any:
        typed: tuple[Callable[..., Any], ...] = (
            lambda _: (result(), emit),
            lambda _, a: (result(a), emit),
            lambda _, a, b: (result(a, b), emit),
            lambda _, a, b, c: (result(a, b, c), emit),
            lambda _, a, b, c, d: (result(a, b, c, d), emit),
        )
        return intrinsic(typed[arguments])

    return define


def _address(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """The address of array[row, column] in a C-contiguous array: no bounds check, no negative indexes."""
    array = context.make_array(sig.args[0])(context, builder, args[0])
    row, column = (context.cast(builder, args[k], sig.args[k], types.intp) for k in (1, 2))
    width = cgutils.unpack_tuple(builder, array.shape, 2)[1]
    return builder.gep(array.data, [builder.add(builder.mul(row, width), column)])


@_operation(_lanes, 3)
def load(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """load(array, row, column): eight columns of a row."""
    return builder.load(builder.bitcast(_address(context, builder, sig, args), _VECTOR.as_pointer()), align=4)


@_operation(_lanes, 3)
def each(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """each(array, row, column): one element in every lane."""
    return _spread(builder, builder.load(_address(context, builder, sig, args)))


@_operation(types.void, 4)
def store(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """store(array, row, column, value): write eight columns of a row."""
    pointer = builder.bitcast(_address(context, builder, sig, args), _VECTOR.as_pointer())
    builder.store(_spread(builder, args[3]), pointer, align=4)
    return context.get_dummy_value()


@_operation(types.void, 3)
def prefetch(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """prefetch(array, row, column): prefetch a cache line that will be read soon."""
    pointer = builder.bitcast(_address(context, builder, sig, args), ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [pointer.type, _WORD, _WORD, _WORD])
    fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(fetch, [pointer, _WORD(0), _WORD(2), _WORD(1)])  # to read, into the second cache, data
    return context.get_dummy_value()


@_operation(_lanes, 0)
def zeros(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """zeros(): eight zeros."""
    return ir.Constant(_VECTOR, [0.0] * WIDTH)


@_operation(types.float32, 1)
def total(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """total(lanes): their sum, the upper half always added to the lower."""
    (rest,) = args
    for half in (4, 2, 1):
        low, high = (builder.shuffle_vector(rest, rest, _indices(*range(k, k + half))) for k in (0, half))
        rest = builder.fadd(low, high)
    return builder.extract_element(rest, _WORD(0))


@_operation(_lanes, 1)
def root(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """root(lanes): their square roots."""
    kind = ir.FunctionType(_VECTOR, [_VECTOR])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.sqrt.v8f32"), args)


@_operation(_lanes, 4)
def where_larger(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """where_larger(a, b, yes, no): lane by lane, yes where a > b, else no."""
    a, b, yes, no = (_spread(builder, x) for x in args)
    return builder.select(builder.fcmp_ordered(">", a, b), yes, no)


@_operation(_lanes, 1)
def _exponent(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """_exponent(lanes): 2^n where the lowest bits of each lane hold n + 127."""
    words = builder.bitcast(args[0], ir.VectorType(_WORD, WIDTH))
    return builder.bitcast(builder.shl(words, _indices(*[23] * WIDTH)), _VECTOR)


@_operation(_lanes, 1)
def _octave(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """_octave(lanes): the whole number n of each positive lane x = 2^n f, f from 0.707 to 1.414."""
    return builder.sitofp(_octaves(builder, args[0]), _VECTOR)


@_operation(_lanes, 1)
def _fraction(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """_fraction(lanes): f of `_octave`."""
    words = builder.bitcast(args[0], ir.VectorType(_WORD, WIDTH))
    shifted = builder.shl(_octaves(builder, args[0]), _indices(*[23] * WIDTH))
    return builder.bitcast(builder.sub(words, shifted), _VECTOR)


def _octaves(builder: Any, lanes: Any) -> Any:
    words = builder.bitcast(lanes, ir.VectorType(_WORD, WIDTH))
    return builder.ashr(builder.sub(words, _indices(*[_ROOT_HALF] * WIDTH)), _indices(*[23] * WIDTH))


def part(function: Callable[..., Any]) -> Any:
    """Compile one step of an episode, called only by compiled code: no Python wrapper."""
    return njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, error_model="numpy", fastmath={"contract"})(function)


ZERO, ONE, TWO = np.float32(0), np.float32(1), np.float32(2)
TINY, INFINITE = np.float32(1e-36), np.float32(np.inf)
LOG2_E = np.float32(np.log2(np.e))
_FLOOR = np.float32(LEAST_LOGIT * np.log2(np.e))
_CEILING = np.float32(115)  # 2^115 is finite, and so is its sum with one
_ROUND = np.float32(1.5 * 2**23 + 127)  # adding it rounds to an integer n and leaves n + 127 in the lowest bits
_E1, _E2, _E3, _E4, _E5 = (  # 2^r on [-1/2, 1/2], relative error 1.05e-7
    np.float32(c)
    for c in (0.6931468844413757, 0.24022237956523895, 0.05550893023610115, 0.009671698324382305, 0.0013218672247603536)
)


@part
def exp2(x: Lanes) -> Lanes:
    """2^x."""
    x = where_larger(_FLOOR, x, _FLOOR, x)  # NaN stays NaN
    n = x + _ROUND
    r = x - (n - _ROUND)
    return (((((_E5 * r + _E4) * r + _E3) * r + _E2) * r + _E1) * r + ONE) * _exponent(n)


_L1, _L3, _L5, _L7, _L9 = (np.float32(2 * np.log2(np.e) / k) for k in (1, 3, 5, 7, 9))


@part
def log2(x: Lanes) -> Lanes:
    """Logarithm of positive numbers to base 2: 2 artanh(s) of s = (f - 1) / (f + 1), as far as float32 sees it."""
    f = _fraction(x)
    s = (f - ONE) / (f + ONE)
    t = s * s
    return _octave(x) + s * ((((_L9 * t + _L7) * t + _L5) * t + _L3) * t + _L1)


@part
def sigmoid(x: Lanes) -> Lanes:
    """1 / (1 + exp(-x)), without overflow."""
    y = x * -LOG2_E
    return ONE / (exp2(where_larger(y, _CEILING, _CEILING, y)) + ONE)
