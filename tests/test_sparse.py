"""Pointwise layers with sparse filters: arrays and back, stages in every tile, wrong kernels, the roofline.

Of wgmma_rows and tma also what goes from tile to tile of a block, and what the compiler makes of it.
"""

import itertools
import re
from dataclasses import replace

import edits
import numpy as np
import pytest
from compiler import needs_compiler
from hypothesis import given, settings
from hypothesis import strategies as st
from launched import counts, launched, right_and_counted
from mutated import judged, mutate
from parts import most, part

from dwlab import simt
from dwlab.compiler import inspect
from dwlab.gpu import target
from dwlab.kernels import registry
from dwlab.kernels.registry import StageError
from dwlab.kernels.sparse import forward_2_columns, rows_tiles, tensor_tiles, tma_tiles, wgmma_rows_tiles
from dwlab.kernels.tiling import gpu as gpus
from dwlab.model import sparse as roof
from dwlab.problems import ProblemError, layers, references
from dwlab.problems.layers import Fused, Pointwise, SparsePointwise
from dwlab.problems.sparsity import compress, dense_of, stored

NAIVE, COLUMNS, TENSOR, ROWS, WGMMA_ROWS, TMA = (
    registry.stage(f"sparse/forward/{name}") for name in "naive columns tensor rows wgmma_rows tma".split()
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
    seen = right_and_counted(TENSOR.with_config(tensor_tiles.config_of(layer, *shape, depth)), layer)
    assert layer.chooses or seen.bank_conflicts == 0


@counts
@pytest.mark.family(0.1)
@pytest.mark.parametrize("more", [1, 2])
@pytest.mark.parametrize(
    ("stage", "tiles", "shape"),
    [(ROWS, rows_tiles, one) for one in rows_tiles.SHAPES]
    + [(WGMMA_ROWS, wgmma_rows_tiles, one) for one in wgmma_rows_tiles.SHAPES],
    ids=lambda one: getattr(one, "name", str(one)),
)
def test_every_tile_of_rows_is_right_and_counted(stage, tiles, shape, more):
    """Maps of whole vectors of 8, 4 and 2 pixels; sums that end within a chunk; blocks of two images."""
    BM, BN, *_ = shape
    k = tiles.SHAPES.index(shape) + more
    form = (f"{BN}:2:8", "2:4", f"{BN}:2:12")[k % 3]
    C, rest = (88, (more, 2 + k % 3)) if stage is ROWS else ((200, 30)[k % 2], (2 + k % 2, 2 * more - 1))
    layer = of(C, BN + 6, 1, BM // 2 + (8, 4, 2)[k % 3], form, N=3, residual=k % 2 == 0, layout="NCHW")
    one = stage.with_config(tiles.config_of(layer, *shape, *rest))
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
    right_and_counted(COLUMNS.with_config(forward_2_columns.config_of(layer, *shape)), layer)


# ---- wgmma_rows and tma: tiles behind each other, slices, and what is compiled


def boxes(layout, C, F, H, W, N=1, form="2:4", **more):
    return SparsePointwise(N, C, F, H, W, layout, pattern=form, **more)


def of_tma(layer, *config):
    assert right_and_counted(TMA.with_config(tma_tiles.config_of(layer, *config)), layer).bank_conflicts == 0


@counts
@pytest.mark.family(0.1)
@pytest.mark.parametrize("layout", layers.LAYOUTS)
@pytest.mark.parametrize("shape", tma_tiles.SHAPES, ids=str)
def test_every_tile_of_boxes_is_right_and_counted(shape, layout):
    """Two images of a tile and 8 pixels more each, and of small tiles twice the tile's filters."""
    BM, BN, _ = shape
    filters = 2 * BN if BN <= 128 else BN
    of_tma(boxes(layout, 192, filters, 1, BM + 8, 2, residual=True, bias=True, activation="relu6"), *shape, 2)


@counts
@pytest.mark.family(0.1)
@pytest.mark.parametrize("layout", layers.LAYOUTS)
@pytest.mark.parametrize(
    ("sizes", "shape", "places", "groups", "slices"),
    [
        ((64, 64, 9, 40, 2), (64, 64, 64), 1, 1, 1), ((192, 64, 9, 40, 2), (64, 64, 64), 2, 4, 1),
        ((192, 128, 3, 24, 3), (128, 128, 128), 3, 2, 1), ((128, 64, 5, 8, 5), (128, 64, 64), 5, 3, 1),
        ((64, 128, 7, 56, 1), (64, 64, 64), 4, 9, 1), ((256, 64, 16, 17, 1), (64, 64, 64), 12, 5, 1),
        ((128, 128, 5, 64), (128, 64, 64), 2, 1, 2), ((256, 128, 5, 64), (64, 64, 64), 4, 1, 2),
        ((512, 128, 5, 64), (128, 128, 128), 6, 1, 2), ((384, 128, 5, 64), (64, 128, 64), 4, 1, 2),
        ((768, 128, 5, 64), (256, 64, 256), 6, 1, 2),
    ],
    ids=str,
)  # fmt: skip
def test_a_block_goes_from_tile_to_tile_and_slices_share_a_sum(sizes, shape, places, groups, slices, layout):
    """Places that a tile's chunks fill once, more often, or not at all; a last block that has fewer tiles, or one."""
    how = {"bias": sizes[0] > 64, "residual": sizes[0] > 128} if slices == 1 else {"bias": True, "activation": "relu"}
    of_tma(boxes(layout, *sizes, **how), *shape, places, groups, slices)


@counts
@pytest.mark.parametrize("layout", layers.LAYOUTS)
def test_every_tile_worth_a_look_is_right(layout):
    """Of a layer of four chunks, whatever the configurations have: places, tiles a block, slices."""
    layer = boxes(layout, 256, 192, 8, 40, bias=True)
    found = list(tma_tiles.configs(layer.kernel_key, layer.N, gpus.Gpu((9, 0), 3, "a small one")))
    assert {one.warps_k for one in found} == {1, 2} and max(one.groups for one in found) > 1
    for config in part(f"tiles of sparse tma: {layout}", found, lambda one: [one.warps_k, f"{one.groups} tiles"], 0.01):
        assert right_and_counted(TMA.with_config(config), layer).bank_conflicts == 0


def behind_each_other(id):
    """(layer, tile): tiles behind each other or in slices. Of wgmma_rows two groups of 128 pixels a tile, and two tiles
    a block, the last block's one: those that the judge has are smaller. Of the others all tiles are whole, and copies
    have no condition; the last has one chunk a tile."""
    if id == TMA.id:
        for layout, C, how in itertools.product(layers.LAYOUTS, (384, 128), ((3, 1), (1, 2))):
            layer = boxes(layout, C, 64, 4, 80)
            yield layer, tma_tiles.config_of(layer, 64, 64, 64, 4, *how)
    else:
        for C, pixels in ((136, 640), (512, 768), (128, 768)):
            layer = boxes("NCHW", C, 64, 1, pixels, form="64:2:8", bias=True)
            yield layer, wgmma_rows_tiles.config_of(layer, 256, 64, 128, 3, 2)


EDITS = edits.sparse("(tma|wgmma_rows):tiles")


@counts
@pytest.mark.parametrize("edit", EDITS, ids=[one[1].strip()[:30] for one in EDITS])
def test_no_wrong_way_from_tile_to_tile_is_right(edit):
    """A deadlock, a race or a wrong sum."""
    mutant = mutate(*edit)

    def passes(layer, config):
        try:
            return launched(mutant.with_config(config), layer)[0] <= 1
        except simt.SimtError:
            return False

    assert not all(passes(*one) for one in behind_each_other(mutant.id))  # up to the first that is wrong


@counts
def test_one_place_for_several_chunks_is_a_deadlock():
    layer = boxes("NHWC", 128, 64, 8, 8)
    with pytest.raises(simt.UnsupportedError, match="waits for the end of phase 1"):
        launched(TMA.with_config(tma_tiles.config_of(layer, 64, 64, 64, 1)), layer)


@pytest.mark.parametrize(
    ("stage", "tiles", "form", "F", "most"),
    [(TMA, tma_tiles, "2:4", *one) for one in ((64, 64), (192, 192), (256, 256), (320, 64), (1024, 256))]
    + [
        (WGMMA_ROWS, wgmma_rows_tiles, *one)
        for one in (("2:4", 512, 256), ("64:2:16", 512, 64), ("128:2:16", 512, 128))
    ],
)
def test_tiles_of_a_layer_fit_and_are_of_its_filters_and_pattern(stage, tiles, form, F, most):
    layer = boxes("NCHW", 1024, F, 64, 64, form=form)
    found = list(tiles.configs(layer.kernel_key, 1, gpus.H200))
    assert max(one.block_n for one in found) == most and stage.config(layer) in found
    assert {one.groups > 1 for one in found} == {True, False} or stage is TMA
    for one in found:
        resident = gpus.H200.blocks_per_sm(tiles.resources(layer.kernel_key, one))
        assert resident or stage is not TMA and one != stage.config(layer)
        if stage is TMA:
            assert F % one.block_n == 0
            assert one.groups == 1 or stage.with_config(one).launch(layer).blocks <= resident * 132


@needs_compiler
@pytest.mark.parametrize(
    ("stage", "tiles", "how", "shape"),
    [
        *itertools.product([TMA], [tma_tiles], itertools.product(layers.LAYOUTS, [(4, 1, 1), (4, 3, 1), (4, 1, 2)]),
                           tma_tiles.SHAPES[::3]),
        *itertools.product([WGMMA_ROWS], [wgmma_rows_tiles], itertools.product(["128:2:16", "2:4"], [(3, 1), (3, 3)]),
                           wgmma_rows_tiles.SHAPES[::3]),
    ],
    ids=lambda one: getattr(one, "name", str(one)),
)  # fmt: skip
def test_every_few_tiles_keep_their_sums_in_registers(stage, tiles, how, shape):
    kind, config = how
    layer = boxes(kind, 4096, 1536, 128, 64) if stage is TMA else boxes("NCHW", 4096, 1024, 128, 64, form=kind)
    config = tiles.config_of(layer, *shape, *config)
    if stage is TMA and tiles.most_registers(config) < shape[2] // 2 + tiles.OTHERS:
        pytest.skip("no tile worth a look: its sums do not fit")
    made = inspect.compile(stage.with_config(config), problem=layer, cc="9.0")
    assert made.spill_stores == made.spill_loads == made.float64_instructions == 0
    assert f"HGMMA.SP.64x{shape[2]}x32.F32" in made.opcodes
    if stage is TMA:
        assert made.opcodes["UTMALDG.4D"] >= 3
    else:  # as many blocks as they say
        assert made.registers <= tiles.most_registers(tiles.layout_of(layer.kernel_key, 1, config))


# ---- what they take, wrong kernels, the roofline


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
    assert list(wgmma_rows_tiles.configs(boxes("NCHW", 64, 64, 1, 8, form="32:2:8").kernel_key, 1, gpus.H200)) == []
    for layout, *sizes, form, taken in (
        ("NCHW", 64, 64, 2, 4, "2:4", True), ("NCHW", 64, 64, 2, 3, "2:4", False), ("NHWC", 64, 64, 1, 1, "2:4", True),
        ("NHWC", 96, 64, 8, 8, "2:4", False), ("NHWC", 64, 96, 8, 8, "2:4", False),
        ("NCHW", 64, 64, 8, 8, "64:2:8", False), ("NHWC", 64, 64, 8, 8, "1:2", True),
    ):  # fmt: skip
        assert (TMA.why_not(boxes(layout, *sizes, form=form), gpus.H200) == "") == taken, (layout, sizes, form)


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
