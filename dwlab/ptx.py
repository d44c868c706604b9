"""Instructions that Numba has no name for, as functions that a kernel calls. Each is one line of PTX.

    load4(array, index) -> a, b, c, d            four float32 of a global array at once (ld.global.v4.f32)
    store4(array, index, a, b, c, d)             and back (st.global.v4.f32)
    load4_shared, store4_shared                  the same in shared memory (ld.shared.v4.f32, st.shared.v4.f32)
    copy4_async(shared, i, source, j)            16 bytes from global to shared memory, past the registers and without
                                                 waiting (cp.async.cg.shared.global)
    commit()                                     makes a group of this thread's copies so far (cp.async.commit_group)
    wait(n)                                      until at most the n youngest groups are on their way, n a literal
                                                 (cp.async.wait_group)
    halves(word) -> low, high                    the two float16 in the 32 bits of a float32, as float32 (cvt.f32.f16)
    join_halves(low, high) -> word               and back: rounded to nearest, even ones at ties (cvt.rn.f16x2.f32)
    bfloats(word) -> low, high                   the same for two bfloat16 (their bits are a float32's upper half)
    join_bfloats(low, high) -> word              and back (cvt.rn.bf16x2.f32)

Rows of 16 bits are moved as float32 words of two elements: instructions that only move bits do not ask what they are.

Arrays are float32 and C-contiguous. An index counts elements from the array's first one, through all its dimensions,
and is a multiple of 4: the hardware takes 16 bytes at 16-byte addresses only. After wait(0) a thread sees its own
copies; other threads see them after a barrier that follows (cuda.syncwarp, cuda.syncthreads).

In gpu mode these are Numba intrinsics around inline PTX; in simulated mode dwlab.simt executes what they mean, counts
it and finds what is wrong (dwlab.simt.wide, dwlab.simt.narrow). Source: PTX ISA 8.7, "ld", "st", "cp.async", "cvt".
Copies and join_bfloats need compute capability 8.0 or higher.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NoReturn

from dwlab import target
from dwlab.simt import narrow, wide
from dwlab.simt.intrinsics import register_meaning

NAMES = ("load4", "store4", "load4_shared", "store4_shared", "copy4_async", "commit", "wait")
NAMES += ("halves", "join_halves", "bfloats", "join_bfloats")


def load4(array: Any, index: int) -> tuple[float, float, float, float]:
    """array[index : index + 4] of a global array."""
    _outside("load4")


def store4(array: Any, index: int, a: float, b: float, c: float, d: float) -> None:
    """array[index : index + 4] = a, b, c, d in a global array."""
    _outside("store4")


def load4_shared(array: Any, index: int) -> tuple[float, float, float, float]:
    """array[index : index + 4] of a shared array."""
    _outside("load4_shared")


def store4_shared(array: Any, index: int, a: float, b: float, c: float, d: float) -> None:
    """array[index : index + 4] = a, b, c, d in a shared array."""
    _outside("store4_shared")


def copy4_async(shared: Any, i: int, source: Any, j: int) -> None:
    """Starts shared[i : i + 4] = source[j : j + 4], source a global array."""
    _outside("copy4_async")


def commit() -> None:
    """Makes a group of the copies that this thread has started since its last commit."""
    _outside("commit")


def wait(groups: int) -> None:
    """Waits until at most this many of the thread's groups, its youngest, are still on their way."""
    _outside("wait")


def halves(word: float) -> tuple[float, float]:
    """The float16 in a word's lower 16 bits, and the one in its upper 16 bits, both exactly, as float32."""
    _outside("halves")


def join_halves(low: float, high: float) -> float:
    """The word with two float32 rounded to float16 in its lower and upper 16 bits; from 65,520 on they are infinite."""
    _outside("join_halves")


def bfloats(word: float) -> tuple[float, float]:
    """The bfloat16 in a word's lower 16 bits, and the one in its upper 16 bits, both exactly, as float32."""
    _outside("bfloats")


