"""Pointwise layers with sparse filters: arrays and back, stages in every tile, wrong kernels, the roofline."""

import itertools
import re
from dataclasses import replace

import edits
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from launched import counts, right_and_counted
from mutated import judged, mutate
from parts import most, part

from dwlab.gpu import target
from dwlab.kernels import registry
from dwlab.kernels.registry import StageError
from dwlab.kernels.sparse import forward_2_columns, rows_tiles, tensor_tiles
from dwlab.kernels.tiling import gpu as gpus
from dwlab.model import sparse as roof
from dwlab.problems import ProblemError, layers, references
from dwlab.problems.layers import Fused, Pointwise, SparsePointwise
from dwlab.problems.sparsity import compress, dense_of, stored

NAIVE, COLUMNS, TENSOR, ROWS, WGMMA_ROWS = (
    registry.stage(f"sparse/forward/{name}") for name in ("naive", "columns", "tensor", "rows", "wgmma_rows")
)
FORMS = st.one_of(
    st.sampled_from(["2:4", "1:2", "64:2:8", "64:2:16", "16:2:16"]),
    st.builds("{}:{}:{}".format, st.sampled_from([1, 3, 16, 32, 48]), st.just(2), st.just(4)),
    st.builds("{}:{}:{}".format, st.sampled_from([2, 3, 16, 32, 48]), st.integers(1, 2), st.integers(4, 40)),
)


def of(C, F, H, W, form, N=1, bias=True, activation="relu6", residual=False, layout="NHWC"):
    return SparsePointwise(N, C, F, H, W, layout, bias=bias, activation=activation, residual=residual, pattern=form)


@settings(max_examples=100, deadline=None)
@given(FORMS, st.integers(1, 70), st.integers(1, 90), st.integers(0, 99))
def test_stored_filters_lead_back_to_the_pruned_ones(form, F, C, seed):
    w = np.random.default_rng(seed).standard_normal((F, C)).astype(np.float16)
    w[:: seed % 5 + 2] = 0
    pruned = compress(w, form)
    arrays, layer = stored(pruned), of(C, F, 1, 1, form)
    assert np.array_equal(dense_of(arrays, form, F, C), pruned.dense())
    shapes = {name: array.shape for name, array in arrays.items()}
    assert shapes == {name: shape for name, shape in layer.shapes().items() if name[0] == "w"}
    assert all(array.dtype == layer.storage_of(name) for name, array in arrays.items())
    nibbles = (arrays["wi"].view(np.uint32)[..., None] >> np.arange(0, 32, 4, dtype=np.uint32)) & 15
    assert set(nibbles.ravel()) <= {0x4, 0x8, 0xC, 0x9, 0xD, 0xE}


@settings(max_examples=30, deadline=None)
@given(FORMS, st.integers(1, 60), st.integers(1, 60), st.sampled_from(layers.LAYOUTS))
def test_a_layer_reads_as_it_prints_itself_and_its_answer_is_the_pruned_dense_one(form, F, C, layout):
    layer = of(C, F, 2, 3, form, residual=True, activation="relu", layout=layout)
    assert layers.problem(str(layer)) == layer
    given = layer.inputs(seed=1)
    w = layer.filters(given)
    assert np.array_equal(compress(w, form).dense(), w)  # in the pattern
    assert not w[3::7].any() and w.any()
    dense = Pointwise(1, C, F, 2, 3, layout, "float16", True, "relu", True)
    same = {"w": w} | {name: given[name] for name in ("x", "b", "r")}
    got, wanted = references.reference(layer, "forward", given), references.reference(dense, "forward", same)
    assert np.array_equal(got["y"], wanted["y"])


def test_sizes_and_bytes():
    layer = of(1024, 768, 4, 8, "2:4")
    shapes = layer.shapes()
    assert shapes["w"] == (768, 512) and shapes["wi"] == (32, 768) and "wc" not in shapes
    held = sum(layer.nbytes()[name] for name in ("w", "wi"))
    assert held / (2 * 1024 * 768) == 0.5625 and layer.flops == roof.dense_layer(layer).flops // 2
    layer = replace(layer, F=700, pattern="64:2:16")
    assert layer.shapes()["w"] == (704, 128) and layer.shapes()["wc"] == (11, 256) and layer.terms == 128
    assert layer.dtype_of("wc") == "uint8" and layer.dtype_of("wi") == "int32"
    assert layer.slots() == ("x", "w", "wi", "wc", "b", "x", "y")
    assert of(9, 3, 1, 1, "3:2:7").shapes()["w"] == (3, 16)  # two groups of 7, padded to 32 columns


