"""Instructions that Numba has no name for, as functions that a kernel calls. Each is one line of PTX.

    load4(array, index) -> a, b, c, d            four float32 of a global array at once (ld.global.v4.f32)
    store4(array, index, a, b, c, d)             and back (st.global.v4.f32)
    load4_shared, store4_shared                  the same in shared memory (ld.shared.v4.f32, st.shared.v4.f32)
    load2, store2                                two of a global array (ld.global.v2.f32, st.global.v2.f32)
    store2_shared(array, index, a, b)            two to a shared array (st.shared.v2.f32)
    copy4_async(shared, i, source, j)            16 bytes from global to shared memory, past the registers and without
                                                 waiting (cp.async.cg.shared.global)
    copy2_async, copy1_async                     8 and 4 bytes (cp.async.ca.shared.global: through L1, as no wider ones)
    commit()                                     makes a group of this thread's copies so far (cp.async.commit_group)
    wait(n)                                      until at most the n youngest groups are on their way, n a literal
                                                 (cp.async.wait_group)
    halves(word) -> low, high                    the two float16 in the 32 bits of a float32, as float32 (cvt.f32.f16)
    join_halves(low, high) -> word               and back: rounded to nearest, even ones at ties (cvt.rn.f16x2.f32,
                                                 below compute capability 8.0 cvt.rn.f16.f32 twice)
    bfloats(word) -> low, high                   the same for two bfloat16 (their bits are a float32's upper half)
    join_bfloats(low, high) -> word              and back (cvt.rn.bf16x2.f32)

    tf32(x)                                      float32 rounded to tf32's 10 bits of fraction (cvt.rna.tf32.f32)
    mma_tf32(c0 … c3, a0 … a3, b0, b1)           D = A B + C of 16 x 8 by 8 x 8 numbers, a whole warp's instruction
                                                 (mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32)
    mma_f16, mma_bf16                            the same of 16 x 16 by 16 x 8 (mma.sync.aligned.m16n8k16 …)
    mma_s8                                       the same of 16 x 32 by 32 x 8 int8 (mma.sync.aligned.m16n8k32 …)
    ldmatrix_x4(array, index) -> 4 words         four 8 x 8 matrices of 16-bit elements out of shared memory, as mma
    ldmatrix_x4_trans                            takes them, and transposed (ldmatrix.sync.aligned.m8n8.x4.shared.b16)
    dp4a(a, b, c) -> int32                       c + the products of four int8 with four int8 (dp4a.s32.s32)
    rint(x) -> int32                             the nearest whole number, even ones at ties (cvt.rni.s32.f32)
    add_rn(a, b) -> float32                      a + b, never one with a product before it (add.rn.f32)
    pack_s8(a, b, c, d) -> int32                 four int32 as int8 of one word, saturated (cvt.pack.sat.s8.s32.b32)
    prmt(a, b, selector) -> int32                any four of the eight bytes of a and b (prmt.b32)
    word_of_float, float_of_word                 the same 32 bits as int32 and as float32 (no instruction)
    grid_dependency_wait()                       until the kernels that this one depends on are done, where it was
                                                 started before that (griddepcontrol.wait)

Rows of 16 bits are moved as float32 words of two elements: instructions that only move bits do not ask what they are.
int8, four in a word, are moved as float32 words too, and computed with as int32: word_of_float and float_of_word lead
from one to the other.

The matrices of an mma lie across a warp's lanes. With g = lane // 4 and t = lane % 4:

    word   of    row or column   words along k          number  of    row      column
    a0     A     row g           t                      c0      C, D  g        2t
    a1     A     row g + 8       t                      c1      C, D  g        2t + 1
    a2     A     row g           t + 4                  c2      C, D  g + 8    2t
    a3     A     row g + 8       t + 4                  c3      C, D  g + 8    2t + 1
    b0     B     column g        t
    b1     B     column g        t + 4

A word is what lies at k = word (tf32), at k = 2 word and 2 word + 1 (16 bits), at k = 4 word to 4 word + 3 (int8); the
first one lies in its lowest bits. So A is wanted with its rows' elements next to each other along k, and B with its
columns': a layer's filters (F, C) are B as they are, F its columns. The 32 lanes must come to the instruction together.
Products are exact; the order of the sum and its roundings are the hardware's own: compare with a tolerance.
mma_tf32 looks at an operand's upper 19 bits only, as if the rest were 0: a float32 is cut off, tf32(x) rounds it. With
h = tf32(x) and l = tf32(x - h) for both operands, the three products l h, h l and h h, added in this order, are near
float32.

Arrays are float32 and C-contiguous. An index counts elements from the array's first one, through all its dimensions,
and is a multiple of 4, the elements moved (load2, store2, store2_shared, copy2_async: of 2): the hardware takes 16
bytes at 16-byte addresses only.
After wait(0) a thread sees its own copies; other threads see them after a barrier that follows (cuda.syncwarp,
cuda.syncthreads).

A kernel of a CUDA graph may be started while the one before still runs (dwlab.kernels.parts.dependent_launch). At
grid_dependency_wait() it then stops: behind it all that the one before wrote is there, and all that it read may be
overwritten. A kernel that is started in any other way finds nothing to wait for. GPUs below 9.0 start none so early:
for them it compiles to nothing.

In gpu mode these are Numba intrinsics around inline PTX; in simulated mode dwlab.simt executes what they mean, counts
it and finds what is wrong (dwlab.simt.wide, narrow, tensor). Source: PTX ISA 8.7, "ld", "st", "cp.async", "cvt",
"mma", "add", "ldmatrix", "dp4a", "prmt", "cvt.pack", "griddepcontrol". Where another instruction is missing on a GPU
(`needs`), compiling says so.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

from dwlab.gpu import target
from dwlab.simt import narrow, tensor, wide
from dwlab.simt.intrinsics import register_meaning

NAMES = ("load4", "store4", "load4_shared", "store4_shared", "load2", "store2", "store2_shared")
NAMES += ("copy4_async", "copy2_async", "copy1_async", "commit", "wait")
NAMES += ("halves", "join_halves", "bfloats", "join_bfloats")
NAMES += ("tf32", "mma_tf32", "mma_f16", "mma_bf16", "mma_s8", "ldmatrix_x4", "ldmatrix_x4_trans")
NAMES += ("dp4a", "rint", "add_rn", "pack_s8", "prmt", "word_of_float", "float_of_word")
NAMES += ("grid_dependency_wait",)

WAITS_FROM = (9, 0)
"""The least compute capability that has griddepcontrol: below it grid_dependency_wait() is no instruction."""

_AMPERE = ("copy4_async", "copy2_async", "copy1_async", "commit", "wait", "join_bfloats", "tf32")
_AMPERE += ("mma_tf32", "mma_f16", "mma_bf16", "mma_s8")
_NEEDS = dict.fromkeys(_AMPERE, (8, 0)) | dict.fromkeys(("ldmatrix_x4", "ldmatrix_x4_trans"), (7, 5))
_NEEDS |= {"pack_s8": (7, 2), "dp4a": (6, 1)}


def needs(name: str) -> tuple[int, int]:
    """The least compute capability that has an instruction of NAMES. Raises ValueError for another name."""
    if name not in NAMES:
        raise ValueError(f"there is no ptx.{name}; there are {', '.join(NAMES)}")
    return _NEEDS.get(name, (5, 0))


def lacks(name: str, compute_capability: tuple[int, ...]) -> str:
    """What to say of an instruction that a GPU does not have; "" if it has it."""
    least, here = needs(name), tuple(compute_capability[:2])
    if here >= least:
        return ""
    return f"ptx.{name} needs compute capability {least[0]}.{least[1]}; this GPU has {here[0]}.{here[1]}"


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


def load2(array: Any, index: int) -> tuple[float, float]:
    """array[index : index + 2] of a global array."""
    _outside("load2")


def store2(array: Any, index: int, a: float, b: float) -> None:
    """array[index : index + 2] = a, b in a global array."""
    _outside("store2")


def store2_shared(array: Any, index: int, a: float, b: float) -> None:
    """array[index : index + 2] = a, b in a shared array."""
    _outside("store2_shared")


def copy4_async(shared: Any, i: int, source: Any, j: int) -> None:
    """Starts shared[i : i + 4] = source[j : j + 4], source a global array."""
    _outside("copy4_async")


def copy2_async(shared: Any, i: int, source: Any, j: int) -> None:
    """Starts shared[i : i + 2] = source[j : j + 2], source a global array."""
    _outside("copy2_async")


def copy1_async(shared: Any, i: int, source: Any, j: int) -> None:
    """Starts shared[i] = source[j], source a global array."""
    _outside("copy1_async")


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


def tf32(x: float) -> float:
    """x rounded to 10 bits of fraction, halves away from 0: the 13 bits below are 0.

    Of a NaN they are cut off: one with no bit set above them, such as 0x7F800001, becomes an infinity.
    """
    _outside("tf32")


Four = tuple[float, float, float, float]


def mma_tf32(
    c0: float, c1: float, c2: float, c3: float, a0: float, a1: float, a2: float, a3: float, b0: float, b1: float
) -> Four:
    """D = A B + C, A (16, 8) and B (8, 8) of tf32, C and D (16, 8) of float32; the module says which lane has what.

    a0: (g, t), a1: (g + 8, t), a2: (g, t + 4), a3: (g + 8, t + 4) of A; b0: (t, g), b1: (t + 4, g) of B.
    """
    _outside("mma_tf32")


def mma_f16(
    c0: float, c1: float, c2: float, c3: float, a0: float, a1: float, a2: float, a3: float, b0: float, b1: float
) -> Four:
    """D = A B + C, A (16, 16) and B (16, 8) of float16, C and D (16, 8) of float32; a0 to b1 words of two.

    a0: (g, 2t) and (g, 2t + 1), a1: row g + 8, a2: columns 2t + 8 and 2t + 9, a3: both, of A; b0: (2t, g) and
    (2t + 1, g), b1: (2t + 8, g) and (2t + 9, g) of B.
    """
    _outside("mma_f16")


def mma_bf16(
    c0: float, c1: float, c2: float, c3: float, a0: float, a1: float, a2: float, a3: float, b0: float, b1: float
) -> Four:
    """As mma_f16, of bfloat16."""
    _outside("mma_bf16")


def mma_s8(
    c0: int, c1: int, c2: int, c3: int, a0: int, a1: int, a2: int, a3: int, b0: int, b1: int
) -> tuple[int, int, int, int]:
    """D = A B + C, A (16, 32) and B (32, 8) of int8, C and D (16, 8) of int32, all passed as int32; sums wrap around.

    a0: (g, 4t) to (g, 4t + 3), a1: row g + 8, a2: columns from 4t + 16, a3: both, of A; b0: (4t, g) to (4t + 3, g),
    b1: from (4t + 16, g) of B.
    """
    _outside("mma_s8")


def ldmatrix_x4(array: Any, index: int) -> Four:
    """Four matrices of 8 rows of 4 words, out of a shared array: lane 8 m + r gives where row r of matrix m begins.

    Each lane gets, of each matrix, word t of row g (a word's two 16-bit elements are columns 2t and 2t + 1). With
    matrices 0 to 3 = rows 0-7 and 8-15 of words 0-3, then of words 4-7, these are a0 to a3 of any mma. index: a
    multiple of 4. The rows of a matrix are read at once: 8 rows whose starts, in 16 bytes, differ modulo 8 have no
    bank conflict.
    """
    _outside("ldmatrix_x4")


def ldmatrix_x4_trans(array: Any, index: int) -> Four:
    """As ldmatrix_x4, each 8 x 8 matrix of 16-bit elements transposed: a lane gets column g of rows 2t and 2t + 1."""
    _outside("ldmatrix_x4_trans")


def dp4a(a: int, b: int, c: int) -> int:
    """c + a[0] b[0] + a[1] b[1] + a[2] b[2] + a[3] b[3], a and b words of four int8, all int32; the sum wraps."""
    _outside("dp4a")


def rint(x: float) -> int:
    """The int32 nearest to a float32, of two as near the even one; beyond int32 its end, of a NaN 0."""
    _outside("rint")


def add_rn(a: float, b: float) -> float:
    """a + b of float32, rounded: a product among them is rounded before, where + may make one fma of both."""
    _outside("add_rn")


def pack_s8(a: int, b: int, c: int, d: int) -> int:
    """Four int32, each held within -128 to 127, as the int8 of a word: a lowest, d highest (two instructions)."""
    _outside("pack_s8")


def prmt(a: int, b: int, selector: int) -> int:
    """The word whose byte k is number (selector >> 4 k) & 7 of the bytes of a (0 to 3) and b (4 to 7).

    Bit 3 of a choice gives that byte's sign in all 8 bits. int32(0x6420) takes bytes 0 and 2 of a, then of b.
    """
    _outside("prmt")


def word_of_float(x: float) -> int:
    """The bits of a float32 as an int32."""
    _outside("word_of_float")


def float_of_word(word: int) -> float:
    """The float32 that has the bits of an int32."""
    _outside("float_of_word")


def grid_dependency_wait() -> None:
    """Waits until all kernels that this one depends on are done, and what they wrote is there; else it does nothing."""
    _outside("grid_dependency_wait")


def _outside(name: str) -> NoReturn:
    raise TypeError(f"ptx.{name} is an instruction: call it in a kernel")


def intrinsics() -> SimpleNamespace:
    """The functions above as Numba-CUDA intrinsics. Needs numba-cuda, and no GPU."""
    from llvmlite import ir
    from numba.core import cgutils, errors, types
    from numba.core.targetconfig import ConfigStack
    from numba.cuda.extending import intrinsic

    f32, i32, i64, void = ir.FloatType(), ir.IntType(32), ir.IntType(64), ir.VoidType()
    four = types.UniTuple(types.float32, 4)

    def checked(name: str, array: Any, index: Any) -> None:
        good = isinstance(array, types.Array) and array.dtype == types.float32 and array.layout == "C"
        if not good:
            raise errors.TypingError(f"ptx.{name} takes a C-contiguous float32 array, not {array}")
        if not isinstance(index, types.Integer):
            raise errors.TypingError(f"ptx.{name} takes an integer index, not {index}")

    def available(name: str) -> None:
        flags = ConfigStack.top_or_none()
        why = lacks(name, getattr(flags, "compute_capability", None) or needs(name))
        if why:
            raise errors.TypingError(why)

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

    def loads(name: str, space: str, width: int = 4) -> Any:
        shared = space == "shared"
        text = f"ld.{space}.v{width}.f32 {{{', '.join(f'${k}' for k in range(width))}}}, [${width}];"

        @intrinsic
        def load(typing: Any, array: Any, index: Any) -> Any:
            checked(name, array, index)

            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                at = address(context, builder, array, args[0], index, args[1], shared)
                found = line(builder, ir.LiteralStructType([f32] * width), text, "=f," * width + "lr"[shared], at)
                return cgutils.pack_array(builder, [builder.extract_value(found, k) for k in range(width)])

            return types.UniTuple(types.float32, width)(array, index), generate

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

    def stores_two(name: str, space: str) -> Any:
        shared = space == "shared"
        text = f"st.{space}.v2.f32 [$0], {{$1, $2}};"

        @intrinsic
        def store(typing: Any, array: Any, index: Any, a: Any, b: Any) -> Any:
            checked(name, array, index)

            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                at = address(context, builder, array, args[0], index, args[1], shared)
                line(builder, void, text, f"{'lr'[shared]},f,f", at, *args[2:])
                return context.get_dummy_value()

            return types.void(array, index, types.float32, types.float32), generate

        return store

    def copies(name: str, width: int) -> Any:
        text = f"cp.async.{'cg' if width == 4 else 'ca'}.shared.global [$0], [$1], {4 * width};"

        @intrinsic
        def copy(typing: Any, shared: Any, i: Any, source: Any, j: Any) -> Any:
            available(name)
            checked(name, shared, i)
            checked(name, source, j)

            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                to = address(context, builder, shared, args[0], i, args[1], True)
                where = address(context, builder, source, args[2], j, args[3], False)
                line(builder, void, text, "r,l", to, where)
                return context.get_dummy_value()

            return types.void(shared, i, source, j), generate

        return copy

    @intrinsic
    def commit_group(typing: Any) -> Any:
        available("commit")

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            line(builder, void, "cp.async.commit_group;", "")
            return context.get_dummy_value()

        return types.void(), generate

    @intrinsic
    def wait_group(typing: Any, groups: Any) -> Any:
        available("wait")
        if not isinstance(groups, types.IntegerLiteral):  # Numba asks again with the literal's value
            raise errors.RequireLiteralValue("ptx.wait takes a literal number of groups")
        if groups.literal_value < 0:
            raise errors.TypingError(f"ptx.wait takes 0 groups or more, not {groups.literal_value}")

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            line(builder, void, f"cp.async.wait_group {groups.literal_value};", "")
            return context.get_dummy_value()

        return types.void(groups), generate

    @intrinsic
    def wait_for_grids(typing: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            if tuple(ConfigStack().top().compute_capability[:2]) >= WAITS_FROM:
                line(builder, void, "griddepcontrol.wait;", "")
            return context.get_dummy_value()

        return types.void(), generate

    two = types.UniTuple(types.float32, 2)

    def numbers(name: str, *given: Any, kind: Any = types.float32) -> None:
        for one in given:
            if one != kind:
                raise errors.TypingError(f"ptx.{name} takes {kind}, not {one}: {kind}(…) converts")

    def convert(builder: Any, returns: Any, text: str, constraints: str, *operands: Any, attrs: tuple = ()) -> Any:
        shape = ir.FunctionType(returns, [one.type for one in operands])
        asm = ir.InlineAsm(shape, text, constraints, side_effect=False)
        return builder.call(asm, list(operands), attrs=("readnone", *attrs))

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
            available(name)
            numbers(name, low, high)

            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                text = f"cvt.rn.{kind}x2.f32 $0, $1, $2;"  # the first operand goes to the upper half
                if tuple(ConfigStack().top().compute_capability[:2]) < (8, 0):  # float16: each by itself
                    text = "{ .reg .b16 l, h; cvt.rn.f16.f32 h, $1; cvt.rn.f16.f32 l, $2; mov.b32 $0, {l, h}; }"
                return builder.bitcast(convert(builder, i32, text, "=r,f,f", args[1], args[0]), f32)

            return types.float32(low, high), generate

        return joined

    def plain(name: str, text: str, returns: Any, *takes: Any) -> Any:
        """An instruction on numbers alone; in `text` the result is $0. Numba asks how many arguments it has."""
        letter = {types.float32: "f", types.int32: "r"}
        constraints = ",".join([f"={letter[returns]}", *(letter[one] for one in takes)])
        wanted = {types.float32: f32, types.int32: i32}[returns]

        def typed(given: tuple) -> Any:
            available(name)
            for one, kind in zip(given, takes, strict=True):
                numbers(name, one, kind=kind)

            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                if not text:
                    return builder.bitcast(args[0], wanted)
                return convert(builder, wanted, text, constraints, *args)

            return returns(*takes), generate

        def one(typing: Any, a: Any) -> Any:
            return typed((a,))

        def two(typing: Any, a: Any, b: Any) -> Any:
            return typed((a, b))

        def three(typing: Any, a: Any, b: Any, c: Any) -> Any:
            return typed((a, b, c))

        def four_of(typing: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
            return typed((a, b, c, d))

        made = {1: one, 2: two, 3: three, 4: four_of}[len(takes)]
        made.__name__ = name  # for Numba's messages
        return intrinsic(made)

    def product(name: str, shape: str) -> Any:
        kind, number, letter = (types.int32, i32, "r") if name == "mma_s8" else (types.float32, f32, "f")
        places = "{$0, $1, $2, $3}, {$8, $9, $10, $11}, {$12, $13}, {$4, $5, $6, $7};"
        constraints = ",".join([f"={letter}"] * 4 + [letter] * 4 + ["r"] * 6)

        @intrinsic
        def mma(
            typing: Any, c0: Any, c1: Any, c2: Any, c3: Any, a0: Any, a1: Any, a2: Any, a3: Any, b0: Any, b1: Any
        ) -> Any:
            available(name)
            numbers(name, c0, c1, c2, c3, a0, a1, a2, a3, b0, b1, kind=kind)

            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                words = [builder.bitcast(one, i32) for one in args[4:]]
                text, returns = f"mma.sync.aligned.{shape} {places}", ir.LiteralStructType([number] * 4)
                found = convert(builder, returns, text, constraints, *args[:4], *words, attrs=("convergent",))
                return cgutils.pack_array(builder, [builder.extract_value(found, k) for k in range(4)])

            return types.UniTuple(kind, 4)(*[kind] * 10), generate

        return mma

    def matrices(name: str, how: str) -> Any:
        text = f"ldmatrix.sync.aligned.m8n8.x4{how}.shared.b16 {{$0, $1, $2, $3}}, [$4];"

        @intrinsic
        def load(typing: Any, array: Any, index: Any) -> Any:
            available(name)
            checked(name, array, index)

            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                at = address(context, builder, array, args[0], index, args[1], True)
                found = line(builder, ir.LiteralStructType([i32] * 4), text, "=r,=r,=r,=r,r", at)
                words = [builder.bitcast(builder.extract_value(found, k), f32) for k in range(4)]
                return cgutils.pack_array(builder, words)

            return four(array, index), generate

        return load

    whole, real = types.int32, types.float32
    packed = "{ .reg .b32 w; cvt.pack.sat.s8.s32.b32 w, $4, $3, 0; cvt.pack.sat.s8.s32.b32 $0, $2, $1, w; }"
    rounded = "{ .reg .b32 w; cvt.rna.tf32.f32 w, $1; mov.b32 $0, w; }"

    return SimpleNamespace(
        tf32=plain("tf32", rounded, real, real),
        mma_tf32=product("mma_tf32", "m16n8k8.row.col.f32.tf32.tf32.f32"),
        mma_f16=product("mma_f16", "m16n8k16.row.col.f32.f16.f16.f32"),
        mma_bf16=product("mma_bf16", "m16n8k16.row.col.f32.bf16.bf16.f32"),
        mma_s8=product("mma_s8", "m16n8k32.row.col.s32.s8.s8.s32"),
        ldmatrix_x4=matrices("ldmatrix_x4", ""),
        ldmatrix_x4_trans=matrices("ldmatrix_x4_trans", ".trans"),
        dp4a=plain("dp4a", "dp4a.s32.s32 $0, $1, $2, $3;", whole, whole, whole, whole),
        rint=plain("rint", "cvt.rni.s32.f32 $0, $1;", whole, real),
        add_rn=plain("add_rn", "add.rn.f32 $0, $1, $2;", real, real, real),
        pack_s8=plain("pack_s8", packed, whole, whole, whole, whole, whole),
        prmt=plain("prmt", "prmt.b32 $0, $1, $2, $3;", whole, whole, whole, whole),
        word_of_float=plain("word_of_float", "", whole, real),
        float_of_word=plain("float_of_word", "", real, whole),
        halves=split("halves"),
        join_halves=join("join_halves", "f16"),
        bfloats=split("bfloats"),
        join_bfloats=join("join_bfloats", "bf16"),
        load4=loads("load4", "global"),
        store4=stores("store4", "global"),
        load4_shared=loads("load4_shared", "shared"),
        store4_shared=stores("store4_shared", "shared"),
        load2=loads("load2", "global", 2),
        store2=stores_two("store2", "global"),
        store2_shared=stores_two("store2_shared", "shared"),
        copy4_async=copies("copy4_async", 4),
        copy2_async=copies("copy2_async", 2),
        copy1_async=copies("copy1_async", 1),
        commit=commit_group,
        wait=wait_group,
        grid_dependency_wait=wait_for_grids,
    )


_MEANINGS = SimpleNamespace(
    load4=wide.load("ptx.load4", "global"),
    store4=wide.store("ptx.store4", "global"),
    load4_shared=wide.load("ptx.load4_shared", "shared"),
    store4_shared=wide.store("ptx.store4_shared", "shared"),
    load2=wide.load("ptx.load2", "global", 2),
    store2=wide.store("ptx.store2", "global", 2),
    store2_shared=wide.store("ptx.store2_shared", "shared", 2),
    copy4_async=wide.copy_async("ptx.copy4_async", 4),
    copy2_async=wide.copy_async("ptx.copy2_async", 2),
    copy1_async=wide.copy_async("ptx.copy1_async", 1),
    commit=wide.commit,
    wait=wide.wait,
    halves=narrow.halves,
    join_halves=narrow.join_halves,
    bfloats=narrow.bfloats,
    join_bfloats=narrow.join_bfloats,
    tf32=narrow.tf32,
    mma_tf32=tensor.product("ptx.mma_tf32", "tf32"),
    mma_f16=tensor.product("ptx.mma_f16", "float16"),
    mma_bf16=tensor.product("ptx.mma_bf16", "bfloat16"),
    mma_s8=tensor.product("ptx.mma_s8", "int8"),
    ldmatrix_x4=tensor.matrices("ptx.ldmatrix_x4", transposed=False),
    ldmatrix_x4_trans=tensor.matrices("ptx.ldmatrix_x4_trans", transposed=True),
    dp4a=narrow.dp4a,
    rint=narrow.rint,
    add_rn=narrow.add_rn,
    pack_s8=narrow.pack_s8,
    prmt=narrow.prmt,
    word_of_float=narrow.word_of_float,
    float_of_word=narrow.float_of_word,
    grid_dependency_wait=wide.grid_dependency_wait,
)


def _where_it_exists(name: str, meaning: Callable) -> Callable:
    """The meaning, and the refusal where the GPU that simt stands for does not have the instruction."""

    @functools.wraps(meaning)
    def checked(run: Any, node: Any, *arguments: object) -> object:
        why = lacks(name, run.options.compute_capability)
        if why:
            raise run.refuse(node, why)
        return meaning(run, node, *arguments)

    return checked if name in _NEEDS else meaning


if target.mode == "gpu":
    globals().update(vars(intrinsics()))
for _name in NAMES:
    register_meaning(globals()[_name], _where_it_exists(_name, getattr(_MEANINGS, _name)))
