"""A warp's product of a sparse by a dense matrix: against the decoded matrix, counted, refused, compiled."""

import functools

import numpy as np
import pytest
from compiler import needs_compiler
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import uint32

from dwlab import simt
from dwlab.compiler import inspect
from dwlab.gpu import target
from dwlab.kernels.parts import ptx
from dwlab.problems.sparsity import compress
from dwlab.simt.cost import cost
from dwlab.target import cuda

FEW = settings(max_examples=12 if target.mode == "simulated" else 2, deadline=None)
LEAST = np.int32(0x44444444)  # all groups keep their first two


@cuda.jit(device=True)
def lower(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1, b2, b3, metadata):
    return ptx.mma_sp_f16(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1, b2, b3, metadata, 0)


@cuda.jit(device=True)
def upper(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1, b2, b3, metadata):
    return ptx.mma_sp_f16(c0, c1, c2, c3, a0, a1, a2, a3, b0, b1, b2, b3, metadata, 1)


@functools.cache
def product(selector):
    """A kernel whose warp i makes d[i] = a[i] b[i]^T + c[i] of words (n, 16, 8) and (n, 8, 16); metadata (n, 32)."""
    mma = (lower, upper)[selector]

    @cuda.jit
    def multiply(a, b, c, metadata, d):
        warp = cuda.grid(1) // 32
        g, t = cuda.laneid // 4, cuda.laneid % 4
        if warp < a.shape[0]:
            c0, c1, c2, c3 = mma(
                c[warp, g, 2 * t], c[warp, g, 2 * t + 1], c[warp, g + 8, 2 * t], c[warp, g + 8, 2 * t + 1],
                a[warp, g, t], a[warp, g + 8, t], a[warp, g, t + 4], a[warp, g + 8, t + 4],
                b[warp, g, t], b[warp, g, t + 4], b[warp, g, t + 8], b[warp, g, t + 12], metadata[warp, cuda.laneid]
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
@FEW
@given(seed=st.integers(0, 999), n=st.integers(1, 5))
def test_the_product_is_that_of_the_decoded_matrix(selector, seed, n):
    dense, a, words, b, b_words, c = example(n, seed)
    d = np.zeros_like(c)
    # What the other lanes hold is not looked at: all its indices descend.
    product(selector)[-(-n // 2), 64](a, b_words, c, registers(words, selector, 0x11111111), d)
    np.testing.assert_allclose(d, dense @ b.astype(np.float64).swapaxes(1, 2) + c, rtol=0, atol=2**-17)


def test_infinity_and_nan_stay_in_their_row_and_what_is_not_kept_is_not_looked_at():
    a = np.ones((1, 16, 16), np.float16)
    a[0, 3, 5], a[0, 4, 5] = np.inf, np.nan
    b = np.ones((1, 8, 32), np.float16)
    b[..., 2::4] = np.nan  # of each group the first two are kept
    c = np.zeros((1, 16, 8), np.float32)
    d = np.zeros_like(c)
    product(0)[1, 32](a.view(np.float32), b.view(np.float32), c, np.full((1, 32), LEAST), d)
    assert (d[0, 3] == np.inf).all() and np.isnan(d[0, 4]).all() and (np.delete(d[0], [3, 4], axis=0) == 16).all()


def test_it_counts_what_is_kept():
    _, a, words, _, b, c = example(3, 0)
    args = (a, b, c, registers(words, 0), c.copy())
    report = simt.xray(product(0), 2, 64, *args)
    assert report.hazards == () and report.totals.flops == 3 * 2 * 16 * 8 * 16
    assert cost(product(0), 2, 64, *args).tensor == 3


@pytest.mark.parametrize("selector", [0, 1])
@pytest.mark.parametrize(("code", "has"), [(0x0, "0 and 0"), (0x5, "1 and 1"), (0x1, "1 and 0"), (0x6, "2 and 1")])
def test_indices_that_do_not_ascend_are_an_error_that_names_the_lane(selector, code, has):
    _, a, words, _, b, c = example(2, 1)
    words[1, 13, 1] = words[1, 13, 1] & 0xF0FF | code << 8  # row 5 + 8, upper half, group 2 of the lane's second row
    with pytest.raises(simt.HazardError) as error:
        simt.xray(product(selector), 1, 64, a, b, c, registers(words, selector), c.copy(), options=simt.Options())
        product(selector)[1, 64](a, b, c, registers(words, selector), c.copy())
    text = str(error.value)
    assert f"in the metadata of thread {32 + 4 * 5 + 2 * selector + 1} of block 0 group 6 has {has}" in text


@cuda.jit
def both_selectors(x, y):
    i = uint32(cuda.threadIdx.x)
    w, e = x[i], ptx.word_of_float(x[i + 32])
    a, b, c, d = lower(w, w, w, w, w, w, w, w, w, w, w, w, e)
    y[i] = upper(a, b, c, d, w, w, w, w, w, w, w, w, e)[0]


@needs_compiler
@pytest.mark.parametrize("cc", ["8.0", "9.0"])
def test_it_is_compiled_to_its_instruction(cc):
    made = inspect.compile(both_selectors, signature="void(float32[::1], float32[::1])", cc=cc)
    assert made.ptx.count("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32") == 2
    if made.sass is None:
        pytest.skip(f"no SASS here: {made.sass_missing}")
    assert made.opcodes.get("HMMA.SP.16832.F32") == 2, made.opcodes
    assert made.spill_stores == made.spill_loads == made.float64_instructions == 0
