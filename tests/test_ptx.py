"""128-bit access and asynchronous copies: what they compute, what is counted, which mistakes are found."""

import functools
from unittest.mock import patch

import numpy as np
import pytest
from compiler import needs_compiler
from numba import float32, float64, int32, uint32
from wrong_kernels import edited

from dwlab import simt
from dwlab.compiler import inspect
from dwlab.gpu import target
from dwlab.kernels.parts import ptx
from dwlab.kernels.parts.instruction import instruction
from dwlab.target import cuda
from tests.loaded import program

ONE_WARP = 128  # elements that a warp moves with one instruction
TWO_WARPS = 256
THOUSAND = np.float32(1000)


def hazards(kernel, *args, grid=1, block=32):
    return simt.xray(kernel, grid, block, *args).hazards


def kinds(kernel, *args, grid=1, block=32):
    return [one.kind for one in hazards(kernel, *args, grid=grid, block=block)]


# ---- what they compute, in either mode, and what is counted


@cuda.jit
def turn(x, y):
    """Each lane's 4 elements to the lane opposite, last element first, through shared memory."""
    tile = cuda.shared.array(ONE_WARP, float32, 16)
    lane = uint32(cuda.threadIdx.x)
    start = cuda.blockIdx.x * 128
    ptx.copy4_async(tile, uint32(lane * uint32(4)), x, start + lane * 4)
    ptx.commit()
    ptx.wait(0)
    cuda.syncwarp()
    a, b, c, d = ptx.load4_shared(tile, uint32((31 - lane) * 4))
    cuda.syncwarp()
    ptx.store4_shared(tile, lane * 4, d, c, b, a)
    cuda.syncwarp()
    a, b, c, d = ptx.load4_shared(tile, int32(lane * 4))
    e, f, g, h = ptx.load4(x, start + lane * 4)
    ptx.store4(y, start + lane * 4, a + THOUSAND * e, b + THOUSAND * f, c + THOUSAND * g, d + THOUSAND * h)


def test_what_goes_in_comes_out_where_it_should():
    x = np.arange(3 * ONE_WARP, dtype=np.float32)
    y = np.full_like(x, np.nan)
    turn[3, 32](x, y)
    np.testing.assert_array_equal(y, x.reshape(3, -1)[:, ::-1].ravel() + 1000 * x)


TURN = """
def kernel(x, y):
    tile = cuda.shared.array(ONE_WARP, float32, 16)
    lane, start = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x * 64)
    MOVES
"""
# Each lane's 2 elements of 64 to the place opposite, last element first: how they are moved, and what of it is counted
# in three blocks: (array, kind, bytes a lane, requests, sectors, bytes).
MOVES = {
    "loaded, and stored to shared memory": ("""
    a, b = ptx.load2(x, uint32(start + lane * 2))
    ptx.store2_shared(tile, uint32((31 - lane) * 2), b, a)
    cuda.syncwarp()
    y[start + lane], y[start + lane + 32] = tile[lane], tile[lane + 32]
    """, [("tile", "store", 8, 3, 0, 768), ("x", "load", 8, 3, 24, 768)]),
    "stored": ("""
    a, b = ptx.load2(x, uint32(start + lane * uint32(2)))
    ptx.store2(y, uint32(start + uint32((31 - lane) * 2)), b, a)
    """, [("x", "load", 8, 3, 24, 768), ("y", "store", 8, 3, 24, 768)]),
    "copied, by half of the lanes one by one": ("""
    if lane < uint32(16):
        ptx.copy2_async(tile, uint32(lane * uint32(2)), x, uint32(start + lane * uint32(2)))
    else:
        ptx.copy1_async(tile, uint32(lane * uint32(2)), x, uint32(start + lane * uint32(2)))
        ptx.copy1_async(tile, uint32(lane * uint32(2) + uint32(1)), x, uint32(start + lane * uint32(2) + uint32(1)))
    ptx.commit()
    ptx.wait(0)
    cuda.syncwarp()
    y[start + lane * 2], y[start + lane * 2 + 1] = tile[63 - lane * 2], tile[62 - lane * 2]
    """, [("tile", "store", 8, 3, 0, 384), *[("x", "load", 4, 3, 12, 192)] * 2, ("x", "load", 8, 3, 12, 384)]),
}  # fmt: skip


