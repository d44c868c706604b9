"""Instructions that Numba has no name for, as Numba-CUDA intrinsics around inline PTX, and which GPU has them.

dwlab.kernels.parts.ptx says what each does and how a kernel calls it. Source: PTX ISA 8.7.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any, NoReturn

from dwlab.gpu.driver import PAGE, UNIT, tensor_map

NAMES = ("load4", "store4", "load4_shared", "store4_shared", "load2", "store2", "store2_shared")
NAMES += ("copy4_async", "copy4_async_zfill", "copy2_async", "copy1_async", "commit", "wait")
NAMES += ("halves", "join_halves", "bfloats", "join_bfloats")
NAMES += ("tf32", "mma_tf32", "mma_f16", "mma_bf16", "mma_s8", "ldmatrix_x4", "ldmatrix_x4_trans")
NAMES += ("dp4a", "rint", "add_rn", "pack_s8", "prmt", "word_of_float", "float_of_word")
NAMES += ("grid_dependency_wait", "mma_sp_f16", "mma_sp_s8")
HALVES = ("mma_tf32_k4", "mma_f16_k8", "mma_bf16_k8", "mma_s8_k16")
HINTED_LOADS = tuple(f"load{width}_{hint}" for width in (2, 4) for hint in ("nc", "no_allocate", "evict_first"))
HINTED_STORES = tuple(f"store{width}_cs" for width in (2, 4))
VARIANTS = (*HALVES, *HINTED_LOADS, *HINTED_STORES)
"""Instructions that do what another one does, by another text."""
NAMES += VARIANTS
_HOPPER = ("wgmma_f16", "wgmma_bf16", "wgmma_sp_f16", "wgmma_fence", "wgmma_commit", "wgmma_wait", "wgmma_sp_wait")
_HOPPER += ("wgmma_sp_f16_trans",)
_BULK = ("mbarrier_init", "mbarrier_expect", "mbarrier_arrive", "mbarrier_wait", "copy_box_async")
NAMES += (*_HOPPER, "fence_async", *_BULK)

WAITS_FROM = (9, 0)
"""The least compute capability that has griddepcontrol: below it grid_dependency_wait() is no instruction."""

_AMPERE = ("copy4_async", "copy4_async_zfill", "copy2_async", "copy1_async", "commit", "wait", "join_bfloats", "tf32")
_AMPERE += ("mma_tf32", "mma_f16", "mma_bf16", "mma_s8", "mma_sp_f16", "mma_sp_s8")
_NEEDS = dict.fromkeys(_AMPERE, (8, 0)) | dict.fromkeys(("ldmatrix_x4", "ldmatrix_x4_trans"), (7, 5))
_NEEDS |= dict.fromkeys(HALVES, (8, 0)) | {one: (7, 0) for one in HINTED_LOADS if not one.endswith("_nc")}
_NEEDS |= {"pack_s8": (7, 2), "dp4a": (6, 1)} | dict.fromkeys((*_HOPPER, "fence_async", *_BULK), (9, 0))


def needs(name: str) -> tuple[int, int]:
    """The least compute capability that has an instruction of NAMES. Raises ValueError for another name."""
    if name not in NAMES:
        raise ValueError(f"there is no ptx.{name}; there are {', '.join(NAMES)}")
    return _NEEDS.get(name, (5, 0))


def lacks(name: str, compute_capability: tuple[int, ...]) -> str:
    """What to say of an instruction that a GPU does not have; "" if it has it."""
    least, here = needs(name), tuple(compute_capability[:2])
    if name in _HOPPER and here > least:
        return f"ptx.{name} is of compute capability 9.0 alone; this GPU has {here[0]}.{here[1]}"
    if here >= least:
        return ""
    return f"ptx.{name} needs compute capability {least[0]}.{least[1]}; this GPU has {here[0]}.{here[1]}"


def wrong_rows(columns: int, pitch: int) -> str:
    """What wgmma_sp_f16_trans does not take of these sizes, for a message that begins with its name; "" if nothing."""
    if columns % 64 or not 64 <= columns <= 256:
        return f"takes 64 to 256 columns, a multiple of 64, not {columns}"
    if pitch % 256 or not 1024 <= pitch < 2**16:
        return f"takes 1,024 words or more, whole lines of 8 rows, from 64 columns to the next, not {pitch}"
    return ""


def wrong_box(lines: int, width: int, box: int, words: int = 32) -> str:
    """What copy_box_async does not take of these sizes, for a message that begins with its name; "" if nothing."""
    if not (1 <= lines < 2**31 and 1 <= width < 2**31):
        return f"takes a matrix of 1 line and 1 word or more, below 2**31, not of {lines} and {width}"
    if width % 4:
        return f"takes lines of whole 16 bytes, not of {width} words"
    if words not in (16, 32) and (words % 64 or not 64 <= words <= 256):
        return f"takes lines of 16 or 32 words to a box, or of a multiple of 64 up to 256, not of {words}"
    return "" if 1 <= box <= 256 else f"takes boxes of 1 to 256 lines, not of {box}"


def outside(name: str) -> NoReturn:
    """Raises TypeError: what a function that stands for an instruction does where no kernel calls it."""
    raise TypeError(f"ptx.{name} is an instruction: call it in a kernel")


@functools.cache
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
    def copy_or_zeros(typing: Any, shared: Any, i: Any, source: Any, j: Any, inside: Any) -> Any:
        name = "copy4_async_zfill"
        available(name)
        checked(name, shared, i)
        checked(name, source, j)
        if not isinstance(inside, types.Boolean):
            raise errors.TypingError(f"ptx.{name} takes a truth value for inside, not {inside}")

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            to = address(context, builder, shared, args[0], i, args[1], True)
            where = address(context, builder, source, args[2], j, args[3], False)
            size = builder.select(args[4], ir.Constant(i32, 16), ir.Constant(i32, 0))
            line(builder, void, "cp.async.cg.shared.global [$0], [$1], 16, $2;", "r,l,r", to, where, size)
            return context.get_dummy_value()

        return types.void(shared, i, source, j, inside), generate

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

    def sparse_product(name: str, shape: str) -> Any:
        places = "{$0, $1, $2, $3}, {$8, $9, $10, $11}, {$12, $13, $14, $15}, {$4, $5, $6, $7}, $16"
        constraints = ",".join(["=f"] * 4 + ["f"] * 4 + ["r"] * 9)

        @intrinsic
        def mma(
            typing: Any, c0: Any, c1: Any, c2: Any, c3: Any, a0: Any, a1: Any, a2: Any, a3: Any,
            b0: Any, b1: Any, b2: Any, b3: Any, metadata: Any, selector: Any
        ) -> Any:  # fmt: skip
            available(name)
            numbers(name, c0, c1, c2, c3, a0, a1, a2, a3, b0, b1, b2, b3)
            numbers(name, metadata, kind=types.int32)
            if not isinstance(selector, types.IntegerLiteral):  # Numba asks again with the literal's value
                raise errors.RequireLiteralValue(f"ptx.{name} takes a literal selector")
            if selector.literal_value not in (0, 1):
                raise errors.TypingError(f"ptx.{name} takes the selector 0 or 1, not {selector.literal_value}")

            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                words = [builder.bitcast(one, i32) for one in args[4:12]]
                text = f"mma.sp::ordered_metadata.sync.aligned.{shape} {places}, {selector.literal_value};"
                returns, given = ir.LiteralStructType([f32] * 4), (*args[:4], *words, args[12])
                found = convert(builder, returns, text, constraints, *given, attrs=("convergent",))
                return cgutils.pack_array(builder, [builder.extract_value(found, k) for k in range(4)])

            return four(*[types.float32] * 12, types.int32, selector), generate

        return mma

    def chosen(name: str, selector: Any) -> None:
        if not isinstance(selector, types.IntegerLiteral):
            raise errors.RequireLiteralValue(f"ptx.{name} takes a literal selector")
        if selector.literal_value not in (0, 1):
            raise errors.TypingError(f"ptx.{name} takes the selector 0 or 1, not {selector.literal_value}")

    def sparse_bytes(name: str, shape: str) -> Any:
        places = "{$0, $1, $2, $3}, {$8, $9, $10, $11}, {$12, $13, $14, $15}, {$4, $5, $6, $7}, $16, 0;"
        constraints = ",".join(["=r"] * 4 + ["r"] * 13)

        @intrinsic
        def mma(
            typing: Any, c0: Any, c1: Any, c2: Any, c3: Any, a0: Any, a1: Any, a2: Any, a3: Any,
            b0: Any, b1: Any, b2: Any, b3: Any, metadata: Any
        ) -> Any:  # fmt: skip
            available(name)
            numbers(name, c0, c1, c2, c3, a0, a1, a2, a3, b0, b1, b2, b3, metadata, kind=types.int32)

            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                text, returns = (
                    f"mma.sp::ordered_metadata.sync.aligned.{shape} {places}",
                    ir.LiteralStructType([i32] * 4),
                )
                found = convert(builder, returns, text, constraints, *args, attrs=("convergent",))
                return cgutils.pack_array(builder, [builder.extract_value(found, k) for k in range(4)])

            return types.UniTuple(types.int32, 4)(*[types.int32] * 13), generate

        return mma

    def halves_of_k(name: str, shape: str) -> Any:
        """Two products of half the k: the words of both lie in lanes as one instruction of all of it has them."""
        kind, number, letter = (types.int32, i32, "r") if "s8" in name else (types.float32, f32, "f")
        mma, sums = f"mma.sync.aligned.{shape}", "{$0, $1, $2, $3}"
        text = f"{mma} {sums}, {{$8, $9}}, {{$12}}, {{$4, $5, $6, $7}}; {mma} {sums}, {{$10, $11}}, {{$13}}, {sums};"
        constraints = ",".join([f"=&{letter}"] * 4 + [letter] * 4 + ["r"] * 6)  # written before all is read

        @intrinsic
        def two(
            typing: Any, c0: Any, c1: Any, c2: Any, c3: Any, a0: Any, a1: Any, a2: Any, a3: Any, b0: Any, b1: Any
        ) -> Any:
            available(name)
            numbers(name, c0, c1, c2, c3, a0, a1, a2, a3, b0, b1, kind=kind)

            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                words = [builder.bitcast(one, i32) for one in args[4:]]
                returns = ir.LiteralStructType([number] * 4)
                found = convert(builder, returns, text, constraints, *args[:4], *words, attrs=("convergent",))
                return cgutils.pack_array(builder, [builder.extract_value(found, k) for k in range(4)])

            return types.UniTuple(kind, 4)(*[kind] * 10), generate

        return two

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

    def sums(name: str, acc: Any, n: Any) -> int:
        """How many of a group's 64 x n sums a lane has, in the local array acc. n: of columns, a literal."""
        checked(name, acc, n)
        if acc.ndim != 1:
            raise errors.TypingError(f"ptx.{name} takes a local array of one dimension, not {acc}")
        if not isinstance(n, types.IntegerLiteral):  # Numba asks again with the literal's value
            raise errors.RequireLiteralValue(f"ptx.{name} takes a literal number of columns")
        if n.literal_value % 8 or not 8 <= n.literal_value <= 256:
            raise errors.TypingError(f"ptx.{name} takes 8 to 256 columns, a multiple of 8, not {n.literal_value}")
        return n.literal_value // 2

    def on_sums(context: Any, builder: Any, acc: Any, array: Any, count: int, text: str, *more: Any) -> Any:
        """An instruction that has the sums as operands 0 to count - 1, in and out: none of them moves across it."""
        start = context.make_array(acc)(context, builder, array).data
        at = [builder.gep(start, [ir.Constant(i64, k)], source_etype=f32) for k in range(count)]
        values = [builder.load(one) for one in at]
        constraints = ",".join(["=f"] * count + ["l"] * len(more) + [f"{k}" for k in range(count)])
        found = line(builder, ir.LiteralStructType([f32] * count), text, constraints, *more, *values)
        for k, one in enumerate(at):
            builder.store(builder.extract_value(found, k), one)
        return context.get_dummy_value()

    def group_product(name: str, kind: str) -> Any:
        @intrinsic
        def wgmma(typing: Any, acc: Any, n: Any, shared: Any, a: Any, b: Any) -> Any:
            available(name)
            count = sums(name, acc, n)
            checked(name, shared, a)
            checked(name, shared, b)

            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                def descriptor(index_type: Any, index: Any) -> Any:
                    at = address(context, builder, shared, args[2], index_type, index, True)
                    at = builder.lshr(builder.and_(at, ir.Constant(i32, 0x3FFFF)), ir.Constant(i32, 4))
                    # 1,024 bytes from 8 rows to the next 8; rows of 128 bytes, swizzled; the other distance has no use
                    layout = 1 << 62 | (1024 >> 4) << 32 | 1 << 16
                    return builder.or_(builder.zext(at, i64), ir.Constant(i64, layout))

                places = ", ".join(f"${k}" for k in range(count))
                text = f"wgmma.mma_async.sync.aligned.m64n{2 * count}k16.f32.{kind}.{kind} {{{places}}}, "
                text += f"${count}, ${count + 1}, 1, 1, 1, 0, 0;"
                both = descriptor(a, args[3]), descriptor(b, args[4])
                return on_sums(context, builder, acc, args[0], count, text, *both)

            return types.void(acc, n, shared, a, b), generate

        return wgmma

    def sparse_group_product(name: str, kind: str) -> tuple[Any, Any]:
        """The product of B's columns, and that of its rows (_trans), which has their blocks' distance besides."""

        def started(name: str, given: tuple[Any, ...], pitch: int) -> Any:
            acc, n, shared, a, b, metadata, selector = given
            available(name)
            count = sums(name, acc, n)
            checked(name, shared, a)
            checked(name, shared, b)
            numbers(name, metadata, kind=types.int32)
            chosen(name, selector)

            def generate(context: Any, builder: Any, args: Any) -> Any:
                def descriptor(index_type: Any, index: Any, row_bytes: int, apart: int = 16) -> Any:
                    at = address(context, builder, shared, args[2], index_type, index, True)
                    at = builder.lshr(builder.and_(at, ir.Constant(i32, 0x3FFFF)), ir.Constant(i32, 4))
                    # 8 rows' bytes from 8 rows to the next 8; rows of 128 bytes or of 64, swizzled; of B's rows, those
                    # of 64 columns begin so many bytes apart
                    layout = {128: 1, 64: 2}[row_bytes] << 62 | (8 * row_bytes >> 4) << 32 | (apart >> 4) << 16
                    return builder.or_(builder.zext(at, i64), ir.Constant(i64, layout))

                places = ", ".join(f"${k}" for k in range(count))
                text = f"{{ .reg .b32 e; cvt.u32.u64 e, ${count + 2}; "  # on_sums takes 64 bits
                text += f"wgmma.mma_async.sp.sync.aligned.m64n{2 * count}k32.f32.{kind}.{kind} {{{places}}}, "
                text += f"${count}, ${count + 1}, e, {selector.literal_value}, 1, 1, 1, 0, {int(pitch > 0)}; }}"
                of_b = descriptor(b, args[4], 128, 4 * pitch or 16)
                both = descriptor(a, args[3], 64), of_b, builder.zext(args[5], i64)
                return on_sums(context, builder, acc, args[0], count, text, *both)

            return generate

        @intrinsic
        def wgmma(typing: Any, acc: Any, n: Any, shared: Any, a: Any, b: Any, metadata: Any, selector: Any) -> Any:
            start = started(name, (acc, n, shared, a, b, metadata, selector), 0)

            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                return start(context, builder, args)

            return types.void(acc, n, shared, a, b, types.int32, selector), generate

        @intrinsic
        def wgmma_trans(
            typing: Any, acc: Any, n: Any, shared: Any, a: Any, b: Any, pitch: Any, metadata: Any, selector: Any
        ) -> Any:
            if not isinstance(pitch, types.IntegerLiteral):  # Numba asks again with the literal's value
                raise errors.RequireLiteralValue(f"ptx.{name}_trans takes a literal number of words")
            columns = getattr(n, "literal_value", 64)
            if why := wrong_rows(columns, pitch.literal_value):
                raise errors.TypingError(f"ptx.{name}_trans {why}")
            start = started(f"{name}_trans", (acc, n, shared, a, b, metadata, selector), pitch.literal_value)

            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                return start(context, builder, [*args[:5], *args[6:]])

            return types.void(acc, n, shared, a, b, pitch, types.int32, selector), generate

        return wgmma, wgmma_trans

    @intrinsic
    def group_fence(typing: Any, acc: Any, n: Any) -> Any:
        available("wgmma_fence")
        count = sums("wgmma_fence", acc, n)

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return on_sums(context, builder, acc, args[0], count, "wgmma.fence.sync.aligned;")

        return types.void(acc, n), generate

    @intrinsic
    def group_wait(typing: Any, acc: Any, n: Any, groups: Any) -> Any:
        available("wgmma_wait")
        count = sums("wgmma_wait", acc, n)
        if not isinstance(groups, types.IntegerLiteral):
            raise errors.RequireLiteralValue("ptx.wgmma_wait takes a literal number of groups")
        if not 0 <= groups.literal_value <= 7:
            raise errors.TypingError(f"ptx.wgmma_wait takes 0 to 7 groups, not {groups.literal_value}")

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            text = f"wgmma.wait_group.sync.aligned {groups.literal_value};"
            return on_sums(context, builder, acc, args[0], count, text)

        return types.void(acc, n, groups), generate

    @intrinsic
    def sparse_group_wait(typing: Any, acc: Any, n: Any, groups: Any, first: Any, second: Any) -> Any:
        available("wgmma_sp_wait")
        count = sums("wgmma_sp_wait", acc, n)
        numbers("wgmma_sp_wait", first, second, kind=types.int32)
        if not isinstance(groups, types.IntegerLiteral):
            raise errors.RequireLiteralValue("ptx.wgmma_sp_wait takes a literal number of groups")
        if not 0 <= groups.literal_value <= 7:
            raise errors.TypingError(f"ptx.wgmma_sp_wait takes 0 to 7 groups, not {groups.literal_value}")

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            # The assembler gives a register to something else after its last use that it sees, and the product's, which
            # goes on, it does not count. So there is one behind the wait, of a sum too, which is not there before:
            # the lesser of the two as bits is all ones only if both are, and no metadata are.
            text = "{ .reg .pred p; .reg .b32 e, f; "
            text += f"wgmma.wait_group.sync.aligned {groups.literal_value}; "
            for k in (count, count + 1):
                text += f"cvt.u32.u64 f, ${k}; mov.b32 e, $0; min.u32 e, e, f; setp.eq.u32 p, e, 0xffffffff; @p trap; "
            both = (builder.zext(one, i64) for one in args[3:])
            return on_sums(context, builder, acc, args[0], count, text + "}", *both)

        return types.void(acc, n, groups, types.int32, types.int32), generate

    def bare(name: str, text: str) -> Any:
        @intrinsic
        def one(typing: Any) -> Any:
            available(name)

            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                line(builder, void, text, "")
                return context.get_dummy_value()

            return types.void(), generate

        return one

    def on_mbarrier(name: str, text: str) -> Any:
        """An instruction on an mbarrier, two words of a shared array, with a number where its text has $1."""

        def typed(shared: Any, index: Any, *number: Any) -> Any:
            available(name)
            checked(name, shared, index)
            if not all(isinstance(one, types.Integer) for one in number):
                raise errors.TypingError(f"ptx.{name} takes a whole number, not {number[0]}")

            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                at = address(context, builder, shared, args[0], index, args[1], True)
                line(builder, void, text, ",".join("r" * len(args[1:])), at, *(word(builder, one) for one in args[2:]))
                return context.get_dummy_value()

            return types.void(shared, index, *number), generate

        def one(typing: Any, shared: Any, index: Any) -> Any:
            return typed(shared, index)

        def two(typing: Any, shared: Any, index: Any, number: Any) -> Any:
            return typed(shared, index, number)

        made = two if "$1" in text else one
        made.__name__ = name
        return intrinsic(made)

    def word(builder: Any, number: Any) -> Any:
        return builder.trunc(number, i32) if number.type.width > 32 else number

    @intrinsic
    def copy_box(
        typing: Any, shared: Any, i: Any, source: Any, lines: Any, width: Any, box: Any, first: Any, at: Any, bar: Any,
        words: Any = None,
    ) -> Any:  # fmt: skip
        name = "copy_box_async"
        available(name)
        for array, index in ((shared, i), (source, first), (source, at), (shared, bar)):
            checked(name, array, index)
        given = () if words is None else (words,)
        sizes = lines, width, box, *given
        if not all(isinstance(one, types.IntegerLiteral) for one in sizes):  # Numba asks again with the values
            raise errors.RequireLiteralValue(f"ptx.{name} takes literal numbers of lines, words and lines of a box")
        sizes = tuple(one.literal_value for one in sizes)
        if why := wrong_box(*sizes):
            raise errors.TypingError(f"ptx.{name} {why}")

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            symbol = "_".join(("tensor_map", *map(str, sizes)))
            constant = builder.module.globals.get(symbol)
            if constant is None:
                kind = ir.ArrayType(ir.IntType(8), 128)
                constant = ir.GlobalVariable(builder.module, kind, symbol, addrspace=4)  # __constant__
                constant.global_constant, constant.align, constant.linkage = True, 64, "internal"
                constant.initializer = ir.Constant(kind, bytearray(tensor_map(*sizes)))
            described = builder.ptrtoint(builder.addrspacecast(constant, ir.PointerType(constant.value_type)), i64)
            where = builder.ptrtoint(context.make_array(source)(context, builder, args[2]).data, i64)
            low = builder.and_(builder.trunc(builder.lshr(where, i64(UNIT)), i32), i32(2 ** (PAGE - UNIT) - 1))
            high = builder.trunc(builder.lshr(where, i64(PAGE)), i32)
            to = address(context, builder, shared, args[0], i, args[1], True)
            done = address(context, builder, shared, args[0], bar, args[8], True)
            text = "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
            text += "[$0], [$1, {$2, $3, $4, $5}], [$6];"
            corner = word(builder, args[7]), word(builder, args[6]), low, high
            line(builder, void, text, "r,l,r,r,r,r,r", to, described, *corner, done)
            return context.get_dummy_value()

        words = words or types.Omitted(None)
        return types.void(shared, i, source, lines, width, box, first, at, bar, words), generate

    whole, real = types.int32, types.float32
    packed = "{ .reg .b32 w; cvt.pack.sat.s8.s32.b32 w, $4, $3, 0; cvt.pack.sat.s8.s32.b32 $0, $2, $1, w; }"
    rounded = "{ .reg .b32 w; cvt.rna.tf32.f32 w, $1; mov.b32 $0, w; }"
    waited = "{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; @p bra on; bra again; on: }"

    by_columns, by_rows = sparse_group_product("wgmma_sp_f16", "f16")

    return SimpleNamespace(
        tf32=plain("tf32", rounded, real, real),
        mma_tf32=product("mma_tf32", "m16n8k8.row.col.f32.tf32.tf32.f32"),
        mma_f16=product("mma_f16", "m16n8k16.row.col.f32.f16.f16.f32"),
        mma_bf16=product("mma_bf16", "m16n8k16.row.col.f32.bf16.bf16.f32"),
        mma_s8=product("mma_s8", "m16n8k32.row.col.s32.s8.s8.s32"),
        mma_sp_f16=sparse_product("mma_sp_f16", "m16n8k32.row.col.f32.f16.f16.f32"),
        mma_sp_s8=sparse_bytes("mma_sp_s8", "m16n8k64.row.col.s32.s8.s8.s32"),
        mma_tf32_k4=halves_of_k("mma_tf32_k4", "m16n8k4.row.col.f32.tf32.tf32.f32"),
        mma_f16_k8=halves_of_k("mma_f16_k8", "m16n8k8.row.col.f32.f16.f16.f32"),
        mma_bf16_k8=halves_of_k("mma_bf16_k8", "m16n8k8.row.col.f32.bf16.bf16.f32"),
        mma_s8_k16=halves_of_k("mma_s8_k16", "m16n8k16.row.col.s32.s8.s8.s32"),
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
        load4_l2=loads("load4_l2", "global.cg"),  # cached in the L2 only: what dwlab.measure.device reads
        load4_nc=loads("load4_nc", "global.nc"),
        load4_no_allocate=loads("load4_no_allocate", "global.L1::no_allocate"),
        load4_evict_first=loads("load4_evict_first", "global.L1::evict_first"),
        load2_nc=loads("load2_nc", "global.nc", 2),
        load2_no_allocate=loads("load2_no_allocate", "global.L1::no_allocate", 2),
        load2_evict_first=loads("load2_evict_first", "global.L1::evict_first", 2),
        store4_cs=stores("store4_cs", "global.cs"),
        store2_cs=stores_two("store2_cs", "global.cs"),
        load2=loads("load2", "global", 2),
        store2=stores_two("store2", "global"),
        store2_shared=stores_two("store2_shared", "shared"),
        copy4_async=copies("copy4_async", 4),
        copy4_async_zfill=copy_or_zeros,
        copy2_async=copies("copy2_async", 2),
        copy1_async=copies("copy1_async", 1),
        commit=commit_group,
        wait=wait_group,
        grid_dependency_wait=wait_for_grids,
        wgmma_f16=group_product("wgmma_f16", "f16"),
        wgmma_bf16=group_product("wgmma_bf16", "bf16"),
        wgmma_sp_f16=by_columns,
        wgmma_sp_f16_trans=by_rows,
        wgmma_fence=group_fence,
        wgmma_commit=bare("wgmma_commit", "wgmma.commit_group.sync.aligned;"),
        wgmma_wait=group_wait,
        wgmma_sp_wait=sparse_group_wait,
        fence_async=bare("fence_async", "fence.proxy.async.shared::cta;"),
        mbarrier_init=on_mbarrier("mbarrier_init", "mbarrier.init.shared::cta.b64 [$0], $1;"),
        mbarrier_expect=on_mbarrier("mbarrier_expect", "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;"),
        mbarrier_arrive=on_mbarrier("mbarrier_arrive", "mbarrier.arrive.shared::cta.b64 _, [$0];"),
        mbarrier_wait=on_mbarrier("mbarrier_wait", waited),
        copy_box_async=copy_box,
    )
