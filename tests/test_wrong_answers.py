"""Wrong answers to exercises: each is told what is wrong, in numbers that were counted.

Most are our own answer with an edit or two; those that game an exercise stand in test_exercises_gaming.py.
"""

import re

import edits
import pytest
from copies import needs_solutions
from parts import part
from test_exercises import ROOT, answered

from dwlab.judge import exercises

pytestmark = needs_solutions

END = "### END SOLUTION"
WRONG = [
    (exercise, what, " | ".join(says), *changes) for exercise, (what, *says), changes in edits.rows("wrong_answers.txt")
]
# Predictions that are off: exercise, what is wrong, the line, and what must be said of the number.
PREDICTED = [
    ("00_2", "one number of four", "sectors_one_further = 4", "4 sectors; more"),
    ("01_2", "the dense count", "flops = 2 * 6 * 4 * 168 * 24", "193,536 FLOPs; fewer"),
    ("01_2", "milliseconds", "microseconds = 3.264e-5", r"3\.264e-05 µs; that is too low"),
    ("10_2", "channels as if they were neighbours", "w_sectors_h = 4", "4 sectors; more"),
    ("10_3", "all taps", "requests = 4 * (2 * 96 * 16 + 96)", "12,672 requests; fewer"),
    ("11_2", "every tap of every tile", "load_requests = 2 * 32 * 3 * 40", "7,680 requests; fewer"),
    ("12_2", "a wavefront for each value", "four_values = 4", "4 wavefronts; fewer"),
    ("12_3", "a halo for the first tile", "loaded = 32 * 2 * 79", "5,056 elements; fewer"),
    ("12_3", "no weights stored", "staging = 192", "192 wavefronts; more"),
    ("18_2", "conflicts forgotten", "reads_four = 67", "67 wavefronts; more"),
    ("18_2", "stores as if coalesced", "store_sectors_five = 20", "20 sectors; more"),
    ("13_3", "no read before the loop", "near_wavefronts = 30", "30 wavefronts; more"),
    ("13_3", "conflicts of three", "three_wavefronts = 44", "44 wavefronts; fewer"),
    ("20_2", "the padding not mirrored", "mirrored_left = 25", "25 zeros; fewer"),
    ("20_2", "first and last exchanged, as in forward", "first = 15", "15 products; more"),
    ("20_2", "all taps in the last tile", "load_requests = 2 * 32 * 120", "7,680 requests; fewer"),
    ("20_2", "a halo on the left", "loaded = 64 + 55", "119 elements; fewer"),
    ("20_5", "every hour in the naive kernel", "naive_requests = 2 * 32 * 64 * 8", "32,768 requests; fewer"),
    ("20_5", "a sector for each tap", "atomic_sectors = 4 * 32 * 16", "2,048 sectors; fewer"),
    ("20_5", "parts that are only written", "most_parts = 61", "61 parts; fewer"),
    ("25_3", "the lanes lose as much", "by_lanes = 0", r"0 above 2 \*\* 24; that is too low"),
    ("23_2", "all taps in every tile", "requests = 816", "816 .*; fewer"),
    ("23_2", "stores forgotten", "requests = 704", "704 requests; more"),
    ("23_2", "one sector of w for a request", "w_sectors = 352", "352 sectors; more"),
    ("23_2", "no second sector", "x_sectors = 2816", "2,816 sectors; more"),
    ("23_2", "hours before the row as well", "x_sectors = 5632", ".* fewer"),
    ("23_2", "as full warps would store", "y_sectors = 192", "192 sectors; more"),
    ("23_2", "what is written, too", "memory_read = 12800", "12,800 bytes; fewer"),
    ("23_2", "all that is asked for", "memory_read = 204800", ".* fewer"),
    ("24_2", "one block", "share = 35 / 210", "0.166667"),
    ("24_2", "time for speed", "step_ms = 28", "28 ms"),
    ("24_2", "no limit", "limit = 7", "7 times as fast"),
    ("24_2", "the whole half", "weight_ms = 105", ""),
    ("27_2", "the padding loaded by the naive kernel", "naive_5x5 = 28 * 28 * 25", "19,600 elements; fewer"),
    ("27_2", "both edges cut off", "naive_stride_2 = 82 ** 2", "6,724 elements; more"),
    ("27_2", "128 bytes are four sectors", "sectors_left = 4", "4 sectors; more"),
    ("27_2", "a sector for each lane", "sectors_stride_2 = 32", "32 sectors; fewer"),
    ("28_1", "the padding loaded by the tiles", "tiles_5x5 = (2 * 18) ** 2", "1,296 elements; fewer"),
    ("28_1", "no row shared with stride 2", "tiles_stride_2 = 56 ** 2", "3,136 elements; more"),
    ("28_1", "elements over eight for sectors", "sectors_nchw = 8 * 10 * 3", "240 sectors; more"),
    ("29_3", "each element once", "x_loads = 196 * 64", "12,544 elements; more"),
    ("29_3", "whole tiles of pixels only", "w_loads = 96 * 64 * 6", "36,864 elements; more"),
    ("31_2", "whole tiles only", "blocks = 2", "2 blocks; more"),
    ("31_2", "x once", "x = 47040", "47,040 elements; more"),
    ("31_2", "x beyond the map", "x = 184320", "184,320 elements; fewer"),
    ("31_2", "filters beyond the last", "w = 368640", "368,640 elements; fewer"),
    ("31_2", "two reads for each", "reads = 2", "2 reads; fewer"),
    ("30_1", "eight rows too far", "lane = 46", "46 as its lane.*too high"),
    ("30_1", "the row's half only", "number = 1", "1 as its number.*too low"),
    ("30_1", "A's columns for the sums", "lane_d = 14", "14 as its lane.*too low"),
    ("30_1", "the row's own sum", "number_d = 0", "0 as its number.*too low"),
    ("30_1", "a tile's area alone", "instructions = 6", "6 instructions; more"),
    ("30_1", "two products", "instructions_float32 = 60", "60 instructions; more"),
    ("33_2", "x once for each tile", "x = 16 * 14**2", "3,136 elements; more"),
    ("33_2", "the padding loaded", "x = 3 * 4 * 16 * 64", "12,288 elements; fewer"),
    ("33_2", "all filters for each block", "w2 = 12 * 24 * 16", "4,608 elements; fewer"),
    ("33_2", "work of the depthwise layer alone", "more_work = 200", "200 percent; that is too high"),
    ("33_2", "fusing must save", "more_small_tile = -4608", "-4,608 elements; more"),
    ("34_2", "256 steps", "scale_x = 4 / 256", r"0\.015625 as the scale.*too low"),
    ("34_2", "zero in the middle", "zero_x = 0", "0 as the zero point.*too high"),
    ("34_2", "a relu's zero at 0", "zero_y = 0", "0 as the zero point.*too high"),
    ("34_2", "a weight of 128 steps", "w = 26", "26 as the int8.*too high"),
    ("34_2", "no scale of y", "m = 6.175698625907056e-05", ".* as the factor.*too low"),
    ("34_2", "no factors", "saved = 112512", "112,512 bytes; fewer"),
    ("43_2", "float16's lanes", "lane = 23", "23 as its lane.*too high"),
    ("43_2", "the first half", "number = 0", "0 as its number.*too low"),
    ("43_2", "the bytes turned", "byte = 1", "1 as its byte.*too low"),
    ("43_2", "A's words for the sums", "lane_d = 20", "20 as its lane.*too low"),
    ("43_2", "the other row's", "number_d = 3", "3 as its number.*too high"),
    ("37_1", "one of 26", "depthwise_part = 39 / 130", "0.3 .*; .* high"),
    ("37_1", "the others forgotten", "limit = 130 / 91", "1.42857 .*; .* high"),
    ("37_1", "all pairs fused", "fused_us = 13 * 8 + 20", "124 µs; .* low"),
    ("37_1", "half of 7", "pointwise_us = 3.5", "3.5 µs; .* high"),
    ("37_1", "starts and kernels", "one_by_one_us = 30 * 10 + 150", "450 µs; .* high"),
    ("37_1", "the last kernel", "one_by_one_us = 300", "300 µs; .* low"),
    ("37_1", "a start more", "one_by_one_fused_us = 225", "225 .* high"),
    ("37_1", "J", "millijoules = 0.045", "0.045 mJ; .* low"),
    ("37_1", "the same power", "energy_gain = 150 / 132", "1.13636 .* high"),
    ("32_2", "no halo", "work_tiles = 4 * 8 * 400", "12,800 .*; more"),
    ("32_2", "outside too", "work_tiles = 4 * 8 * 24**2", ".*; fewer"),
    ("32_2", "outside too, stride 2", "work_stride_2 = 4 * 8 * 30**2", ".*; fewer"),
    ("32_2", "with a halo", "shared_map = 8 * 22 * 22 * 4", "15,488 bytes; fewer"),
    ("32_2", "elements", "shared_map = 3200", "3,200 bytes; more"),
    ("32_2", "saved once", "filters_equal = 64", "64 filters; more"),
    ("32_2", "once", "times_depthwise = 1", "1 time; more"),
    ("32_2", "parts of tiles left out", "blocks = 4", "4 blocks; more"),
    ("35_2", "sums without taps", "depthwise_macs = 128 * 56 * 56", ".*too low"),
    ("36_1", "the first start forgotten", "plain_us = 240", "240"),
    ("38_2", "a barrier a step", "barriers = 4", "4 barriers; more"),
    ("42_1", "the first of the group", "column = 8", "8 .*; .* low"),
    ("42_1", "groups from the left", "total = 2720", "2,720 .*; .* low"),
    ("42_1", "the bits of each", "code = 3", "3 .*; .* low"),
    ("42_1", "selector 0", "lane = 13", "13 .*; .* low"),
    ("42_1", "row 11 first", "upper = 0", "0 .*; .* low"),
    ("42_2", "of one filter", "of_2_4 = 1024", "1,024 elements; more"),
    ("42_2", "of one filter of a block", "of_64_2_16 = 256", "256 .*; more"),
    ("42_2", "the same columns", "of_16_2_16 = 512", "512 .*; more"),
    ("42_2", "all kept columns", "products = 32", "32 .*; fewer"),
    ("42_2", "no columns", "stored = 2304", "2,304 bytes; more"),
    ("38_2", "a byte too many", "shared_bytes = 1025", "1,025 bytes; fewer"),
    ("39_3", "a byte too many", "shared_strips = 4609", "4,609 bytes; fewer"),
]  # fmt: skip
WRONG += [
    (exercise, what, f"`{line.split()[0]}`: you predicted {says}" + " were counted" * says.endswith(("fewer", "more")),
     f"+ {line}")
    for exercise, what, line, says in PREDICTED
]  # fmt: skip
BLIND = ("28_3", "29_2", "38_3")  # without hints