@functools.cache
def turn_of_pairs(moves):
    edit = f"MOVES => {MOVES[moves][0].strip()}"
    return edited(TURN, "turn_of_pairs", edit, ptx=ptx, ONE_WARP=ONE_WARP, uint32=uint32)


@pytest.mark.parametrize("moves", MOVES)
def test_pairs_and_single_elements_too_and_what_is_counted_of_them(moves):
    x = np.arange(192, dtype=np.float32)
    y, kernel, wanted = np.full_like(x, np.nan), turn_of_pairs(moves), MOVES[moves][1]
    kernel[3, 32](x, y)
    np.testing.assert_array_equal(y, x.reshape(3, -1)[:, ::-1].ravel())
    report = simt.xray(simt.jit(kernel.py_func) if target.mode == "gpu" else kernel, 3, 32, x, y)
    found = sorted((a.array, a.kind, a.itemsize, a.requests, a.sectors, a.bytes_used) for a in report.accesses)
    assert [one for one in found if one[2] == 8 or one[0] == "x"] == wanted and report.hazards == ()
    stores = [a for a in report.accesses if (a.array, a.kind, a.itemsize) == ("tile", "store", 8)]
    assert [(a.wavefronts, a.bank_conflicts) for a in stores if a.bytes_used == 768] in ([], [(6, 0)])


@cuda.jit
def turn_filled(x, y):
    """Each lane's 4 elements to the lane opposite, last element first; of the upper half zeros, and x is not read."""
    tile = cuda.shared.array(ONE_WARP, float32, 16)
    lane, start = uint32(cuda.threadIdx.x), uint32(cuda.blockIdx.x * 64)
    inside = lane < uint32(16)
    ptx.copy4_async_zfill(tile, uint32(lane * uint32(4)), x, uint32(start + lane * uint32(4)), inside)
    ptx.commit()
    ptx.wait(0)
    cuda.syncwarp()
    a, b, c, d = ptx.load4_shared(tile, uint32(124) - lane * uint32(4))
    ptx.store4(y, uint32(cuda.blockIdx.x * 128) + lane * uint32(4), d, c, b, a)


def test_copies_bring_zeros_where_they_are_told_to():
    x, y = np.arange(1, 129, dtype=np.float32), np.full(256, np.nan, np.float32)
    turn_filled[2, 32](x, y)
    want = np.concatenate([x.reshape(2, 64), np.zeros((2, 64), np.float32)], axis=1)[:, ::-1]
    np.testing.assert_array_equal(y.reshape(2, 128), want)


@pytest.mark.parametrize(("name", "size", "first"), [("copy2_async", 2, 1), ("copy1_async", 1, 0)])
def test_copies_of_two_begin_at_even_places_and_none_is_there_before_it_is_waited_for(name, size, first):
    def kernel(first, offset):
        lines = [f"tile = cuda.shared.array({ONE_WARP}, float32, 16)", f"i = cuda.threadIdx.x * {size}"]
        lines += [f"ptx.{name}(tile, i, x, i + {first})", "ptx.commit()", f"y[i] = tile[i + {offset}]", "ptx.wait(0)"]
        return program(lines, "x, y", float32=float32, ptx=ptx)[0]

    arrays = np.ones(ONE_WARP, np.float32), np.zeros(ONE_WARP, np.float32)
    assert kinds(kernel(0, size - 1), *arrays) == ["race"]  # at its last element too
    (outside,) = [one for one in hazards(kernel(ONE_WARP - 31 * size, 0), *arrays) if one.kind == "out of bounds"]
    assert f"elements {ONE_WARP} to {ONE_WARP + size - 1}" in outside.message and "thread 31" in outside.message
    if first:
        found = hazards(kernel(first, 0), *arrays)
        assert found[0].kind == "misaligned" and "ptx.copy2_async takes indices that are multiples of 2" in str(found)


def test_indices_run_through_all_dimensions_and_views_begin_where_they_begin():
    @cuda.jit
    def copy(x, y):
        i = cuda.threadIdx.x * 4
        if i < 24:
            a, b, c, d = ptx.load4(x[1], i)
            ptx.store4(y, i, a, b, c, d)

    x = np.arange(2 * 4 * 6, dtype=np.float32).reshape(2, 4, 6)
    y = np.zeros((2, 3, 4), np.float32)
    copy[1, 32](x, y)
    np.testing.assert_array_equal(y.ravel(), x[1].ravel())


