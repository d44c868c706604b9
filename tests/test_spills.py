"""What pointwise/tensor makes of layers that leave it few registers spills nothing; and benchmarks/spills.py."""

import pytest
from compiler import needs_compiler
from fakes import script

from dwlab.compiler import inspect
from dwlab.kernels.parts import mma_tf32
from dwlab.kernels.pointwise import tensor_tiles
from dwlab.kernels.registry import stage
from dwlab.problems.layers import Pointwise

spills = script("spills")


def pointwise(C, F, side):
    return Pointwise(32, C, F, side, side, layout="NHWC", bias=True, activation="relu")


@needs_compiler
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("pointwise/forward/tensor", pointwise(728, 728, 14)),  # warps of 48 x 96 sums
        ("pointwise/forward/tensor", pointwise(128, 128, 56)),  # of 64 x 64
    ],
    ids=str,
)
def test_layers_of_networks_that_few_registers_are_left_for_spill_nothing(name, problem):
    found = inspect.compile(stage(name), problem=problem, cc="9.0")
    assert (found.spill_stores, found.spill_loads, found.local_bytes, found.float64_instructions) == (0, 0, 0, 0)
    assert found.occupancy.blocks_per_sm > 0 and not found.accesses("local")


def test_a_step_is_computed_in_halves_where_its_products_would_not_find_registers():
    key = pointwise(728, 728, 14).kernel_key
    tried = [tensor_tiles.config_of(key, *shape) for shape in tensor_tiles.SHAPES]
    sizes = {(config.warp_m, config.warp_n) for config in tried}
    assert {size for size in sizes if mma_tf32.in_halves(*size, 255)} == {(48, 96), (64, 64)}
    assert not mma_tf32.in_halves(64, 64, 320)