def test_what_is_no_such_layer_says_so():
    for changes, says in (
        ({"dtype": "float32"}, "dtype float16, not float32"),
        ({"dtype": "int8", "activation": "relu"}, "dtype float16, not int8"),
        ({"pattern": "2:8"}, "without rows that share columns"),
        ({"C": 0}, "C must be at least 1"),
    ):
        with pytest.raises(ProblemError, match=says):
            replace(of(8, 8, 2, 2, "2:4"), **changes)
    with pytest.raises(ProblemError, match="is no pattern|unknown"):
        layers.problem("N=1 C=8 F=8 H=2 W=2 2-4")
    with pytest.raises(ProblemError, match="is no layer"):
        Fused(of(8, 8, 2, 2, "2:4"), Pointwise(1, 8, 8, 2, 2, "NHWC", "float16"))
    w = np.ones((4, 8), np.float16)
    w[1, 2] = np.nan
    with pytest.raises(ProblemError, match="NaN or infinite"):
        stored(compress(w, "2:4"))


def test_metadata_that_do_not_ascend_are_refused():
    layer = of(64, 8, 2, 2, "2:4")
    given = layer.inputs()
    given["wi"][1, 5] = given["wi"][1, 5] & ~0xF0 | 0x50
    with pytest.raises(ProblemError, match=r"group 9 of row 5 keeps places \[1, 1\]"):
        references.reference(layer, "forward", given)


@pytest.mark.parametrize(
    "layout, stage",
    [("NHWC", one) for one in (NAIVE, COLUMNS, TENSOR)] + [("NCHW", one) for one in (NAIVE, ROWS, WGMMA_ROWS)],
    ids=lambda one: getattr(one, "name", one),
)
@settings(max_examples=most(8 if target.mode == "simulated" else 2), deadline=None)
@given(
    FORMS, st.integers(1, 3), st.integers(1, 99), st.integers(1, 45), st.integers(1, 40), st.booleans(), st.booleans(),
    st.sampled_from(layers.ACTIVATIONS),
)  # fmt: skip
def test_any_layer_is_right_and_counted(layout, stage, form, N, C, F, W, bias, residual, activation):
    if stage is not NAIVE:  # the others are for whole pairs
        C, F, W = (2 * C, 2 * F, W) if layout == "NHWC" else (C, 2 * F, 2 * W)
    layer = of(C, F, 1, W, form, N, bias, activation, residual, layout)
    right_and_counted(stage, layer if stage.supports(layer) else replace(layer, pattern="2:4"))


@counts
@pytest.mark.parametrize("shape", tensor_tiles.SHAPES, ids=str)
def test_every_tile_of_sparse_tensor_cores_is_right_and_counted(shape):
    """Pixels and filters that end within a tile and its warps' tiles; sums that end within a chunk."""
    BM, BN, _, WN = shape
    depth = 2 + tensor_tiles.SHAPES.index(shape) % 2
    form = {64: ("64:2:8", "2:4"), 32: ("32:2:16", "1:2"), 16: ("16:1:8", "2:4")}[WN][depth % 2]
    layer = of(88, BN + 6, 1, BM + 9, form, residual=depth == 2)
    one = TENSOR.with_config(tensor_tiles.config_of(layer, *shape, depth))
    seen = right_and_counted(one, layer)
    assert layer.chooses or seen.bank_conflicts == 0