def test_lanes_that_take_other_ways_have_groups_of_their_own():
    @cuda.jit
    def odd(x, y):
        tile = cuda.shared.array(ONE_WARP, float32, 16)
        i = cuda.threadIdx.x * 4
        if cuda.threadIdx.x % 2:
            ptx.copy4_async(tile, i, x, i)
            ptx.commit()
        else:
            ptx.store4_shared(tile, i, float32(-1), float32(-2), float32(-3), float32(-4))
        ptx.wait(0)
        cuda.syncwarp()
        a, b, c, d = ptx.load4_shared(tile, 124 - i)
        ptx.store4(y, i, a, b, c, d)

    x = np.arange(128, dtype=np.float32)
    y = np.zeros_like(x)
    odd[1, 32](x, y)
    want = x.reshape(32, 4).copy()
    want[::2] = [-1, -2, -3, -4]
    np.testing.assert_array_equal(y.reshape(32, 4), want[::-1])


def test_an_access_of_16_bytes_is_one_request_of_16_sectors():
    x = np.zeros(ONE_WARP, np.float32)
    report = simt.xray(turn, 1, 32, x, x.copy())
    assert report.hazards == ()
    by = {(a.line, a.array, a.kind): a for a in report.accesses}
    lines = sorted({line for line, *_ in by})
    by_line = [a for line in lines for a in report.accesses if a.line == line]
    assert {(a.itemsize, a.requests, a.bytes_used, a.active_lanes) for a in by_line} == {(16, 1, 512, 32)}
    found = [(a.array, a.kind, a.sectors, a.wavefronts) for a in by_line]
    store, load = ("tile", "store", 0, 4), ("tile", "load", 0, 4)
    assert sorted(found[:2]) == [store, ("x", "load", 16, 0)]
    assert found[2:] == [load, store, load, ("x", "load", 16, 0), ("y", "store", 16, 0)]
    assert report.totals.bank_conflicts == 0 and report.totals.sectors == 48
    assert report.footprint == {"x": 16, "y": 16}


# ---- which mistakes are found


BARE = """
def kernel(x, y):
    tile = cuda.shared.array(128, float32, 16)
    lane = cuda.threadIdx.x
    WHAT
"""
FOUR = "float32(1), float32(2), float32(3), float32(4)"
FAULTS = [  # what each lane does with x, of so many elements, or y, of 64; the hazard, and what is said of it
    ("y[lane] = ptx.load4(x, lane * 4 + 2)[0]", 140, "misaligned", "index 2 in thread 0 of block 0 | multiples of 4"),
    ("y[lane] = ptx.load4(x[1:], lane * 4)[0]", 200, "misaligned", "does not start at a multiple of 16 bytes"),
    ("ptx.store2(x, lane * 2 + 1, x[0], x[0])", 128, "misaligned", "ptx.store2 | multiples of 2"),
    ("ptx.store2(x, lane * 2 + 66, x[0], x[0])", 128, "out of bounds", "elements 128 to 129 (size 128) in thread 31"),
    *((f"y[lane] = ptx.load4(x, lane * 4 + {index})[0]", 128, "out of bounds",
       f"elements {at} to {at + 3} (size 128) in thread {lane} of block 0")
      for index, lane, at in ((4, 31, 128), (124, 1, 128), (-4, 0, -4), (10**9, 0, 10**9))),
    (f"ptx.store4(y, lane // 2 * 4, {FOUR})", 1, "two writers", ""),
    *((f"ptx.store4_shared(tile, lane * 4, {FOUR})\n    y[lane] = tile[(31 - lane) * 4 + {k}]", 1, "race",
       f"syncwarp | element [{124 + k}]") for k in range(4)),
    ("for k in range(3):\n        tile[lane * 4 + k] = 1\n    y[lane] = ptx.load4_shared(tile, lane * 4)[0]", 1,
     "uninitialised", "element [3]"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "size", "kind", "says"), FAULTS)
def test_a_fault_of_any_of_the_elements_is_named(what, size, kind, says):
    kernel = edited(BARE, "bare", f"WHAT => {what}", ptx=ptx)
    (found,) = hazards(kernel, np.ones(size, np.float32), np.zeros(64, np.float32))
    assert found.kind == kind and all(one in found.message for one in says.split(" | ")), found.message