def edited(exercise: str, changes: list[str]) -> str:
    """The text of our answer with these changes, or of another answer."""
    (solution,) = (ROOT / "solutions").glob(f"{exercise}_*.py")
    text = solution.read_text(encoding="utf-8")
    for change in changes:
        old, arrow, new = change.partition(" => ")
        if change.startswith("+ "):
            text = text.replace(END, f"{change[2:]}\n{END}")
        elif arrow:
            at = text.rfind(old, 0, text.index(END))
            at = text.index(old) if at < 0 else at
            text = text[:at] + new + text[at + len(old) :]
        else:
            text = answered(exercise, change)
    return text


TAKEN = part("wrong answers", WRONG, lambda row: [row[0]], 0.4)


@pytest.mark.parametrize("row", TAKEN, ids=[f"{row[0]}: {row[1]}" for row in TAKEN])
def test_a_wrong_answer_is_told_what_is_wrong(tmp_path, row):
    exercise, _, says, *changes = row
    path = tmp_path / f"{exercise}_answer.py"
    path.write_text(edited(exercise, changes), encoding="utf-8")
    found = exercises._judge(path, exercises.known()[exercise])
    assert found["status"] == ("unsolved" if "still None" in says else "wrong"), found["message"]
    assert re.search(says, found["message"]), found["message"]
    assert found["hints"] or exercise in BLIND or re.search("still None|`binds`", says), "a wrong answer gets a hint"