def join_bfloats(low: float, high: float) -> float:
    """The word with two float32 rounded to bfloat16 in its lower and upper 16 bits."""
    _outside("join_bfloats")


def _outside(name: str) -> NoReturn:
    raise TypeError(f"ptx.{name} is an instruction: call it in a kernel")


def intrinsics() -> SimpleNamespace:
    """The functions above as Numba-CUDA intrinsics. Needs numba-cuda, and no GPU."""
    from llvmlite import ir
    from numba.core import cgutils, errors, types
    from numba.cuda.extending import intrinsic

    f32, i32, i64, void = ir.FloatType(), ir.IntType(32), ir.IntType(64), ir.VoidType()
    four = types.UniTuple(types.float32, 4)

    def checked(name: str, array: Any, index: Any) -> None:
        good = isinstance(array, types.Array) and array.dtype == types.float32 and array.layout == "C"
        if not good:
            raise errors.TypingError(f"ptx.{name} takes a C-contiguous float32 array, not {array}")
        if not isinstance(index, types.Integer):
            raise errors.TypingError(f"ptx.{name} takes an integer index, not {index}")

    def address(context: Any, builder: Any, kind: Any, array: Any, index_type: Any, index: Any, shared: bool) -> Any:
        """Byte address of an element: 32 bits within shared memory, 64 in global memory."""
        start = context.make_array(kind)(context, builder, array).data
        size = i32 if shared else i64
        if index.type.width > size.width:
            index = builder.trunc(index, size)
        elif index.type.width < size.width:
            index = builder.sext(index, size) if index_type.signed else builder.zext(index, size)
        if not shared:
            return builder.ptrtoint(builder.gep(start, [index], source_etype=f32), size)
        start = builder.ptrtoint(builder.addrspacecast(start, ir.PointerType(f32, addrspace=3)), size)
        return builder.add(start, builder.shl(index, ir.Constant(size, 2)))

    def line(builder: Any, returns: Any, text: str, constraints: str, *operands: Any) -> Any:
        shape = ir.FunctionType(returns, [one.type for one in operands])
        ordered = f"{constraints},~{{memory}}".lstrip(",")  # no other access moves across it
        return builder.call(ir.InlineAsm(shape, text, ordered, side_effect=True), list(operands))

    def loads(name: str, space: str) -> Any:
        shared = space == "shared"
        text = f"ld.{space}.v4.f32 {{$0, $1, $2, $3}}, [$4];"

        @intrinsic
        def load(typing: Any, array: Any, index: Any) -> Any:
            checked(name, array, index)

            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                at = address(context, builder, array, args[0], index, args[1], shared)
                found = line(builder, ir.LiteralStructType([f32] * 4), text, f"=f,=f,=f,=f,{'lr'[shared]}", at)
                return cgutils.pack_array(builder, [builder.extract_value(found, k) for k in range(4)])

            return four(array, index), generate

        return load

    def stores(name: str, space: str) -> Any:
        shared = space == "shared"
        text = f"st.{space}.v4.f32 [$0], {{$1, $2, $3, $4}};"

        @intrinsic
        def store(typing: Any, array: Any, index: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
            checked(name, array, index)

            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                at = address(context, builder, array, args[0], index, args[1], shared)
                line(builder, void, text, f"{'lr'[shared]},f,f,f,f", at, *args[2:])
                return context.get_dummy_value()

            return types.void(array, index, *[types.float32] * 4), generate

        return store

    @intrinsic
    def copy(typing: Any, shared: Any, i: Any, source: Any, j: Any) -> Any:
        checked("copy4_async", shared, i)
        checked("copy4_async", source, j)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            to = address(context, builder, shared, args[0], i, args[1], True)
            where = address(context, builder, source, args[2], j, args[3], False)
            line(builder, void, "cp.async.cg.shared.global [$0], [$1], 16;", "r,l", to, where)
            return context.get_dummy_value()

        return types.void(shared, i, source, j), generate

    @intrinsic
    def commit_group(typing: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            line(builder, void, "cp.async.commit_group;", "")
            return context.get_dummy_value()

        return types.void(), generate

    @intrinsic
    def wait_group(typing: Any, groups: Any) -> Any:
        if not isinstance(groups, types.IntegerLiteral):  # Numba asks again with the literal's value
            raise errors.RequireLiteralValue("ptx.wait takes a literal number of groups")
        if groups.literal_value < 0:
            raise errors.TypingError(f"ptx.wait takes 0 groups or more, not {groups.literal_value}")

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            line(builder, void, f"cp.async.wait_group {groups.literal_value};", "")
            return context.get_dummy_value()

        return types.void(groups), generate

    two = types.UniTuple(types.float32, 2)

    def numbers(name: str, *given: Any) -> None:
        for one in given:
            if one != types.float32:
                raise errors.TypingError(f"ptx.{name} takes float32, not {one}: float32(…) converts")

    def convert(builder: Any, returns: Any, text: str, constraints: str, *operands: Any) -> Any:
        shape = ir.FunctionType(returns, [one.type for one in operands])
        return builder.call(ir.InlineAsm(shape, text, constraints, side_effect=False), list(operands))

    def split(name: str) -> Any:
        @intrinsic
        def halves(typing: Any, word: Any) -> Any:
            numbers(name, word)

            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                bits = builder.bitcast(args[0], i32)
                if name == "halves":
                    text = "{ .reg .b16 l, h; mov.b32 {l, h}, $2; cvt.f32.f16 $0, l; cvt.f32.f16 $1, h; }"
                    found = convert(builder, ir.LiteralStructType([f32] * 2), text, "=f,=f,r", bits)
                    return cgutils.pack_array(builder, [builder.extract_value(found, k) for k in range(2)])
                low = builder.shl(bits, ir.Constant(i32, 16))
                high = builder.and_(bits, ir.Constant(i32, 0xFFFF0000))
                return cgutils.pack_array(builder, [builder.bitcast(one, f32) for one in (low, high)])

            return two(word), generate

        return halves

    def join(name: str, kind: str) -> Any:
        @intrinsic
        def joined(typing: Any, low: Any, high: Any) -> Any:
            numbers(name, low, high)

            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                text = f"cvt.rn.{kind}x2.f32 $0, $1, $2;"  # the first operand goes to the upper half
                return builder.bitcast(convert(builder, i32, text, "=r,f,f", args[1], args[0]), f32)

            return types.float32(low, high), generate

        return joined

    return SimpleNamespace(
        halves=split("halves"),
        join_halves=join("join_halves", "f16"),
        bfloats=split("bfloats"),
        join_bfloats=join("join_bfloats", "bf16"),
        load4=loads("load4", "global"),
        store4=stores("store4", "global"),
        load4_shared=loads("load4_shared", "shared"),
        store4_shared=stores("store4_shared", "shared"),
        copy4_async=copy,
        commit=commit_group,
        wait=wait_group,
    )


_MEANINGS = SimpleNamespace(
    load4=wide.load("ptx.load4", "global"),
    store4=wide.store("ptx.store4", "global"),
    load4_shared=wide.load("ptx.load4_shared", "shared"),
    store4_shared=wide.store("ptx.store4_shared", "shared"),
    copy4_async=wide.copy_async,
    commit=wide.commit,
    wait=wide.wait,
    halves=narrow.halves,
    join_halves=narrow.join_halves,
    bfloats=narrow.bfloats,
    join_bfloats=narrow.join_bfloats,
)

if target.mode == "gpu":
    globals().update(vars(intrinsics()))
for _name in NAMES:
    register_meaning(globals()[_name], getattr(_MEANINGS, _name))