def test_a_misaligned_access_stops_the_kernel_even_where_hazards_are_off():
    store, _ = program([f"ptx.store4(y, 1, {FOUR})"], "y", float32=float32, ptx=ptx)
    with simt.using(simt.Options(hazards="off")), pytest.raises(simt.HazardError, match="misaligned"):
        store[1, 1](np.zeros(8, np.float32))


def test_arrays_of_another_type_and_views_with_gaps_are_refused():
    wide = ["128, float32, 16 => 8, float64", f"WHAT => ptx.store4_shared(tile, 0, {FOUR})"]
    y = np.zeros((32, 4), np.float32)
    for edits, says in (
        (wide, "ptx.store4_shared takes a float32 array; tile is float64"),
        ([f"WHAT => ptx.store4(y[:, 0], 0, {FOUR})"], "ptx.store4 takes a C-contiguous array"),
    ):
        with pytest.raises(simt.UnsupportedError, match=says):
            simt.xray(edited(BARE, "bare", *edits, ptx=ptx, float64=float64), 1, 32, None, y)


# ---- asynchronous copies


COPIED = """
def kernel(x, y):
    tile = cuda.shared.array(ONE_WARP, float32, 16)
    i = cuda.threadIdx.x * 4
    ptx.copy4_async(tile, i, x, i)
    ptx.commit()
    ptx.wait(0)
    y[i] = tile[i]
"""
ANOTHERS = "= tile[i] => = tile[124 - i]"
STORED = "ptx.store4_shared(tile, i, float32(1), float32(2), float32(3), float32(4))"


@pytest.mark.parametrize(
    ("name", "says", "edits"),
    [
        ("read_at_once", "while the asynchronous copy of line",
         ["ptx.wait(0)\n    y[i] = tile[i] => y[i] = tile[i]\n    ptx.wait(0)"]),
        ("never_committed", "ptx.commit()", ["    ptx.commit()\n => "]),
        ("one_group_too_few", "ptx.wait(0)", ["wait(0) => wait(1)"]),
        ("no_barrier", "cuda.syncwarp()", [ANOTHERS]),
        ("barrier_before_the_wait", "cuda.syncwarp()", [ANOTHERS, "ptx.wait(0) => cuda.syncwarp()\n    ptx.wait(0)"]),
        ("warp_barrier_for_a_block", "cuda.syncthreads()",
         ["ONE_WARP => TWO_WARPS", "wait(0) => wait(0)\n    cuda.syncwarp()", "= tile[i] => = tile[252 - i]"]),
        ("written_on_its_way", "element [2] while the asynchronous copy of line",
         ["ptx.wait(0) => tile[i + 2] = 0\n    ptx.wait(0)"]),
        ("copied_over_what_is_read", "cuda.syncwarp()",
         ["    y[i] = tile[i]\n => ",
          f"ptx.copy4_async => {STORED}\n    cuda.syncwarp()\n    y[i] = tile[124 - i]\n    ptx.copy4_async"]),
        ("two_to_one_place", "while the asynchronous copy of line",
         ["ptx.commit() => ptx.copy4_async(tile, i, x, 124 - i)\n    ptx.commit()"]),
    ],
)  # fmt: skip
def test_a_copy_that_is_not_waited_for_is_a_race(name, says, edits):
    x = np.arange(256, dtype=np.float32)
    kernel = edited(COPIED, name, *edits, ptx=ptx, ONE_WARP=ONE_WARP, TWO_WARPS=TWO_WARPS)
    found = hazards(kernel, x, np.zeros_like(x), block=64 if "TWO_WARPS" in edits[0] else 32)
    assert {one.kind for one in found} == {"race"}
    assert says in found[0].message


def test_what_is_on_its_way_is_not_there_yet():
    """The interpreter lands a copy at the wait, and no sooner: a kernel that reads too early gets what was there."""
    sevens = ", ".join(["float32(7)"] * 4)
    kernel = edited(
        COPIED, "early", f"ptx.copy4_async => ptx.store4_shared(tile, i, {sevens})\n    ptx.copy4_async",
        "y[i] = tile[i] => y[i] = early + 100 * tile[i]", "ptx.wait(0) => early = tile[i]\n    ptx.wait(0)",
        ptx=ptx, ONE_WARP=ONE_WARP,
    )  # fmt: skip
    x = np.arange(128, dtype=np.float32)
    y = np.zeros_like(x)
    with simt.using(simt.Options(hazards="off")):
        simt.jit(kernel.py_func)[1, 32](x, y)
    np.testing.assert_array_equal(y[::4], 7 + 100 * x[::4])