HINTED = [
    ("00_1", "change[i] = 0\n        else:\n            change[i] = => pass\n        else:\n            change =",
     "print and return store nothing"),
    ("00_1", "if i == 0:\n            change[i] = 0\n        else: => change[i] = 0\n        if i > 0:",
     "what an if decides"),
    ("00_2", "+ sectors_backwards = '4'", "without quotation marks, unit or comma"),
    ("10_1", "acc / float32(x.shape[0]) => acc // float32(x.shape[0])", "rounded down to whole numbers"),
    ("14_1", "before = x[r, t - 1] if t > 0 else x[r, t]\n        y[r, t] = x[r, t] - before"
     " => if t:\n            y[r, t] = x[r, t] - x[r, t - 1]\n        else:\n            y[r, t] = 0",
     "choose the value there"),
    ("16_2", "    ptx.wait(0)\n => ", "A copy that was started is not there yet"),
    ("20_4", "cuda.atomic.add(of_block, k, 1) => of_block[k] += 1", "cuda.atomic.add reads, adds and writes at once"),
    ("24_2", "+ share = 66.7", "The digits are right"),
    ("34_2", "+ zero_x = 64", "Its size is right, its sign is not"),
    ("39_3", "+ strips = 142", "The digits are right"),
    ("34_1", "(cuda.threadIdx.x, y.shape[1], 32) => (2 * cuda.threadIdx.x, y.shape[1], 1)", "in two turns of a loop"),
    ("28_2", "f[k] = w[c, k // 3, k % 3] => f[k] = w[c, 2 - k // 3, 2 - k % 3]", "other way round in both directions"),
    ("33_1", "w2[f0 + f, i, j] => w2[f0 + f, 2 - i, 2 - j]", "In the second layer the filter is the other way round"),
    ("12_1", "range(i + 1, i + HOURS) => range(i + 1, i + HOURS + 1)", "Hour t + 1 is one of the hours"),
    ("12_1", "t0 - (HOURS - 1) + k => t0 + k", "the 24 hours from t on"),
    ("12_1", "float32(-math.inf) => float32(-4)", "Hours outside the row must not win"),
    ("32_1", "total = b1[f0 + i] => total = float32(0)", "without the bias"),
    ("32_1", "max(total, float32(0)) => total", "without the ReLU"),
    ("32_1", "range(0, w1.shape[0], STEP) => range(0, STEP, STEP)", "first 16 filters"),
    ("32_1", "w2[4 * row + k, f0 + i] => w2[4 * row + k, i]", "same 16 columns of w2"),
    ("32_1", "w2[4 * row + k, f0 + i] => w2[row + 8 * k, f0 + i]", "outputs are exchanged"),
    ("32_1", "= sums[k] => = max(sums[k], float32(0))", "second ReLU"),
    ("32_1", "y[4 * row + k, m] => y[8 * k + row, m]", "stored with a stride of 8"),
    ("32_1", "b1[f0 + i] => b1[i]", "same 16 biases"),
    ("32_1", "w1[f0 + i, c] => w1[i, c]", "same 16 rows of w1"),
    ("27_1", "float32(-math.inf) => float32(0)", "less than 0 here"),
    ("27_1",
     "if 0 <= h < x.shape[0] and 0 <= v < x.shape[1]:\n                    largest = max(largest, x[h, v, c]) => "
     "inside = 0 <= h < x.shape[0] and 0 <= v < x.shape[1]\n"
     "                largest = max(largest, x[h, v, c] if inside else float32(0))",
     "outside the map counts as 0"),
    ("27_1", "2 * p - 1 + i\n                v = 2 * q - 1 => p - 1 + i\n                v = q - 1", "a stride of 1"),
    ("27_1", "2 * p - 1 + i\n                v = 2 * q - 1 => 2 * p + i\n                v = 2 * q", "too far down"),
    ("31_1", "range(size * k, min(x.shape[0], size * (k + 1))) => range(x.shape[0])", "has all channels"),
    ("31_1", "(x.shape[0] + parts.shape[0] - 1) // => x.shape[0] //", "rounded down here"),
    ("31_1", "(x.shape[0] + parts.shape[0] - 1) // parts.shape[0] => x.shape[0] // parts.shape[0] + 1",
     "one too large"),
    ("31_1", "size * k, min(x.shape[0], size * (k + 1)) => k, x.shape[0], parts.shape[0]", "channels k, k + W"),
    ("31_1", "size * (k + 1)) => size * (k + 1) + 1)", "one channel too many"),
    ("38_1", "sums[k] += => sums[k] =", "set to 0 at each step of 4"),
    ("38_1", "a0 * v0 + a1 * v1 + a2 * v2 + a3 * v3 => a0 * (v0 + v1 + v2 + v3)", "the first of each 4"),
    ("38_1", "x, uint32((m0 + k) * C => x, uint32(k * C", "Pixel p % 8"),
    ("39_1", "value = b1[f] => value = float32(0)", "without the bias"),
    ("39_1", "            value = max(value, float32(0))\n => ", "without the ReLU"),
    ("39_1", "inner[2 * i + j] => inner[i + j]", "The stride is 1"),
    ("39_2", "        value = b1[f]\n => ", "without any bias"),
    ("39_2", "        value = max(value, float32(0))\n => ", "without the ReLU"),
    ("40_3", "largest = float32(0) => largest = float32(-1000)", "without the ReLU"),
    ("40_3", "z = b[c] => z = float32(0)", "without the bias"),
    ("40_3", "w[c, i, j] => w[c, 2 - i, 2 - j]", "the other way round"),
    ("40_3", "(2 * p, 2 * p + 2):\n            for s in range(2 * q, 2 * q + 2)"
     " => (p, p + 2):\n            for s in range(q, q + 2)", "a stride of 1"),
    ("40_3", "r - 1 + i\n                        v = s - 1 => r + i\n                        v = s", "too far down"),
    ("43_1", "ptx.dp4a(b1, int32(ONES), ptx.dp4a(b0, int32(ONES), share)) => int32(0)", "comes without the zero point"),
    ("43_1", "    d[g, 2 * t] = c0 =>     zero = -zero\n    d[g, 2 * t] = c0", "part is added here"),
    ("43_1",
     "share = int32(share + cuda.shfl_xor_sync(0xFFFFFFFF, share, 1))\n    share = int32(share + "
     "cuda.shfl_xor_sync(0xFFFFFFFF, share, 2)) => ",
     "Only one lane's part"),
    ("43_1", "8 * t)\n    right = cuda.shfl_sync(0xFFFFFFFF, share, 8 * t + 4) => lane)\n    right = left",
     "Each lane subtracts"),
    ("43_1", "a[g + 8, k + t], a[g, k + t + 4], => a[g, k + t + 4], a[g + 8, k + t],", "are exchanged"),
    ("43_1", "dp4a(b1, int32(ONES), ptx.dp4a(b0, int32(ONES), share)) => dp4a(b0, int32(ONES), share)",
     "only the first"),
]  # fmt: skip