@counts
@pytest.mark.family(0.1)
@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("shape", rows_tiles.SHAPES, ids=str)
def test_every_tile_of_rows_is_right_and_counted(shape, steps):
    """Maps of whole vectors of 8, 4 and 2 pixels; sums that end within a chunk; blocks of two images."""
    BM, BN, *_ = shape
    k = rows_tiles.SHAPES.index(shape) + steps
    form = (f"{BN}:2:8", "2:4", f"{BN}:2:12")[k % 3]
    layer = of(88, BN + 6, 1, BM // 2 + (8, 4, 2)[k % 3], form, N=3, residual=k % 2 == 0, layout="NCHW")
    one = ROWS.with_config(rows_tiles.config_of(layer, *shape, steps, 2 + k % 3))
    assert right_and_counted(one, layer).bank_conflicts == 0


@counts
@pytest.mark.parametrize("form", ["64:2:16", "128:2:32", "2:4"])
def test_rows_that_are_all_channels_are_not_compared_with_the_end(form):
    """Whole tiles in every dimension: a block's copies have no condition."""
    layer = of(512, 128, 2, 128, form, bias=False, activation="none", layout="NCHW")
    one = ROWS.with_config(rows_tiles.config_of(layer, 128, 64, 32, 64, 2, 2))
    assert rows_tiles.layout_of(layer.kernel_key, 1, one.config(layer)).every
    right_and_counted(one, layer)


@counts
@pytest.mark.parametrize("shape", forward_2_columns.SHAPES[::3], ids=str)
def test_tiles_of_multiply_adds_are_right_and_counted(shape):
    form = {64: "64:2:8", 32: "32:1:6", 16: "2:4"}[shape[1]]
    layer = of(40, shape[1] + 4, 1, shape[0] + 5, form, residual=form == "2:4")
    one = COLUMNS.with_config(forward_2_columns.config_of(layer, *shape))
    right_and_counted(one, layer)


def test_stages_say_what_they_do_not_take():
    for stage in (COLUMNS, TENSOR):
        assert "not for these sizes" in stage.why_not(of(28, 6, 2, 2, "3:2:7"))  # 3 filters fill no tile
        with pytest.raises(StageError, match="use sparse/forward/naive"):
            stage.launch(of(28, 7, 2, 2, "2:4"))
    assert "needs compute capability 8.0" in TENSOR.why_not(of(64, 64, 2, 2, "2:4"), (7, 5))
    assert not COLUMNS.supports(of(64, 64, 2, 2, "2:4"), (7, 5))  # for want of asynchronous copies
    assert not any(stage.why_not(of(64, 64, 2, 2, "64:2:16")) for stage in (NAIVE, COLUMNS, TENSOR))
    assert "not for these sizes or this layout" in ROWS.why_not(of(64, 64, 2, 2, "2:4"))
    assert "not for these sizes or this layout" in TENSOR.why_not(of(64, 64, 2, 2, "2:4", layout="NCHW"))
    for changes in ({"H": 3, "W": 3}, {"F": 7}, {"pattern": "3:2:7"}):
        with pytest.raises(StageError, match="use sparse/forward/naive"):
            ROWS.launch(replace(of(64, 64, 2, 2, "2:4", layout="NCHW"), **changes))
    assert not WGMMA_ROWS.supports(of(64, 64, 2, 2, "32:2:8", layout="NCHW"), (9, 0))  # of 64 filters
    assert "9.0 alone" in WGMMA_ROWS.lacks("float16", (10, 0))


@pytest.mark.parametrize("form", ["2:4", "64:2:16"])
@pytest.mark.parametrize("one", registry.stages("sparse"), ids=lambda one: one.name)
def test_a_stage_that_refuses_sizes_names_what_they_are_to_be(one, form):
    """The least multiples with which the stage takes the layer; or the pattern is in its way."""
    for C, F, W, layout in itertools.product((7, 64), (5, 64), (7, 64), ("NCHW", "NHWC")):
        layer = SparsePointwise(1, C, F, 1, W, layout, pattern=form, dtype="float16")
        why = one.why_not(layer, gpus.H200)
        found = re.search(r"\((?:(.*): a multiple of (\d+))?(?: and )?(N\w+)? is needed\)$", why)
        assert (why == "") == one.supports(layer, gpus.H200) and (found or why[-12:] in ("", "this pattern")), why
        if found:
            step, sizes = int(found[2] or 1), dict(re.findall(r"(\w) = (\d+)", found[1] or ""))
            sizes = {name: -(-int(size) // step) * step for name, size in sizes.items()}
            assert one.supports(replace(layer, layout=found[3] or layout, **sizes), gpus.H200), why


TAKEN = part("wrong sparse kernels", edits.sparse(r"\w+"), lambda edit: [edit[0]], 0.05)


@counts
@pytest.mark.parametrize(("id", "old", "new", "module"), TAKEN, ids=[f"{one[0]}-{one[1][:25]}" for one in TAKEN])
def test_no_wrong_kernel_is_accepted(id, old, new, module):
    verdict = judged(mutate(id, old, new, module), registry.stage(id).dtypes[0], looked_into=0)
    assert not verdict.passed
    assert not {"raises", "cannot be interpreted"} & set(verdict.patterns), verdict


def test_the_roofline_says_where_sparse_filters_can_pay():
    large = of(4096, 4096, 64, 64, "2:4")
    found = roof.gain(large, 4000, 600)
    assert found.dense.binds == "flops" and 1.9 < found.most <= 2
    small = roof.gain(of(24, 144, 56, 56, "2:4", N=32), 4000, 600)
    assert small.dense.binds == "bytes" and 1 <= small.most < 1.01
    gains = roof.patterns(large, ("2:4", "64:2:8", "64:2:16", "64:2:32"), 4000, 600)
    assert list(gains.values()) == sorted(gains.values()) and gains["64:2:16"] <= 8
    with pytest.raises(ValueError, match="both must be positive"):
        roof.bound(large, 0, 600)