def test_blocks_of_several_batches_keep_their_copies_apart():
    x = np.random.default_rng(0).random(200 * ONE_WARP, dtype=np.float32)
    y = np.zeros_like(x)
    with simt.using(simt.Options(lanes=64)):
        simt.jit(turn.py_func)[200, 32](x, y)
    np.testing.assert_array_equal(y, x.reshape(200, -1)[:, ::-1].ravel() + np.float32(1000) * x)


# ---- outside a kernel, and compiled


@pytest.mark.parametrize("name", sorted(ptx.TABLE))
def test_an_instruction_is_for_kernels(name):
    with pytest.raises((TypeError, NotImplementedError), match="kernel|pure-python"):
        getattr(ptx, name)(*[0] * len(ptx.TABLE[name].takes))


# Of each letter (dwlab.gpu.inline_ptx) an argument that is right, one that is not, and what the interpreter says of it.
LETTERS = {
    "g": ("x", "tile", "takes a global array; this is a shared array"),
    "s": ("tile", "x", "takes a shared array; this is a global|takes operands in a float32 array of shared memory"),
    "x": ("0", "0.5", "an index must be an integer, not float64"),
    "f": ("float32(0)", "0.5", "takes float32, not float64"),
    "i": ("int32(0)", "float32(0)", "takes int32, not float32"),
    "n": ("1", "0.5", "takes a whole number, not float64"),
    "z": ("k == k", "k", "takes a truth value for inside, not int32"),
    "a": ("acc", "x", r"takes a cuda.local.array of float32 for \d+ sums a lane"),
}
LETTERS |= {"w": LETTERS["f"], "m": LETTERS["i"], "d": LETTERS["x"], "h": LETTERS["x"], "r": LETTERS["x"]}
CALL = """
def kernel(x):
    tile = cuda.shared.array(4096, float32)
    acc = cuda.local.array(128, float32)
    k = cuda.threadIdx.x
    ptx.INSTRUCTION
"""


def calls(row):
    """Right arguments of a row, and (an argument that is wrong, what is said of it) for each that may be."""
    right, wrong = {}, []
    for name, letter in row.takes.items():
        if letter == "l":
            allowed = row.literals[name]
            right[name] = str(max(allowed[0], 64))  # in all of these sets but the small ones
            right[name] = right[name] if int(right[name]) in allowed else str(allowed[0])
            wrong.append((name, "k", f"takes a literal {name}, "))
            ends = allowed[0] - 1, allowed[-1] + 1
            wrong += [(name, str(value), f"takes a literal {name}, .*, not {value}") for value in ends]
        elif letter == "F":
            right[name] = "1"
        else:
            right[name], other, says = LETTERS[letter]
            wrong.append((name, other, says))
    return right, wrong


def called(row, arguments):
    call = f"{row.name}({', '.join(arguments)})"
    return edited(CALL, "called", f"INSTRUCTION => {call}", ptx=ptx)


@pytest.mark.parametrize("name", sorted(set(ptx.TABLE) - {"magnitude"}))
def test_what_an_instruction_does_not_take_is_refused(name):
    """An argument of another kind, a literal that is none or out of range, too few or too many, an older GPU."""
    row, x, old = ptx.TABLE[name], np.zeros(4096, np.float32), simt.Options(compute_capability=(6, 0))
    right, wrong = calls(row)
    cases = [(list((right | {one: other}).values()), says) for one, other, says in wrong]
    cases.append(([*right.values(), "0"], f"ptx.{name} takes .*, not {len(right) + 1} values"))
    for arguments, says in cases:
        with pytest.raises(simt.UnsupportedError, match=says):
            simt.xray(called(row, arguments), 1, 128, x, options=simt.Options(hazards="off"))
    if row.since > (6, 0):
        says = f"ptx.{name} needs compute capability {'.'.join(map(str, row.since))}; this GPU has 6.0"
        with pytest.raises(simt.UnsupportedError, match=says):
            simt.xray(called(row, right.values()), 1, 128, x, options=old)
    else:
        assert ptx.lacks(name, (6, 0)) == ""