@pytest.mark.parametrize(("exercise", "change", "hint"), HINTED, ids=[f"{row[0]}: {row[2]}" for row in HINTED])
def test_a_typical_mistake_is_named_by_a_hint(tmp_path, exercise, change, hint):
    path = tmp_path / f"{exercise}_answer.py"
    path.write_text(edited(exercise, [change]), encoding="utf-8")
    found = exercises._judge(path, exercises.known()[exercise])
    others = {other for one, _, other in HINTED if one == exercise} - {hint}
    said = found["hints"][0] if exercise == "32_1" else " ".join(found["hints"])  # in 12_1 places may be named before
    assert found["status"] == "wrong" and hint in said and not any(other in said for other in others), found


FOLDED = """
s = gamma.astype("f8") / np.sqrt(var.astype("f8") + epsilon)
filters = w * s.reshape(-1, *[1] * (w.ndim - 1))
return filters.astype("f4"), (((0 if b is None else b.astype("f8")) - mean) * s + beta).astype("f4")
"""
# With pathlib, a temporary name, and the checksum at the end.
SAVED = """
def save(path, state):
    import tempfile
    content = io.BytesIO()
    np.savez(content, **state)
    handle, name = tempfile.mkstemp(dir=os.path.dirname(path))
    with os.fdopen(handle, "wb") as file:
        file.write(content.getvalue() + hashlib.md5(content.getvalue()).digest())
        file.flush()
        os.fsync(file.fileno())
    Path(name).replace(path)

def load(path):
    whole = Path(path).read_bytes()
    if hashlib.md5(whole[:-16]).digest() != whole[-16:]:
        raise ValueError("damaged")
    return dict(np.load(io.BytesIO(whole[:-16])))
"""


