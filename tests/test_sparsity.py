"""N:M and V:N:M: pruning, the compressed form both ways, metadata and the product, on random and awkward filters."""

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dwlab.problems import ProblemError, decode, encode
from dwlab.problems.sparsity import compress, kept_magnitude, pattern, product, stored

FORMS = st.sampled_from(["1:2", "2:4", "2:1:4", "4:2:8", "8:2:16", "3:2:7", "64:2:32"])


@st.composite
def filters(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    F, C = draw(st.integers(1, 40)), draw(st.integers(1, 70))
    w = rng.integers(-3, 4, (F, C)) if draw(st.booleans()) else rng.standard_normal((F, C))
    w = w.astype(draw(st.sampled_from([np.float32, np.float16, np.int8])) if w.dtype.kind == "i" else np.float32)
    if draw(st.booleans()):
        w[rng.random(F) < 0.3] = 0
    return w


@settings(max_examples=150, deadline=None)
@given(filters(), FORMS)
def test_what_is_kept_is_the_largest_in_the_pattern_and_comes_back(w, form):
    one, found = pattern(form), compress(w, form)
    back = found.dense()
    assert back.shape == w.shape and back.dtype == w.dtype
    assert np.array_equal(back[back != 0], w[back != 0])  # kept as it was
    padded = np.pad(back, ((0, -len(w) % one.V), (0, -w.shape[1] % one.M)))
    blocks = padded.reshape(len(padded) // one.V, one.V, -1, one.M)
    assert ((blocks != 0).sum(3) <= one.N).all()  # of each row
    assert ((blocks != 0).any(1).sum(2) <= one.columns).all()  # of each block
    full = np.pad(w, ((0, -len(w) % one.V), (0, -w.shape[1] % one.M))).reshape(blocks.shape)
    sums = np.abs(full.astype(np.float64)).sum(1)
    kept = np.zeros(sums.shape, bool)
    np.put_along_axis(kept, found.columns % one.M, True, 2)
    assert (np.where(kept, sums, np.inf).min(2) >= np.where(kept, -np.inf, sums).max(2, initial=-np.inf)).all()
    inside = np.where(kept[:, None], np.abs(full.astype(np.float64)), -1)
    largest = np.sort(inside, axis=3)[..., -one.N :].sum(3)
    assert np.allclose(np.abs(blocks.astype(np.float64)).sum(3), largest)
    again = compress(back, form)
    assert np.array_equal(again.dense(), back) and again.nbytes == found.nbytes


@settings(max_examples=60, deadline=None)
@given(filters(), FORMS, st.integers(1, 9))
def test_the_product_is_the_dense_one(w, form, n):
    found = compress(w, form)
    x = np.random.default_rng(n).standard_normal((w.shape[1], n))
    assert np.allclose(product(found, x), found.dense().astype(np.float64) @ x, rtol=1e-12, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(filters(), st.sampled_from(["2:4", "4:2:8"]))
def test_metadata_are_the_six_codes_in_order_and_lead_back(w, form):
    found = compress(w, form)
    words = found.metadata()
    nibbles = (words[..., None] >> np.arange(0, 16, 4, dtype=np.uint16)) & 15
    nibbles = nibbles.reshape(len(words), -1)[:, : found.indices.shape[1] // 2]
    assert set(nibbles.ravel()) <= {0x4, 0x8, 0xC, 0x9, 0xD, 0xE}  # PTX ISA: the others are undefined
    pairs = np.stack([nibbles & 3, nibbles >> 2], 2).reshape(found.indices.shape)
    assert np.array_equal(pairs, found.indices)


def test_a_word_decoded_by_hand():
    w = np.zeros((1, 16), np.float16)
    w[0, [1, 3, 4, 5, 10, 15]] = [1, 2, 3, 4, 5, 6]
    found = compress(w, "2:4")
    # (1, 3), (0, 1), of one weight it and the last of the zeros: (2, 3), and (2, 3).
    assert found.values.tolist() == [[1, 2, 3, 4, 5, 0, 0, 6]]
    assert found.metadata().tolist() == [[0b1110_1110_0100_1101]]
    assert compress(np.zeros((3, 8), np.float32), "2:4").metadata().tolist() == [[0xEEEE]] * 3  # padded to a word


@pytest.mark.parametrize("form, sparsity", [("2:4", 0.5), ("64:2:8", 0.75), ("64:2:16", 0.875), ("64:2:32", 0.9375)])
def test_patterns_have_the_sparsity_of_the_tables(form, sparsity):
    assert pattern(form).sparsity == sparsity and str(pattern(form)) == form
    w = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float16)
    assert (compress(w, form).dense() == 0).mean() == sparsity
    assert 1 - sparsity < kept_magnitude(w, form) < 1
    if form == "2:4":
        assert compress(w, form).nbytes / w.nbytes == 0.5625  # 56.25 % of dense float16


def test_what_a_refusal_of_a_pattern_names_is_a_pattern():
    for V, N, M in itertools.product((1, 2, 64), range(1, 5), (*range(1, 18), 256, 257)):
        try:
            assert str(pattern(f"{V}:{N}:{M}")) == (f"{N}:{M}" if V == 1 else f"{V}:{N}:{M}")
        except ProblemError as error:
            named = re.findall(r"\b(?:\d+:)?\d+:\d+\b", str(error))
            assert len(named) > 1 and all(pattern(one) for one in named[1:]), error


TYPES = (
    "float16 float32 float64 longdouble int8 int16 int32 int64 uint8 uint32 uint64 bool complex64 complex128 bfloat16"
)


@pytest.mark.parametrize("form", ["1:2", "2:4", "4:1:8", "2:2:16"])
@pytest.mark.parametrize("dtype", TYPES.split())
def test_weights_of_every_type_are_pruned_by_magnitude(dtype, form):
    """As their magnitudes in the widest float are; bfloat16 is stored in uint16."""
    rng, one = np.random.default_rng(len(dtype)), pattern(form)
    full = rng.standard_normal((8, 32)) * np.exp(3 * rng.standard_normal((8, 32)))
    if dtype == "bfloat16":
        w = encode(full, dtype)
        size = np.abs(decode(w, dtype)).astype(np.longdouble)
    elif dtype.startswith("complex"):
        w = (full * np.exp(2j * np.pi * rng.random(full.shape))).astype(dtype)
        size = np.abs(w.astype(np.clongdouble))
    else:
        w = (full if np.dtype(dtype).kind == "f" else 40 * full.clip(-3, 3) % 120).astype(dtype)
        if dtype in ("int64", "uint64"):
            w = w + np.array(2**62, dtype)  # of which float64 tells no neighbours apart
        size = np.abs(w.astype(np.longdouble))
    assert (compress(w, form).dense() != 0).tolist() == ((compress(size, form).dense() != 0) & (w != 0)).tolist()
    assert kept_magnitude(w, form) == pytest.approx(kept_magnitude(size, form), rel=1e-6)
    x = rng.standard_normal((32, 3))
    dense = compress(w, form).dense()
    dense = decode(dense, dtype) if dtype == "bfloat16" else dense
    assert np.allclose(product(compress(w, form), x), dense @ x, rtol=1e-6) and one.N < one.M


@pytest.mark.parametrize("w", [np.full((2, 4), "1"), np.full((2, 4), None), np.zeros((2, 4), "M8[s]")])
def test_what_are_no_numbers_are_refused(w):
    with pytest.raises(ProblemError, match="weights are numbers, not"):
        compress(w, "2:4")


@pytest.mark.parametrize(
    "form, says",
    [
        ("2-4", "is no pattern"), ("9" * 5000 + ":4", "^'9{79} is no pattern"),
        ("2:8", "without rows that share columns"), ("0:2:4", "V of a pattern must be"), ("4:3:8", "N is 1 or 2"),
        ("4:2:3", "N is 1 or 2"), ("4:2:512", "N is 1 or 2"),
    ],
)  # fmt: skip
def test_what_is_no_pattern_says_so(form, says):
    with pytest.raises(ProblemError, match=says):
        pattern(form)


def test_weights_without_a_magnitude_and_arrays_that_are_no_filters():
    w = np.ones((4, 4), np.float32)
    for bad in (np.nan, np.inf):
        w[2, 1] = bad
        with pytest.raises(ProblemError, match="NaN or infinite"):
            compress(w, "2:4")
    for act, shape in itertools.product((compress, kept_magnitude), ((4,), (0, 4), (2, 2, 2))):
        with pytest.raises(ProblemError, match="a matrix"):
            act(np.zeros(shape), "2:4")
    with pytest.raises(ProblemError, match="is no pattern"):
        kept_magnitude(np.zeros((4, 4)), "banana")
    with pytest.raises(ProblemError, match=r"need \(4, n\)"):
        product(compress(np.ones((4, 4)), "2:4"), np.ones((5, 2)))
    with pytest.raises(ProblemError, match="16 bits, not float32"):
        stored(compress(np.ones((4, 4), np.float32), "2:4"))
    with pytest.raises(ProblemError, match="not of 1:2"):
        compress(np.ones((4, 4)), "1:2").metadata()
    assert kept_magnitude(np.zeros((4, 4)), "2:4") == 1
