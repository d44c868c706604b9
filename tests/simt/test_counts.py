"""Counts equal analytic counts, exactly, for families of access patterns.

The expected numbers come from formulas, or from ``sectors_of`` and ``wavefronts_of`` below, which enumerate one warp's
byte addresses in plain Python from the definitions. Nothing here is computed by the code under test.
"""

import math

import numpy as np
import pytest
from numba import complex64, complex128, float32, float64, int8, int16

from dwlab import simt
from dwlab.simt import cuda
from dwlab.simt.state import State
from tests.loaded import kernel_of, loaded, program

pytestmark = pytest.mark.quick

# Of 16 bytes are the accesses of dwlab.kernels.parts.ptx only (test_ptx_shared.py): a complex128 is two of 8, see
# below.
DTYPES = {1: np.int8, 2: np.int16, 4: np.float32, 8: np.float64}
NUMBA = {1: int8, 2: int16, 4: float32, 8: float64}


def access(report, array, kind, space="global"):
    """The one access of this kind to this array."""
    found = [a for a in report.accesses if (a.array, a.kind, a.space) == (array, kind, space)]
    assert len(found) == 1, f"{array} {kind} {space}: {found} of {report.accesses}"
    return found[0]


def sectors_of(addresses, itemsize):
    """Distinct 32-byte sectors of one warp's byte addresses."""
    return {s for a in addresses for s in range(a // 32, (a + itemsize - 1) // 32 + 1)}


def expect_global(entry, warps, itemsize):
    """Check an access against the byte addresses of each warp's active lanes."""
    warps = [list(w) for w in warps]
    warps = [w for w in warps if w]
    distinct = [len(set(w)) for w in warps]
    assert entry.itemsize == itemsize
    assert entry.requests == len(warps)
    assert entry.active_lanes == sum(map(len, warps))
    assert entry.sectors == sum(len(sectors_of(w, itemsize)) for w in warps)
    assert entry.bytes_moved == 32 * entry.sectors
    assert entry.bytes_used == itemsize * sum(distinct)
    assert entry.ideal_sectors == sum(-(-n * itemsize // 32) for n in distinct)


def wavefronts_of(addresses, itemsize):
    """Passes of shared memory for one warp; ``addresses`` has 32 entries, None for an inactive lane."""
    lanes_a_phase = 32 if itemsize <= 4 else 128 // itemsize
    total = ideal = 0
    for start in range(0, 32, lanes_a_phase):
        words = {
            (a + b) // 4
            for a in addresses[start : start + lanes_a_phase]
            if a is not None
            for b in range(0, itemsize, min(4, itemsize))
        }
        if words:
            banks = [w % 32 for w in words]
            total += max(banks.count(b) for b in set(banks))
            ideal += 1
    return total, ideal


def warps_of(grid, block):
    """Lists of (block index, thread index), 32 lanes each, in the hardware's sequence: x fastest, then y, then z."""
    for bz in range(grid[2]):
        for by in range(grid[1]):
            for bx in range(grid[0]):
                threads = [
                    ((bx, by, bz), (x, y, z)) for z in range(block[2]) for y in range(block[1]) for x in range(block[0])
                ]
                for start in range(0, len(threads), 32):
                    yield threads[start : start + 32]


# --- one dimension: stride, offset, size of an element, number of threads --------------------------


gather = kernel_of("x, y, stride, offset", "i = cuda.grid(1)", "j = i * stride + offset", "if j < x.size: y[i] = x[j]")


@pytest.mark.family(0.05, by=("kind", "stride", "offset"))
@pytest.mark.parametrize("kind", ["i1", "i2", "f4", "f8", "c8", "c16"])
@pytest.mark.parametrize("stride", [1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 33])
@pytest.mark.parametrize("offset", [0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 33])
def test_strided_and_misaligned_elements(kind, stride, offset):
    """A complex number is loaded and stored in two accesses."""
    x, y = np.zeros(192 * stride + offset, kind), np.zeros(192, kind)
    report = simt.xray(gather, 2, 96, x, y, stride, offset)
    parts = [0, x.itemsize // 2] if kind[0] == "c" else [0]
    for array, step, first in (("x", stride, offset), ("y", 1, 0)):
        at = [[x.itemsize * (step * (w + lane) + first) for lane in range(32)] for w in range(0, 192, 32)]
        warps = [[one + part for one in warp] for warp in at for part in parts]
        expect_global(access(report, array, "load" if array == "x" else "store"), warps, x.itemsize // len(parts))


@pytest.mark.parametrize("part, accesses", [("c", 2), ("c.real", 1), ("c.imag", 1), ("u", 1)])
def test_of_a_complex_number_only_what_is_read_counts(part, accesses):
    kernel = kernel_of("x, y", f"y[cuda.grid(1)] = x[cuda.grid(1)].{part}")
    x = np.zeros(32, np.dtype([("c", np.complex64), ("u", np.float32), ("v", np.float32)], align=True))
    load = access(simt.xray(kernel, 1, 32, x, np.zeros(32, np.complex64)), f"x.{part[0]}", "load")
    assert (load.requests, load.sectors, load.bytes_used) == (accesses, 16 * accesses, 128 * accesses)


@pytest.mark.parametrize("threads", [1, 31, 32, 33, 50, 64, 100, 1000, 1024])
@pytest.mark.parametrize("size", [1, 7, 1000, 2500])
def test_partial_warps_and_guards(threads, size):
    grid = -(-size // threads)
    report = simt.xray(gather, grid, threads, np.zeros(size, np.float32), np.zeros(grid * threads, np.float32), 1, 0)
    warps = [
        [4 * (b * threads + t) for t in range(start, min(start + 32, threads)) if b * threads + t < size]
        for b in range(grid)
        for start in range(0, threads, 32)
    ]
    expect_global(access(report, "x", "load"), warps, 4)
    expect_global(access(report, "y", "store"), warps, 4)
    assert access(report, "x", "load").active_lanes == size


GROUPS = {f"{group} lanes": np.arange(64) // group for group in (1, 2, 3, 4, 5, 8, 16, 32)}
ORDERS = {"backwards": np.arange(64)[::-1], "bits": np.arange(64) ^ 21, "any": np.random.default_rng(1).permutation(64)}


@pytest.mark.parametrize("places", [pytest.param(one, id=name) for name, one in (GROUPS | ORDERS).items()])
def test_lanes_that_share_an_element_and_lanes_in_any_order(places):
    permute = kernel_of("x, y, p", "i = cuda.grid(1)", "y[i] = x[p[i]]")
    report = simt.xray(permute, 1, 64, np.zeros(64, np.float32), np.zeros(64, np.float32), places.astype(np.int64))
    expect_global(access(report, "x", "load"), [[4 * int(j) for j in w] for w in places.reshape(2, 32)], 4)
    assert access(report, "p", "load").sectors == 16


# --- two and three dimensions ---------------------------------------------------------------------


copy2d = kernel_of("x, y", "i, j = cuda.grid(2)", "if i < x.shape[1] and j < x.shape[0]:", "    y[j, i] = x[j, i]")
transpose = kernel_of("x, y", "i, j = cuda.grid(2)", "if i < x.shape[1] and j < x.shape[0]:", "    y[i, j] = x[j, i]")


@pytest.mark.parametrize("order", ["C", "F", "slice"])
@pytest.mark.parametrize("shape", [(32, 32), (33, 40), (7, 100), (64, 5)])
@pytest.mark.parametrize("block", [(32, 4), (8, 8), (16, 3), (5, 7), (1, 32)])
@pytest.mark.parametrize("kernel", [copy2d, transpose], ids=["copy", "transpose"])
def test_two_dimensions(kernel, shape, block, order):
    """A slice of a device array keeps its place, and gaps between its rows."""
    rows, columns = shape
    pitch, first = (columns + 8, 3) if order == "slice" else (columns, 0)
    grid = (-(-columns // block[0]), -(-rows // block[1]))
    if order == "slice":
        x = cuda.to_device(np.zeros((rows, pitch), np.float32))[:, first : first + columns]
    else:
        x = np.zeros(shape, np.float32, order=order)
    y = np.zeros(shape if kernel is copy2d else shape[::-1], np.float32)
    report = simt.xray(kernel, grid, block, x, y)
    loads, stores = [], []
    for warp in warps_of((*grid, 1), (*block, 1)):
        places = [(b[0] * block[0] + t[0], b[1] * block[1] + t[1]) for b, t in warp]
        places = [(i, j) for i, j in places if i < columns and j < rows]
        loads.append([4 * (i * rows + j) if order == "F" else 4 * (j * pitch + first + i) for i, j in places])
        stores.append([4 * (j * columns + i) if kernel is copy2d else 4 * (i * rows + j) for i, j in places])
    expect_global(access(report, "x", "load"), loads, 4)
    expect_global(access(report, "y", "store"), stores, 4)


@pytest.mark.parametrize("block", [(4, 4, 4), (3, 5, 2), (32, 2, 2), (2, 1, 40), (10, 10, 10)])
def test_three_dimensional_blocks_fill_warps_x_first(block):
    inside = "if i < y.shape[2] and j < y.shape[1] and k < y.shape[0]:"
    fill = kernel_of("y", "i, j, k = cuda.grid(3)", inside, "    y[k, j, i] = 1.0")
    shape = (7, 9, 11)
    grid = tuple(-(-n // b) for n, b in zip(shape[::-1], block, strict=True))
    report = simt.xray(fill, grid, block, np.zeros(shape, np.float32))
    expected = []
    for warp in warps_of(grid, block):
        places = [tuple(b[d] * block[d] + t[d] for d in range(3)) for b, t in warp]
        expected.append([4 * ((k * 9 + j) * 11 + i) for i, j, k in places if i < 11 and j < 9 and k < 7])
    expect_global(access(report, "y", "store"), expected, 4)


# --- loops, divergence, FLOPs ---------------------------------------------------------------------


def lines_with(report, text):
    found = [line for line in report.lines if text in line.text]
    assert len(found) == 1, (text, report.lines)
    return found[0]


def test_a_loop_whose_length_differs_by_lane():
    loop = "total = float32(0.0)", "for j in range(i + 1):", "    total += x[j]"
    triangle = kernel_of("x, y", "i = cuda.grid(1)", *loop, "y[i] = total")
    report = simt.xray(triangle, 1, 64, np.ones(64, np.float32), np.zeros(64, np.float32))
    load = access(report, "x", "load")
    # Iteration j is executed by the lanes i >= j: warp 0 for j < 32, warp 1 for j < 64, all reading x[j].
    assert load.requests == load.sectors == 32 + 64
    line = lines_with(report, "total += ")
    assert load.active_lanes == line.flops == line.active_lanes == 64 * 65 // 2 and line.warps == 96


@pytest.mark.parametrize("threshold", [0, 1, 16, 32, 40, 64, 100, 128])
def test_divergence(threshold):
    ways = "if i < threshold:", "    y[i] = 1.0", "else:", "    y[i] = 2.0"
    branch = kernel_of("y, threshold", "i = cuda.grid(1)", *ways)
    report = simt.xray(branch, 1, 128, np.zeros(128, np.float32), threshold)
    warps_of_then = -(-threshold // 32)
    warps_of_else = (128 - threshold + 31) // 32
    for text, warps, lanes in (("= 1.0", warps_of_then, threshold), ("= 2.0", warps_of_else, 128 - threshold)):
        lines = [line for line in report.lines if text in line.text]
        assert sum(line.warps for line in lines) == warps and sum(line.active_lanes for line in lines) == lanes
    assert lines_with(report, "if i <").divergent == (threshold % 32 != 0)
    assert lines_with(report, "if i <").warps == 4
    assert report.totals.divergent == (threshold % 32 != 0)


def test_flops():
    steps = "s = x[i]", "s = s + a", "s = s - a", "s = s * a", "s = cuda.fma(s, a, a)", "y[i] = s / a"
    arithmetic = kernel_of("x, y, a", "i = cuda.grid(1)", "if i < x.size:", *(f"    {step}" for step in steps))
    n = 100
    report = simt.xray(arithmetic, 4, 32, np.ones(n, np.float32), np.ones(n, np.float32), np.float32(2))
    assert report.totals.flops == 6 * n and report.totals.flops64 == 0
    assert lines_with(report, "s + a").flops == n
    assert lines_with(report, "fma").flops == 2 * n


# --- shared memory, atomics -----------------------------------------------------------------------


@pytest.mark.parametrize("element", [*NUMBA.values(), complex64, complex128], ids=str)
@pytest.mark.parametrize("width", [32, 33, 34, 36, 40])
@pytest.mark.parametrize("column", [True, False])
def test_tiles_with_and_without_padding(element, width, column):
    """Those of complex numbers conflict as their parts do."""
    data = np.zeros((32, 32), str(element))
    itemsize, parts = data.itemsize, [0, data.itemsize // 2] if data.dtype.kind == "c" else [0]
    if 32 * width * itemsize > 48 * 1024:
        pytest.skip("over 48 KB of static shared memory")
    lines = [f"tile = cuda.shared.array((32, {width}), element)", "i, j = cuda.threadIdx.x, cuda.threadIdx.y"]
    lines += ["tile[j, i] = x[j, i]", "cuda.syncthreads()", f"y[j, i] = tile[{'i, j' if column else 'j, i'}]"]
    kernel, _ = program(lines, "x, y", element=element)  # a warp writes a row and reads a column, or a row
    report = simt.xray(kernel, 1, (32, 32), data, data.copy())
    store = access(report, "tile", "store", "shared")
    load = access(report, "tile", "load", "shared")
    rows, columns = (
        [
            wavefronts_of([itemsize * (down * y + along * x) + part for x in range(32)], itemsize // len(parts))
            for y in range(32)
            for part in parts
        ]
        for down, along in ((width, 1), (1, width))
    )
    for entry, expected in ((store, rows), (load, columns if column else rows)):
        assert entry.requests == 32 * len(parts) and entry.active_lanes == 1024 * len(parts)
        assert entry.wavefronts == sum(w for w, _ in expected)
        assert entry.ideal_wavefronts == sum(i for _, i in expected)
        assert entry.bank_conflicts == entry.wavefronts - entry.ideal_wavefronts
        assert entry.bytes_used == 1024 * itemsize
    assert report.totals.shared_requests == 64 * len(parts)
    assert report.totals.shared_wavefronts == store.wavefronts + load.wavefronts
    assert report.totals.bank_conflicts == store.bank_conflicts + load.bank_conflicts
    assert report.totals.sectors == 2 * 32 * itemsize * len(parts)
    for name in ("requests", "sectors", "ideal_sectors", "bytes_used", "bytes_moved"):
        each = [getattr(one, name) for one in report.accesses if one.space == "global"]
        assert getattr(report.totals, name) == sum(each) and len(each) == 2
    assert report.totals.sectors_per_request == report.totals.sectors / report.totals.requests


@pytest.mark.parametrize("itemsize", DTYPES)
@pytest.mark.parametrize(
    "pattern", ["broadcast", "pairs", "odd lanes", "low half", "third quarter", "reversed", "none"]
)
def test_shared_patterns(itemsize, pattern):
    element = NUMBA[itemsize]
    table = {
        "broadcast": [5] * 32,
        "pairs": [t // 2 for t in range(32)],
        "odd lanes": [t if t % 2 else None for t in range(32)],
        "low half": [2 * t if t < 16 else None for t in range(32)],
        "third quarter": [3 * t if 16 <= t < 24 else None for t in range(32)],
        "reversed": [31 - t for t in range(32)],
        "none": [None] * 32,
    }[pattern]
    index = np.array([-1 if i is None else i for i in table], np.int32)

    lines = ["tile = cuda.shared.array(128, element)", "t = cuda.threadIdx.x", "for k in range(4):"]
    lines += ["    tile[32 * k + t] = 0", "cuda.syncwarp()", "if index[t] >= 0:", "    y[t] = tile[index[t]]"]
    pick, _ = program(lines, "index, y", element=element)
    report = simt.xray(pick, 1, 32, index, np.zeros(32, DTYPES[itemsize]))
    if pattern == "none":
        assert not [a for a in report.accesses if (a.array, a.kind) == ("tile", "load") and a.requests]
        return
    load = access(report, "tile", "load", "shared")
    wavefronts, ideal = wavefronts_of([None if i is None else itemsize * i for i in table], itemsize)
    assert (load.wavefronts, load.ideal_wavefronts, load.requests) == (wavefronts, ideal, 1)
    assert load.bytes_used == itemsize * len({i for i in table if i is not None})


@pytest.mark.parametrize("targets", [1, 2, 8, 32, 100])
def test_atomic_collisions(targets):
    histogram = kernel_of("counts, targets", "i = cuda.grid(1)", "cuda.atomic.add(counts, i % targets, 1)")
    report = simt.xray(histogram, 2, 128, np.zeros(targets, np.int32), targets)
    warps = [[4 * (i % targets) for i in range(w, w + 32)] for w in range(0, 256, 32)]
    entry = access(report, "counts", "atomic")
    expect_global(entry, warps, 4)
    assert entry.collisions == sum(32 - len(set(w)) for w in warps)
    assert report.totals.collisions == entry.collisions
    assert report.totals.global_atomic_sectors == entry.sectors
    assert report.totals.global_load_requests == report.totals.global_store_requests == 0


# --- footprint and totals -------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [32, 100, 4096])
def test_counts_do_not_depend_on_how_many_blocks_run_at_once(lanes):
    x, y = np.zeros((50, 70), np.float32), np.zeros((70, 50), np.float32)
    few = simt.xray(transpose, (5, 7), (16, 8), x, y, options=simt.Options(lanes=lanes))
    many = simt.xray(transpose, (5, 7), (16, 8), x, y)
    assert few.to_dict() == many.to_dict()


def test_pattern_shows_the_first_warp():
    report = simt.xray(gather, 2, 64, np.zeros(512, np.float32), np.zeros(128, np.float32), 4, 0)
    load = access(report, "x", "load")
    pattern = report.pattern(load.line, "x")
    assert len(pattern.addresses) == 32 and pattern.itemsize == 4 and pattern.space == "global"
    assert [a - pattern.addresses[0] for a in pattern.addresses] == [16 * k for k in range(32)]
    assert pattern.addresses[0] % 256 == 0
    partial = simt.xray(gather, 1, 20, np.zeros(20, np.float32), np.zeros(20, np.float32), 1, 0)
    assert partial.pattern(access(partial, "x", "load").line, "x").addresses[20:] == (None,) * 12


def test_plain_functions_and_numba_dispatchers_are_xrayed_alike():
    plain = kernel_of("x, y", "i = cuda.grid(1)", "y[i] = x[i]").py_func

    class Dispatcher:  # what numba.cuda.jit returns has this attribute
        py_func = staticmethod(plain)

    x, y = np.zeros(64, np.float32), np.zeros(64, np.float32)
    reports = [simt.xray(k, 1, 64, x, y) for k in (plain, cuda.jit(plain), Dispatcher())]
    assert len({r.totals for r in reports}) == 1 and reports[0].totals.sectors == 16


MIXED = """
@cuda.jit
def mixed(x, out, n):
    i = cuda.grid(1)
    a, s, t = x[i], 0.0, cuda.threadIdx.x
    if i < 20:
        a += 1; b = -a * 2; c = -t * 2**31; s += math.exp(b) * float32(a) - b ** 2
    def scaled(v): w = v * n; return w
    for j in range(n):
        n = j; b = scaled(a); s += b * b; b -= 1
        if b > 1 and i < 20:
            s = s / b + c
    out[i] = s
"""


def test_statements_that_only_compute_count_as_if_executed_one_by_one(monkeypatch):
    kernel, x, found = loaded(MIXED, "mixed", cuda=cuda, math=math, float32=float32)["mixed"], np.linspace(0, 1, 64), []
    for compiles in (True, False):
        monkeypatch.setattr(State, "compiles", compiles)
        found.append(simt.xray(kernel, 2, 32, x, x.copy(), 5, keep=True))
    assert found[0].to_dict() == found[1].to_dict()
    assert (found[0].outputs["out"] == found[1].outputs["out"]).all()


def test_constant_and_local_arrays_are_not_global_traffic():
    arrays = "w = cuda.const.array_like(weights)", "local = cuda.local.array(4, float32)", "i = cuda.grid(1)"
    lines = *arrays, "for j in range(4):", "    local[j] = w[j]", "y[i] = x[i] * local[3]"
    mixed, _ = program(lines, "x, y", float32=float32, weights=np.arange(4, dtype=np.float32))
    report = simt.xray(mixed, 1, 64, np.ones(64, np.float32), np.zeros(64, np.float32))
    assert report.totals.sectors == 16 and report.totals.requests == 4
    assert set(report.footprint) == {"x", "y"}
    assert {a.space for a in report.accesses} <= {"global", "local", "const"}
