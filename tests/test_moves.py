"""Drawings of what moves: their numbers are those that the interpreter counts, and the records have."""

import numpy as np
import pytest
from numba import float32
from test_drawings import readable

from dwlab import PAPER, cuda, records, stage, xray
from dwlab.kernels.parts import ptx
from dwlab.problems import DepthwiseConv1d
from dwlab.widgets import moves
from tests.loaded import kernel_of, program

TILE, TAPS = 64, 24
WINDOW = TILE + TAPS - 1


@cuda.jit
def tiled(x, w, y, shift):
    window = cuda.shared.array(WINDOW, float32)
    i = cuda.threadIdx.x
    t0 = cuda.blockIdx.x * TILE
    for k in range(i, WINDOW, TILE):
        s = t0 + shift - (TAPS - 1) + k
        window[k] = x[s] if 0 <= s < x.shape[0] else float32(0)
    cuda.syncthreads()
    acc = float32(0)
    for j in range(TAPS):
        acc += w[j] * window[i + TAPS - 1 - j]
    y[t0 + i] = acc


add_lanes = kernel_of(
    "parts, sums", "lane = cuda.threadIdx.x", "part = parts[lane]", "for distance in (16, 8, 4, 2, 1):",
    "    part += cuda.shfl_xor_sync(0xFFFFFFFF, part, distance)", "sums[lane] = part",
)  # fmt: skip
sliding_window = kernel_of(
    "x, y", "lane = cuda.threadIdx.x", "old = x[lane]", "total = float32(0)", "for j in range(5):",
    "    new = x[lane + 1 + j]", "    total += old * new", "    old = new", "y[lane] = total",
)  # fmt: skip


def tile_arguments():
    hours = np.arange(1, 2 * TILE + 1, dtype=np.float32)
    return hours, np.ones(TAPS, np.float32), np.zeros_like(hours), 0


@pytest.mark.parametrize(
    "problem", [DepthwiseConv1d(1, 1, 12, 4), DepthwiseConv1d(1, 1, 9, 5, "same"), DepthwiseConv1d(1, 1, 4, 9)]
)
def test_sliding_reads_each_x_as_often_as_the_naive_kernel(problem):
    one = moves.sliding(problem, range(problem.L))
    readable(one)
    products = sum(int(row[2]) for row in one.tables[0].rows)
    naive = stage("depthwise1d/forward/naive")
    how = naive.launch(problem)
    counted = xray(naive.kernel, how.grid, how.block, *naive.example(problem)).array("x", "load")
    assert products == counted.active_lanes == problem.taps and f"{products} times in all" in one.alt
    for name, terms, count in one.tables[0].rows:
        t = int(name[2:-1])
        assert terms.count("·") == int(count)
        pairs = [(j, t + problem.shift - j) for j in range(problem.K)]
        assert all(f"w[{j}]·x[{s}]" in terms for j, s in pairs if 0 <= s < problem.L)


@pytest.mark.parametrize("block", [0, 1])
def test_staged_has_the_stores_and_loads_that_are_counted(block):
    one = moves.staged(tiled, 2, TILE, *tile_arguments(), of_block=block)
    readable(one)
    report, rows = xray(tiled, 2, TILE, *tile_arguments()), one.tables[0].rows
    assert [row[1] for row in rows] == ["store", "store", "barrier", "load", "load"]
    stored = sum(int(row[2]) for row in rows if row[1] == "store")
    assert stored == WINDOW == report.array("window", "store").active_lanes / 2
    loads = report.array("window", "load")
    assert all(int(row[2]) == loads.active_lanes / 2 / TAPS for row in rows if row[1] == "load")
    # At tap 0 thread i reads word i + 23: warp 0 those of warp 1 from word 32 on, warp 1 what warp 0 wrote last.
    assert [row[4] for row in rows[3:]] == [str(23 + 23), "0"]
    with pytest.raises(ValueError, match="program has no shared array"):
        moves.staged(add_lanes, 1, 32, np.zeros(32, np.float32), np.zeros(32, np.float32))