@needs_compiler
def test_what_an_instruction_does_not_take_is_refused_by_the_compiler_too():
    told = {
        ("load4", "index"): "takes an integer index, not float64", ("tf32", "x"): "takes float32, not float64",
        ("copy4_async_zfill", "inside"): "takes a truth value for inside", ("dp4a", "b"): "takes int32, not float32",
        ("mma_sp_f16", "selector"): "takes a literal selector, 0 or 1, not 2",
        ("wgmma_sp_f16", "selector"): "takes a literal selector, 0 or 1, not 2",
        ("wgmma_sp_f16_trans", "pitch"): "takes a literal pitch, 1,024 to 65,280, a multiple of 256, not 65281",
        ("wgmma_fence", "n"): "takes a literal n, 8 to 256, a multiple of 8, not 257",
        ("copy_box_async", "box"): "takes a literal box, 1 to 256, not 257",
        ("mbarrier_init", "count"): "takes a whole number, not float64",
    }  # fmt: skip
    jobs = []
    for name, argument in told:
        right, wrong = calls(ptx.TABLE[name])
        *_, other = (value for one, value, _ in wrong if one == argument)
        kernel = called(ptx.TABLE[name], (right | {argument: other}).values())
        jobs.append(inspect._job(kernel, None, "void(float32[::1])", None, 0))
    for ((name, _), says), found in zip(told.items(), inspect._ask(jobs, (9, 0)), strict=True):
        assert f"ptx.{name} {says}" in found["error"]


@instruction("abs.f32 $0, $1;", "f -> f", lambda run, node, x: np.abs(x), since=(8, 0))
def magnitude(x):
    """x without its sign."""


ADDED = ptx.TABLE.pop("magnitude")  # other tests see the package's own rows


@cuda.jit
def magnitudes(x, y):
    y[cuda.grid(1)] = magnitude(x[cuda.grid(1)])


def test_a_new_instruction_is_one_definition():
    x, y = np.linspace(-1, 1, 32, dtype=np.float32), np.zeros(32, np.float32)
    magnitudes[1, 32](x, y)
    np.testing.assert_array_equal(y, np.abs(x))
    for options, args, says in (
        (simt.Options(compute_capability=(7, 5)), (x, y), "ptx.magnitude needs compute capability 8.0"),
        (simt.Options(), (x.astype(np.float64), y), "ptx.magnitude takes float32, not float64"),
    ):
        with pytest.raises(simt.UnsupportedError, match=says):
            simt.xray(magnitudes, 1, 32, *args, options=options)
    with patch.dict(ptx.TABLE, magnitude=ADDED):
        assert ("magnitude(x)", "abs.f32", "8.0", "x without its sign.") in ptx.rows()


@needs_compiler
def test_a_new_instruction_is_compiled():
    made = inspect.compile(magnitudes, signature="void(float32[::1], float32[::1])", cc="8.0")
    assert made.ptx.count("abs.f32") == 1
    with pytest.raises(inspect.InspectError, match="ptx.magnitude takes float32, not float64"):
        inspect.compile(magnitudes, signature="void(float64[::1], float32[::1])", cc="8.0")


@needs_compiler
def test_each_is_one_line_of_ptx():
    two = "void(float32[::1], float32[::1])"
    kernels = (turn, turn_of_pairs("stored"), turn_of_pairs("copied, by half of the lanes one by one"), turn_filled)
    text = "".join(inspect.compile(one, signature=two, cc="9.0").ptx for one in kernels)
    for line, times in (
        ("cp.async.cg.shared.global [%r", 2), ("cp.async.commit_group;", 3), ("cp.async.wait_group 0;", 3),
        ("], 16, %r", 1),
        ("ld.shared.v4.f32 {", 3), ("st.shared.v4.f32 [%r", 1), ("ld.global.v4.f32 {", 1), ("st.global.v4.f32 [%rd", 2),
        ("ld.global.v2.f32 {", 1), ("st.global.v2.f32 [%rd", 1), ("cp.async.ca.shared.global [%r", 3), ("], 8;", 1),
    ):  # fmt: skip
        assert text.count(line) == times, line
    assert "__local_depot" not in text and ".f64" not in text
