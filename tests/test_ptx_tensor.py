"""Matrix products of a warp, sparse ones too, and instructions on int8 and tf32: against NumPy, counted, compiled."""

import functools

import numpy as np
import pytest
from compiler import needs_compiler
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import float32, int32, uint32
from wrong_kernels import edited

from dwlab import simt
from dwlab.compiler import inspect
from dwlab.gpu import target
from dwlab.kernels.parts import ptx
from dwlab.problems import encode
from dwlab.problems.sparsity import compress
from dwlab.simt.cost import cost
from dwlab.target import cuda

ROW, COLUMN = 16, 8
TILE = 1024  # words
KINDS = {"tf32": 8, "float16": 16, "bfloat16": 16, "int8": 32}
"""What the words hold -> k of one instruction."""
INSTRUCTIONS = {
    "tf32": ptx.mma_tf32, "float16": ptx.mma_f16, "bfloat16": ptx.mma_bf16, "int8": ptx.mma_s8,
}  # fmt: skip
FACE = np.array([0x7F800000, 0xFF800000, 0x7FC00000], np.uint32).view(np.float32)  # infinity, -infinity, NaN


def few_examples(most):
    return settings(max_examples=most if target.mode == "simulated" else 2, deadline=None)


@functools.cache
def product(kind):
    """A kernel whose warp i makes d[i] = a[i] b[i]^T + c[i] of words (n, 16, 8) and (n, 8, 8), numbers (n, 16, 8)."""
    mma = INSTRUCTIONS[kind]
    number = int32 if kind == "int8" else float32

    @cuda.jit
    def multiply(a, b, c, d):
        warp = cuda.grid(1) // 32
        g, t = cuda.laneid // 4, cuda.laneid % 4
        if warp < a.shape[0]:
            c0, c1 = number(c[warp, g, 2 * t]), number(c[warp, g, 2 * t + 1])
            c2, c3 = number(c[warp, g + 8, 2 * t]), number(c[warp, g + 8, 2 * t + 1])
            a0, a1 = a[warp, g, t], a[warp, g + 8, t]
            a2, a3 = a[warp, g, t + 4], a[warp, g + 8, t + 4]
            b0, b1 = b[warp, g, t], b[warp, g, t + 4]
            c0, c1, c2, c3 = mma(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1)
            d[warp, g, 2 * t] = c0
            d[warp, g, 2 * t + 1] = c1
            d[warp, g + 8, 2 * t] = c2
            d[warp, g + 8, 2 * t + 1] = c3

    return multiply


def operands(kind, rng, shape):
    """(numbers as float64 or int64, the words that hold them)."""
    if kind == "int8":
        numbers = rng.integers(-128, 128, shape).astype(np.int8)
        return numbers.astype(np.int64), numbers.view(np.int32)
    numbers = rng.standard_normal(shape).astype(np.float32)
    if kind == "tf32":
        bits = numbers.view(np.uint32) & np.uint32(0xFFFFE000)
        return bits.view(np.float32).astype(np.float64), numbers  # the instruction cuts off what is below
    if kind == "float16":
        return numbers.astype(np.float16).astype(np.float64), numbers.astype(np.float16).view(np.float32)
    stored = encode(numbers, "bfloat16")
    return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64), stored.view(np.float32)


def multiplied(kind, seed=0, n=1, block=64):
    """(d as computed, d as it should be, the largest sum of magnitudes)."""
    rng = np.random.default_rng(seed)
    a, a_words = operands(kind, rng, (n, ROW, KINDS[kind]))
    b, b_words = operands(kind, rng, (n, COLUMN, KINDS[kind]))
    if kind == "int8":
        c = rng.integers(-(2**31), 2**31, (n, ROW, COLUMN)).astype(np.int32)
    else:
        c = rng.standard_normal((n, ROW, COLUMN)).astype(np.float32)
    d = np.zeros_like(c)
    product(kind)[-(-n * 32 // block), block](a_words, b_words, c, d)
    want = np.matmul(a, b.swapaxes(1, 2)) + c
    return d, want, float((np.matmul(abs(a), abs(b).swapaxes(1, 2)) + abs(c.astype(np.float64))).max())


# ---- what they compute, in either mode


@pytest.mark.parametrize("kind", KINDS)
@few_examples(6)
@given(seed=st.integers(0, 99), n=st.integers(1, 5))
def test_a_product_is_that_of_the_numbers_and_of_bytes_it_wraps_around(kind, seed, n):
    got, want, most = multiplied(kind, seed, n)
    if kind == "int8":
        np.testing.assert_array_equal(got, want.astype(np.int32))
    else:
        np.testing.assert_allclose(got, want, rtol=0, atol=2**-21 * most)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "int8"])