def test_held_are_the_values_that_a_lane_reads():
    x, y = np.arange(40, dtype=np.float32), np.zeros(32, np.float32)
    one = moves.held(sliding_window, 1, 32, x, y, names=("old", "new"), lane=7, steps=4)
    readable(one)
    assert [row[1:] for row in one.tables[0].rows] == [(str(7 + k), str(8 + k)) for k in range(4)]
    loads = xray(sliding_window, 1, 32, x, y).array("x", "load")
    assert loads.requests == 1 + 5, "the first old, and one new value each time"
    with pytest.raises(ValueError, match="reads new 5 times into lane 0; 6 are"):
        moves.held(sliding_window, 1, 32, x, y, names=("old", "new"), steps=6)


def test_butterfly_doubles_the_lanes_of_a_sum_each_time():
    one = moves.butterfly(add_lanes, "part")
    readable(one)
    assert [row[1:] for row in one.tables[0].rows] == [(str(16 >> k), str(2 << k), str(16 >> k)) for k in range(5)]
    assert one.body.count("<line") == 5 * 2 * 32
    with pytest.raises(ValueError, match="sets no 'total'"):
        moves.butterfly(add_lanes, "total")


def test_tree_divides_what_a_launch_divides():
    problem, one = DepthwiseConv1d(64, 2, 48, 48), stage("depthwise1d/weight_grad/warp_tiled")
    how = one.launch(problem)
    splits = how.scalars[1]
    drawing = moves.tree("dw", {"terms": 64 * 48, "sums of lanes": 2 * splits, "sums of warps": splits, "sum": 1})
    readable(drawing)
    data = problem.inputs("weight_grad")
    report = xray(one.kernel, how.grid, how.block, data["dy"], data["x"], np.zeros((2, 48), np.float32), *how.scalars)
    atomics = [a for a in report.accesses if a.array == "dw"]
    assert sum(a.active_lanes for a in atomics) / (2 * 48) == splits == float(drawing.tables[0].rows[-1][2])
    with pytest.raises(ValueError, match="become fewer"):
        moves.tree("dw", {"terms": 4, "sums": 8, "sum": 1})
    with pytest.raises(ValueError, match="end with 1"):
        moves.tree("dw", {"terms": 4, "sums": 2})


def transposing(pitch):
    lines = [f"tile = cuda.shared.array({32 * pitch}, float32, 16)", "lane = cuda.threadIdx.x"]
    lines += [f"for i in range(lane, {32 * pitch}, 32):", "    tile[i] = x[i]", "cuda.syncwarp()"]
    lines += [f"a, b, c, d = ptx.load4_shared(tile, {pitch} * lane)", "y[lane] = (a + b) + (c + d)"]
    return program(lines, "x, y", float32=float32, ptx=ptx)[0]


def test_vectors_meet_where_wavefronts_are_counted():
    reports = {
        f"pitch {pitch}": xray(transposing(pitch), 1, 32, np.zeros(32 * pitch, np.float32), np.zeros(32, np.float32))
        for pitch in (4, 8, 12, 16, 32)
    }
    one = moves.vectors("tile", reports)
    readable(one)
    for (_, _, most, waves), report in zip(one.tables[0].rows, reports.values(), strict=True):
        assert int(waves) == 4 * int(most) == report.array("tile", "load").wavefronts
    assert [row[2] for row in one.tables[0].rows] == ["1", "2", "1", "4", "8"]
    with pytest.raises(KeyError, match="no access to 'tail'"):
        moves.vectors("tail", reports)


@pytest.mark.parametrize(("path", "name"), [("forward", "naive"), ("forward", "wide"), ("weight_grad", "channels")])
def test_left_is_what_the_records_have(path, name):
    one = moves.left(path, name)
    readable(one)
    for stage_name, us, floor, rest, over in one.tables[0].rows:
        row = records.best("depthwise1d", path, stage_name, PAPER)
        copied = PAPER.compulsory_bytes(path) / row.effective_gbps / 1e3
        assert float(us.replace(",", "")) == pytest.approx(row.time_us, rel=1e-3) == pytest.approx(copied, rel=1e-3)
        assert float(over) == pytest.approx(1 / row.fraction_of_copy, abs=0.01)
        assert float(rest.replace(",", "")) == pytest.approx(
            max(row.time_us * (1 - row.fraction_of_copy), 0), rel=1e-2, abs=0.01
        )
        assert float(floor.replace(",", "")) == pytest.approx(row.time_us * row.fraction_of_copy, rel=1e-3)
    assert one.tables[0].rows[-1][0] == name
    with pytest.raises(ValueError, match="forward/nosuch is not recorded"):
        moves.left("forward", "nosuch")