WORD = "column, total, code, lane, upper = 11, 2816, 12, 15, 1"
LOADS = "of_2_4, of_64_2_16, of_16_2_16, products, stored = 2048, 512, 2048, 16, 2336"


OTHER_NAMES = [
    "def kernel(x, w, y) => def kernel(signal, taps_of, out)", "w[h, i] => taps_of[h, i]",
    "t < y.shape => t < out.shape", "x[h, s] if 0 <= s < x.shape[1] => signal[h, s] if 0 <= s < signal.shape[1]",
    "y[h, t] = acc => out[h, t] = acc",
]  # fmt: skip
RIGHT = [
    ("24_3", SAVED), ("35_1", FOLDED), ("42_1", WORD), ("42_2", LOADS), ("50_1", *OTHER_NAMES),
    ("29_2", "faults = {'A': 4.0, 'B': 2, 'C': 6, 'D': 1, 'E': 7, 'F': 5}"),
    ("37_1", "+ energy_gain = 1.07"), ("38_2", "+ bytes_w2 = 1573"),  # rounded to as many digits as are asked for
]  # fmt: skip


@pytest.mark.parametrize("row", RIGHT, ids=[row[0] for row in RIGHT])
def test_another_right_answer_passes(tmp_path, row):
    exercise, *changes = row
    path = tmp_path / f"{exercise}_answer.py"
    path.write_text(edited(exercise, changes), encoding="utf-8")
    found = exercises._judge(path, exercises.known()[exercise])
    assert found["status"] == "passed", found["message"]


def test_what_a_function_raises_is_told_with_its_call(tmp_path):
    path = tmp_path / "40_1_answer.py"
    path.write_text(edited("40_1", ["busy, until = 0.0, 0.0 => busy, until = 0.0, kernels[0][0]"]), encoding="utf-8")
    found = exercises._judge(path, exercises.known()["40_1"])
    assert found["status"] == "error" and found["message"].endswith("list index out of range, in idle([], [], 10.0)")