def test_infinity_and_nan_stay_in_their_row(kind):
    numbers = np.ones((1, ROW, KINDS[kind]), np.float32)
    numbers[0, 3:6, 5] = FACE
    ones = np.ones((1, COLUMN, KINDS[kind]), np.float32)
    if kind != "tf32":
        store = (lambda x: x.astype(np.float16)) if kind == "float16" else (lambda x: encode(x, "bfloat16"))
        numbers, ones = store(numbers).view(np.float32), store(ones).view(np.float32)
    d = np.zeros((1, ROW, COLUMN), np.float32)
    product(kind)[1, 32](numbers, ones, d, d)
    assert (d[0, 3] == np.inf).all() and (d[0, 4] == -np.inf).all() and np.isnan(d[0, 5]).all()
    assert (np.delete(d[0], [3, 4, 5], axis=0) == KINDS[kind]).all()


EACH = """
def kernel(x, y):
    i = cuda.grid(1)
    if i < y.shape[0]:
        y[i] = function(READ)
"""


def number_kernel(function, takes, gives):
    """A function of so many arrays: on the GPU function(x[0, i], x[1, i], …) of each i."""
    read = ", ".join(f"x[{k}, i]" for k in range(takes))
    kernel = edited(EACH, "each", f"READ => {read}", function=function)

    def run(*x):
        y = np.zeros(len(x[0]), gives)
        kernel[-(-len(y) // 64), 64](np.stack(x), y)
        return y

    return run


def test_tf32_rounds_halves_away_from_zero():
    step = 2.0**-10
    x = np.array([1, 1 + step / 2, 1 + 0.49 * step, 1 + 1.5 * step, -1 - step / 2, 0, -0.0, 3.4028235e38, *FACE])
    x = x.astype(np.float32)
    got = number_kernel(ptx.tf32, 1, np.float32)(x)
    inf, nan = np.inf, np.nan
    want = [1, 1 + step, 1, 1 + 2 * step, -1 - step, 0, -0.0, inf, inf, -inf, nan]
    np.testing.assert_array_equal(got, np.array(want, np.float32))
    assert np.signbit(got[6])
    rest = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    got = number_kernel(ptx.tf32, 1, np.float32)(rest)
    assert not (got.view(np.uint32) & 0x1FFF).any()
    assert (abs(got - rest) <= 2.0**-11 * 2.0 ** np.floor(np.log2(abs(rest)))).all()


def test_tf32_cuts_off_the_lower_bits_of_a_nan():
    # 0x7F800001 and 0x7F8005D3 as an H200 gave them; of all, what the code compiled for it does: no sum, only the mask.
    given = [0x7F800001, 0x7F8005D3, 0x7F801FFF, 0xFF801000, 0x7F802000, 0x7FBFFFFF, 0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF]
    wanted = [bits & ~0x1FFF for bits in given]
    got = number_kernel(ptx.tf32, 1, np.float32)(np.array(given, np.uint32).view(np.float32))
    assert [hex(bits) for bits in got.view(np.uint32)] == [hex(bits) for bits in wanted]


@few_examples(10)
@given(seed=st.integers(0, 999))
def test_dp4a_adds_four_products_and_wraps_around(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-128, 128, (2, 100, 4)).astype(np.int8)
    c = rng.integers(-(2**31), 2**31, 100).astype(np.int32)
    c[:2] = 2**31 - 1, -(2**31)
    a[0], b[0], a[1], b[1] = -128, -128, -128, 127
    want = (c + (a.astype(np.int64) * b).sum(axis=1)).astype(np.int32)
    run = number_kernel(ptx.dp4a, 3, np.int32)
    np.testing.assert_array_equal(run(a.view(np.int32)[:, 0], b.view(np.int32)[:, 0], c), want)


def test_pack_s8_holds_numbers_within_a_byte():
    edges = [-(2**31), -129, -128, -127, -1, 0, 1, 126, 127, 128, 2**31 - 1]
    numbers = np.array(np.meshgrid(*[edges] * 4)).reshape(4, -1).astype(np.int32)
    got = number_kernel(ptx.pack_s8, 4, np.int32)(*numbers)
    np.testing.assert_array_equal(got.view(np.int8).reshape(-1, 4), np.clip(numbers, -128, 127).T)


def test_rint_is_the_nearest_whole_number():
    x = np.array([0.5, 1.5, -0.5, -1.5, 2.4999998, 8388607.5, 2e9, 2147483520, 3e9, -3e9, 1e-40, *FACE], np.float32)
    want = [0, 2, 0, -2, 2, 8388608, 2000000000, 2147483520, 2**31 - 1, -(2**31), 0, 2**31 - 1, -(2**31), 0]
    np.testing.assert_array_equal(number_kernel(ptx.rint, 1, np.int32)(x), want)


@few_examples(10)
@given(seed=st.integers(0, 999))
def test_prmt_takes_any_bytes(seed):
    rng = np.random.default_rng(seed)
    a, b, selector = rng.integers(-(2**31), 2**31, (3, 64)).astype(np.int32)
    selector[:3] = 0x3210, 0x7654, 0x6420
    every = np.stack([a, b], axis=1).view(np.uint8)
    want = np.zeros((64, 4), np.uint8)
    for i in range(64):
        for k in range(4):
            choice = int(selector[i]) >> 4 * k & 15
            byte = every[i, choice & 7]
            want[i, k] = byte if choice < 8 else 255 if byte > 127 else 0
    got = number_kernel(ptx.prmt, 3, np.int32)(a, b, selector)
    np.testing.assert_array_equal(got.view(np.uint8).reshape(-1, 4), want)


def test_bits_go_from_one_type_to_the_other_and_back():
    bits = np.array([0, 1, -1, 0x7F800001, 0x3F800000, -(2**31)], np.int32)  # a signalling NaN among them
    words = number_kernel(ptx.float_of_word, 1, np.float32)(bits)
    np.testing.assert_array_equal(words.view(np.int32), bits)
    np.testing.assert_array_equal(number_kernel(ptx.word_of_float, 1, np.int32)(words), bits)


# ---- matrices out of shared memory


@functools.cache
def loader(name):
    load = getattr(ptx, name)

    @cuda.jit
    def read(x, where, y):
        tile = cuda.shared.array(TILE, float32, 16)
        lane = cuda.threadIdx.x
        for m in range(TILE // 32):
            tile[m * 32 + lane] = x[m * 32 + lane]
        cuda.syncwarp()
        y[0, lane], y[1, lane], y[2, lane], y[3, lane] = load(tile, where[lane])

    return read


def matrix_words(pitch=32, seed=None):
    """(1024 words with 2048 different halves, where each lane's row begins)."""
    x = np.arange(TILE * 2).astype(np.uint16).view(np.float32)
    where = np.arange(32) * pitch
    return x, np.random.default_rng(seed).permutation(where) if seed is not None else where


@pytest.mark.parametrize("seed", [None, 0, 1])
@pytest.mark.parametrize("name", ["ldmatrix_x4", "ldmatrix_x4_trans"])
def test_four_matrices_are_read_as_they_lie_or_transposed(name, seed):
    x, where = matrix_words(seed=seed)
    y = np.zeros((4, 32), np.float32)
    loader(name)[1, 32](x, where, y)
    halves = x.view(np.uint16)
    for m in range(4):
        matrix = np.stack([halves[2 * start : 2 * start + 8] for start in where[8 * m : 8 * m + 8]])
        wanted = matrix.T if name.endswith("trans") else matrix
        np.testing.assert_array_equal(y[m].view(np.uint16).reshape(8, 8), wanted)


@pytest.mark.parametrize(("pitch", "wavefronts"), [(4, 4), (8, 8), (12, 4), (16, 16), (20, 4), (32, 32), (28, 4)])
def test_eight_rows_are_read_at_once(pitch, wavefronts):
    x, where = matrix_words(pitch)
    report = simt.xray(loader("ldmatrix_x4"), 1, 32, x, where, np.zeros((4, 32), np.float32))
    assert report.hazards == ()
    (load,) = [a for a in report.accesses if (a.array, a.kind) == ("tile", "load")]
    assert (load.requests, load.itemsize, load.bytes_used, load.active_lanes) == (1, 16, 512, 32)
    assert (load.wavefronts, load.ideal_wavefronts, load.bank_conflicts) == (wavefronts, 4, wavefronts - 4)


# ---- what is counted, which mistakes are found


@pytest.mark.parametrize("kind", KINDS)
def test_operations_of_a_product(kind):
    c = np.zeros((3, ROW, COLUMN), np.int32 if kind == "int8" else np.float32)
    words = np.zeros((3, ROW, 8), c.dtype)
    args = (words, words[:, :8].copy(), c, c.copy())
    report = simt.xray(product(kind), 2, 64, *args)
    assert report.totals.flops == 3 * 2 * ROW * COLUMN * KINDS[kind] and report.totals.flops64 == 0
    counted = cost(product(kind), 2, 64, *args)
    assert counted.tensor == 3 and counted.misses > 0


def test_a_product_is_one_instruction_and_waits_for_its_operands():
    def times(n):
        @cuda.jit
        def repeated(x, y):
            c0 = c1 = c2 = c3 = float32(0)
            word = x[cuda.threadIdx.x]
            for _ in range(n):
                c0, c1, c2, c3 = ptx.mma_f16(c0, c1, c2, c3, word, word, word, word, word, word)
            y[cuda.threadIdx.x] = c0

        return cost(repeated, 1, 32, np.zeros(32, np.float32), np.zeros(32, np.float32))

    one, five = times(1), times(5)
    assert five.instructions - one.instructions == five.tensor - one.tensor == 4
    assert one.most_waits == five.most_waits == 1


def test_dp4a_is_eight_operations_a_lane():
    @cuda.jit
    def add(x, y):
        i = cuda.threadIdx.x
        y[i] = ptx.dp4a(x[i], x[i], int32(0))

    x = np.zeros(64, np.int32)
    assert simt.xray(add, 1, 64, x, x.copy()).totals.flops == 64 * 8
    assert cost(add, 1, 64, x, x.copy()).tensor == 0


BARE = """
def kernel(y):
    tile = cuda.shared.array(SIZE, float32, 16)
    i = cuda.threadIdx.x
    for m in range(i % 32, SIZE, 32):
        tile[m] = 0
    cuda.syncthreads()
    WHAT
"""
SUMS, ROWS = ", ".join(["float32(0)"] * 4), ", ".join(["tile[i]"] * 6)
STORED = "ptx.store4_shared(tile, 4 * i, float32(1), float32(2), float32(3), float32(4))\n    "
FAULTS = [  # what each lane does, a tile of so many words, so many threads, the hazard, what is said of it
    (f"if i != 5:\n        y[i] = ptx.mma_tf32({SUMS}, {ROWS})[0]", 128, 32, "inactive lane",
     "thread 5 of block 0 is not here | ptx.mma_tf32 takes all 32 lanes of a warp"),
    ("y[i] = ptx.ldmatrix_x4(tile, 4 * (i % 32))[0]", 128, 48, "inactive lane",
     "a warp of 16 threads | multiple of 32"),
    ("y[i] = ptx.ldmatrix_x4(tile, 4 * i + 2 * (i == 9))[0]", 132, 32, "misaligned",
     "index 38 in thread 9 of block 0 | ptx.ldmatrix_x4 takes | multiples of 4"),
    ("y[i] = ptx.ldmatrix_x4(tile, 4 * i)[0]", 126, 32, "out of bounds", "elements 124 to 127 (size 126) in thread 31"),
    *((f"{STORED}y[i] = ptx.{name}(tile, 4 * i)[0]", 128, 32, "race", "cuda.syncwarp()")  # its words go to four lanes
      for name in ("ldmatrix_x4", "ldmatrix_x4_trans")),
]  # fmt: skip


@pytest.mark.parametrize(("what", "size", "block", "kind", "says"), FAULTS)
def test_a_fault_is_named(what, size, block, kind, says):
    kernel = edited(BARE, "bare", f"WHAT => {what}", ptx=ptx, SIZE=size)
    found = {one.kind: one.message for one in simt.xray(kernel, 1, block, np.zeros(block, np.float32)).hazards}
    assert kind in found and (found.keys() == {kind} or block == 48)
    assert all(part in found[kind] for part in says.split(" | ")), found


# ---- which GPU has them


def test_a_gpu_without_the_instruction_says_so():
    assert ptx.needs("mma_tf32") == (8, 0) and ptx.needs("ldmatrix_x4") == (7, 5) and ptx.needs("load4") == (5, 0)
    assert ptx.lacks("mma_tf32", (8, 0)) == ptx.lacks("mma_tf32", (9, 0)) == ptx.lacks("ldmatrix_x4", (7, 5)) == ""
    assert ptx.lacks("fence_async", (10, 0)) == ptx.lacks("copy_box_async", (10, 0)) == ""
    assert ptx.lacks("wgmma_f16", (9, 0, "a")) == ""
    for name in ("wgmma_f16", "wgmma_sp_f16"):  # of no later one
        assert [ptx.lacks(name, cc) == "" for cc in ((8, 9), (9, 0), (10, 0))] == [False, True, False]
    with pytest.raises(ValueError, match="there is no ptx.mma_f64"):
        ptx.needs("mma_f64")


@cuda.jit
def each_once(x, y):
    tile = cuda.shared.array(128, float32, 16)
    i = uint32(cuda.threadIdx.x)
    ptx.store4_shared(tile, 4 * i, x[i], x[i], x[i], x[i])
    cuda.syncwarp()
    a, b, c, d = ptx.ldmatrix_x4(tile, 4 * i)
    e, f, g, h = ptx.ldmatrix_x4_trans(tile, 4 * i)
    a, b, c, d = ptx.mma_f16(a, b, c, d, a, b, c, d, e, f)
    a, b, c, d = ptx.mma_bf16(a, b, c, d, a, b, c, d, e, f)
    a, b, c, d = ptx.mma_tf32(a, b, c, d, ptx.tf32(a), b, c, d, e, f)
    kept = ptx.word_of_float(e)
    a, b, c, d = ptx.mma_sp_f16(a, b, c, d, a, b, c, d, e, f, g, h, kept, 0)
    a, b, c, d = ptx.mma_sp_f16(a, b, c, d, a, b, c, d, e, f, g, h, kept, 1)
    p, q, r = ptx.rint(a), ptx.word_of_float(b), ptx.word_of_float(c)
    s, t = ptx.word_of_float(g), ptx.word_of_float(h)
    p, q, r, s = ptx.mma_s8(p, q, r, s, p, q, r, s, t, t)
    p = ptx.prmt(ptx.dp4a(p, q, r), s, r)
    y[i] = ptx.float_of_word(ptx.pack_s8(p, q, r, s)) + d


@needs_compiler
@pytest.mark.parametrize("cc", ["8.0", "9.0"])
def test_each_is_compiled_to_its_instruction(cc):
    made = inspect.compile(each_once, signature="void(float32[::1], float32[::1])", cc=cc)
    assert made.ptx.count("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32") == 2
    if made.sass is None:
        pytest.skip(f"no SASS here: {made.sass_missing}")
    for opcode, times in {
        "HMMA.16816.F32": 1, "HMMA.16816.F32.BF16": 1, "HMMA.1688.F32.TF32": 1, "IMMA.16832.S8.S8": 1,
        "LDSM.16.M88.4": 1, "LDSM.16.MT88.4": 1, "IDP.4A.S8.S8": 1, "I2IP.S8.S32.SAT": 2, "HMMA.SP.16832.F32": 2,
    }.items():  # fmt: skip
        assert made.opcodes.get(opcode) == times, (opcode, made.opcodes)
    for start in ("F2I", "PRMT"):
        assert sum(n for name, n in made.opcodes.items() if name.startswith(start)) == 1, (start, made.opcodes)
    assert made.spill_stores == made.spill_loads == made.float64_instructions == 0
    assert made.ptx.count("cvt.rna.tf32.f32") == 1


@needs_compiler
def test_a_gpu_that_is_too_old_is_told_by_the_compiler():
    says = "each_once does not compile for 7.5: ptx.mma_f16 needs compute capability 8.0 or higher, not 7.5$"
    with pytest.raises(inspect.InspectError, match=says):
        inspect.compile(each_once, signature="void(float32[::1], float32[::1])", cc="7.5")


# ---- a sparse by a dense matrix


@functools.cache
def sparse_product(selector):
    """A kernel whose warp i makes d[i] = a[i] b[i]^T + c[i] of words (n, 16, 8) and (n, 8, 16); metadata (n, 32)."""

    @cuda.jit
    def multiply(a, b, c, metadata, d):
        warp = cuda.grid(1) // 32
        g, t = cuda.laneid // 4, cuda.laneid % 4
        if warp < a.shape[0]:
            c0, c1, c2, c3 = ptx.mma_sp_f16(
                c[warp, g, 2 * t], c[warp, g, 2 * t + 1], c[warp, g + 8, 2 * t], c[warp, g + 8, 2 * t + 1],
                a[warp, g, t], a[warp, g + 8, t], a[warp, g, t + 4], a[warp, g + 8, t + 4],
                b[warp, g, t], b[warp, g, t + 4], b[warp, g, t + 8], b[warp, g, t + 12],
                metadata[warp, cuda.laneid], selector
            )  # fmt: skip
            d[warp, g, 2 * t], d[warp, g, 2 * t + 1] = c0, c1
            d[warp, g + 8, 2 * t], d[warp, g + 8, 2 * t + 1] = c2, c3

    return multiply


def registers(words, selector, rest=0):
    """(n, 16 rows, 2 words of 16 bits) -> int32 (n, 32): as lanes hold them, all others `rest`."""
    held = np.full((len(words), 8, 4), rest, np.uint32)
    held[..., 2 * selector : 2 * selector + 2] = words[:, :8] | words[:, 8:].astype(np.uint32) << 16
    return held.reshape(-1, 32).view(np.int32)


def example(n, seed):
    """(n matrices (16, 32) in 2:4, their kept elements' words and metadata, B's columns and words, C)."""
    rng = np.random.default_rng(seed)
    found = [compress(rng.standard_normal((16, 32)).astype(np.float16), "2:4") for _ in range(n)]
    dense = np.stack([one.dense() for one in found]).astype(np.float64)
    a = np.stack([one.values for one in found]).view(np.float32)
    b = rng.standard_normal((n, 8, 32)).astype(np.float16)
    c = rng.standard_normal((n, 16, 8)).astype(np.float32)
    return dense, a, np.stack([one.metadata() for one in found]), b, b.view(np.float32), c


@pytest.mark.parametrize("selector", [0, 1])
@few_examples(12)
@given(seed=st.integers(0, 999), n=st.integers(1, 5))
def test_a_sparse_product_is_that_of_the_decoded_matrix(selector, seed, n):
    dense, a, words, b, b_words, c = example(n, seed)
    # What the other lanes hold is not looked at: all its indices descend.
    args = a, b_words, c, registers(words, selector, 0x11111111), np.zeros_like(c)
    sparse_product(selector)[-(-n // 2), 64](*args)
    np.testing.assert_allclose(args[-1], dense @ b.astype(np.float64).swapaxes(1, 2) + c, rtol=0, atol=2**-17)
    if target.mode == "simulated":  # what is kept counts
        report = simt.xray(sparse_product(selector), -(-n // 2), 64, *args)
        assert report.hazards == () and report.totals.flops == n * 2 * 16 * 8 * 16
        assert cost(sparse_product(selector), -(-n // 2), 64, *args).tensor == n


def test_of_a_sparse_product_infinity_and_nan_stay_in_their_row_and_what_is_not_kept_is_not_looked_at():
    a = np.ones((1, 16, 16), np.float16)
    a[0, 3, 5], a[0, 4, 5] = np.inf, np.nan
    b = np.ones((1, 8, 32), np.float16)
    b[..., 2::4] = np.nan
    places = np.full((1, 32), 0x44444444, np.int32)  # of each group the first two are kept
    c = np.zeros((1, 16, 8), np.float32)
    d = np.zeros_like(c)
    sparse_product(0)[1, 32](a.view(np.float32), b.view(np.float32), c, places, d)
    assert (d[0, 3] == np.inf).all() and np.isnan(d[0, 4]).all() and (np.delete(d[0], [3, 4], axis=0) == 16).all()


@pytest.mark.parametrize("selector", [0, 1])
@pytest.mark.parametrize(("code", "has"), [(0x0, "0 and 0"), (0x5, "1 and 1"), (0x1, "1 and 0"), (0x6, "2 and 1")])
def test_indices_that_do_not_ascend_are_an_error_that_names_the_lane(selector, code, has):
    _, a, words, _, b, c = example(2, 1)
    words[1, 13, 1] = words[1, 13, 1] & 0xF0FF | code << 8  # row 5 + 8, upper half, group 2 of the lane's second row
    with pytest.raises(simt.HazardError) as error:
        simt.xray(
            sparse_product(selector), 1, 64, a, b, c, registers(words, selector), c.copy(), options=simt.Options()
        )
        sparse_product(selector)[1, 64](a, b, c, registers(words, selector), c.copy())
    text = str(error.value)
    assert f"in the metadata of thread {32 + 4 * 5 + 2 * selector + 1} of block 0 group 6 has {has}" in text
